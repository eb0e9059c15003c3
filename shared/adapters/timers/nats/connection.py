"""The connection to the NATS servers: requests to JetStream, whose errors say what to do."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple, NoReturn

from nats import errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from shared.adapters.timers.nats.servers import TLS_MISSING, NatsClient, NatsServers
from shared.core.values.jsontext import parse_json
from shared.errors import EventError, TryLaterError, TtlError

API_SECONDS = 5.0
"""How long the servers may take: longer than an election of a new leader."""

REQUESTS_MAX = 64
"""Maximum number of requests without an answer, of at most `MESSAGES_MAX` messages each."""

MESSAGES_MAX = 64
"""Messages of one request, of which none waits for the answer to another."""

_PROBE_SECONDS = 2
_CONNECT_SECONDS = 3.0
_RECONNECT_SECONDS = 0.5
_CANCEL_SECONDS = 0.1
_NOT_DELETED, _TOO_LARGE = 10057, 10054
_NO_STORAGE, _STORE_FAILED = (10002, 10023, 10047), 10077
_SILENCE = f"no answer by NATS within {API_SECONDS:.0f} s"
_log = logging.getLogger("ttl")

Answer = dict[str, Any]
"""The JSON that JetStream answers."""


class ApiError(TryLaterError):
    """JetStream answered a request with an error.

    Attributes:
        code: The number of the error in JetStream's list (`err_code`); 0 without one.
        is_out_of_storage: Whether the disk is full, or a limit of the storage is reached.
    """

    def __init__(self, description: str, code: int) -> None:
        text = f"NATS JetStream: {description} (error {code})"
        is_limit = code == _STORE_FAILED and any(word in description for word in ("maximum", "no space"))
        if is_out_of_storage := is_limit or code in _NO_STORAGE:
            text = (
                "the NATS servers have no storage left: the disk is full, or a limit of JetStream (max_file_store) or "
                f"of the account is reached: {description} (error {code}); free or add space, or raise the limit"
            )
        super().__init__(text)
        self.code, self.is_out_of_storage = code, is_out_of_storage


class AbsentJetStreamError(TryLaterError):
    """No server answers for JetStream, or for the stream: it is off, or it has no leader now."""

    def __init__(self) -> None:
        super().__init__(
            "no NATS server answers for JetStream, or for the stream of the timers: JetStream is off, or stopped "
            "because its disk is full, or the stream has no leader now; see the log of nats-server"
        )


class NatsRequest(NamedTuple):
    """A message for the stream, or a request to the API."""

    subject: str
    body: bytes
    headers: dict[str, str] | None = None


class NatsConnection:
    """A connection that reconnects for ever.

    Args:
        servers: The servers.
        stream: The name of the stream.

    Attributes:
        violation: The last right that the servers refused; empty if none.
        reconnected: Called after each reconnection.
        closed: Set once the connection is closed, here or by the servers.
    """

    def __init__(self, servers: NatsServers, stream: str) -> None:
        self.violation = ""
        self.reconnected: Callable[[], None] = lambda: None
        self.closed = asyncio.Event()
        self._servers, self._stream = servers, stream
        self._client = NatsClient()
        self._requests: dict[str, tuple[str, asyncio.Future[Msg]]] = {}
        self._numbers, self._free, self._inbox = count(), asyncio.Semaphore(REQUESTS_MAX), ""
        self._probe: asyncio.Task[str] | None = None
        self._last, self._is_open = "", False

    @property
    def problem(self) -> str:
        """Why no server is reachable, as far as it is known; empty if one is."""
        return "" if self._client.is_connected else f"no NATS server is reachable: {self._last or 'not connected yet'}"

    @property
    def version(self) -> tuple[int, int, int]:
        """The version of the server that this process is connected to."""
        version = self._client.connected_server_version
        return version.major, version.minor, version.patch

    async def open(self) -> None:
        """Connect; retry for ever, and log each new reason.

        Raises:
            TtlError: The servers refuse this user, or a file is wrong.
        """
        self._servers.check()
        options: dict[str, Any] = {"connect_timeout": _CONNECT_SECONDS, "reconnect_time_wait": _RECONNECT_SECONDS}
        if tls := self._servers.tls():
            options["tls"] = tls
        if self._servers.credentials:
            options["user_credentials"] = str(self._servers.credentials)
        while True:
            try:
                self._client = self._servers.new_client()
                connecting = self._client.connect(
                    servers=list(self._servers.urls),
                    name="ttl-after-finished timers",
                    allow_reconnect=True,
                    max_reconnect_attempts=1,
                    error_cb=self._on_error,
                    disconnected_cb=self._on_disconnect,
                    reconnected_cb=self._on_reconnect,
                    closed_cb=self._on_close,
                    skip_subject_validation=True,  # the subjects are made of safe tokens
                    pending_size=8 * 1024 * 1024,
                    ping_interval=5,
                    **options,
                )
                await _ending_when_cancelled(connecting)
            except (OSError, errors.Error, TimeoutError, ValueError) as error:
                reason = self._last or str(error)
                if TLS_MISSING in reason:
                    raise TtlError(
                        f"a NATS server {TLS_MISSING}, and its URL has tls://; switch on TLS at the server, or use nats://"
                    ) from error
                if "uthorization" in reason or isinstance(error, errors.InvalidUserCredentialsError | ValueError):
                    raise TtlError(
                        f"the NATS servers refuse this user: {reason}; expected a user of the account of the timers, "
                        "set TTL_NATS_CREDENTIALS to its credentials file"
                    ) from error
                await asyncio.sleep(_RECONNECT_SECONDS)
            else:
                break
        self._client.options["max_reconnect_attempts"] = -1
        self._inbox = self._client.new_inbox()
        await self._client.subscribe(f"{self._inbox}.*", cb=self._on_answer)
        self._is_open, self._last = True, ""

    async def until_lost(self) -> NoReturn:
        """Wait until the connection is closed for good by the servers.

        Raises:
            TtlError: It is.
        """
        await self.closed.wait()
        raise TtlError("the NATS servers closed the connection for good; see the error before this line")

    async def close(self) -> None:
        """Send what waits, and close the connection."""
        self._is_open, was_open = False, self._is_open
        self.closed.set()
        self._refuse("NATS did not answer before the connection was closed")
        if self._client.is_connected:
            try:
                await self._client.flush(timeout=2)
            except (errors.Error, TimeoutError, OSError):
                _log.warning("NATS did not take the last acks; some timers are delivered again")
                self._client.abort()
                self._client.discard()
        elif not was_open:
            self._client.abort()  # it did not connect, or not to the end
            return
        else:
            self._client.discard()
        try:
            await self._client.close()
        except (errors.Error, OSError) as error:  # the server went away meanwhile, and has the timers all the same
            _log.warning("NATS connection not closed in order", extra={"fields": {"error": str(error)}})

    async def request(self, messages: Sequence[NatsRequest]) -> list[Answer]:
        """Store messages in the stream, or call the API; messages are durable once this returns.

        Raises:
            ApiError: JetStream answered with an error.
            EventError: A message is too large.
            TryLaterError: No server is reachable, or none answers.
        """
        answers = []
        for first in range(0, len(messages), MESSAGES_MAX):
            async with self._free:
                answers += await self._ask(messages[first : first + MESSAGES_MAX])
        return answers

    async def _ask(self, messages: Sequence[NatsRequest]) -> list[Answer]:
        if problem := self.problem:
            raise TryLaterError(problem)
        loop, sent = asyncio.get_running_loop(), dict[str, asyncio.Future[Msg]]()
        try:
            for message in messages:
                token = str(next(self._numbers))
                sent[token] = loop.create_future()
                self._requests[token] = message.subject, sent[token]
                await self._client.publish(message.subject, message.body, f"{self._inbox}.{token}", message.headers)
            _, late = await asyncio.wait(sent.values(), timeout=API_SECONDS)
            if late:
                raise TryLaterError(await self._explain_silence(messages))
            return [_answer_in(answer.result()) for answer in sent.values()]
        except errors.Error as error:  # the client sends nothing then
            raise TryLaterError(f"NATS does not take a message: {_text_of(error)}") from error
        finally:
            for token in sent:
                del self._requests[token]

    async def api(self, operation: str, request: Mapping[str, Any] | None = None) -> Answer:
        """Call JetStream's API; `operation` is what follows `$JS.API.`. Errors as of `request`."""
        self.violation = ""
        body = json.dumps(request).encode() if request is not None else b""
        return (await self.request([NatsRequest(f"$JS.API.{operation}", body)]))[0]

    async def delete(self, sequence: int) -> None:
        """Remove one message, if the stream still has it."""
        try:
            await self.api(f"STREAM.MSG.DELETE.{self._stream}", {"seq": sequence, "no_erase": True})
        except ApiError as error:
            if error.code != _NOT_DELETED:
                raise

    async def send(self, subject: str, body: bytes, reply: str) -> None:
        """Publish; what is answered comes to the subject `reply`.

        Raises:
            TryLaterError: The connection is closed.
        """
        try:
            await self._client.publish(subject, body, reply=reply)
        except errors.Error as error:
            raise TryLaterError(f"NATS: {error}") from error

    async def subscribe(self, on_message: Callable[[Msg], Awaitable[None]]) -> tuple[str, Subscription]:
        """Subscribe to a new inbox; return its subject, and the subscription."""
        inbox = self._client.new_inbox()
        return inbox, await self._client.subscribe(inbox, cb=on_message)

    async def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; a closed connection has none."""
        if not self._client.is_closed:
            with suppress(errors.Error):
                await subscription.unsubscribe()

    def _refuse(self, reason: str, violation: str = "") -> None:
        """End the requests that wait: those whose subject is in the text of a violation, or all without one."""
        for subject, answer in self._requests.values():
            is_meant = not violation or f'"{subject}"'.lower() in violation.lower()  # the client lowers it
            if is_meant and not answer.done():
                answer.set_exception(TryLaterError(reason))
                answer.exception()  # the caller may be gone

    async def _explain_silence(self, messages: Sequence[NatsRequest]) -> str:
        """Say why a request has no answer: a server with a full disk answers what it need not store."""
        if not self._probe or self._probe.done():
            self._probe = asyncio.create_task(self._ask_for_life())
        silence = await asyncio.shield(self._probe)
        if silence or messages[0].subject.startswith("$JS.API."):
            return _SILENCE
        return (
            f"the NATS servers answer, but stored nothing within {API_SECONDS:.0f} s: their disk is full or too "
            "slow, or too few servers are up; see the log and the disk of nats-server"
        )

    async def _ask_for_life(self) -> str:
        """Ping the server, and leave one that does not answer, as one that hangs: the client notices that later."""
        try:
            await self._client.flush(timeout=_PROBE_SECONDS)
        except (errors.Error, OSError, TimeoutError) as error:
            if self._is_open:
                await self._client.force_reconnect()
            return str(error) or _SILENCE
        return self.problem

    async def _on_answer(self, message: Msg) -> None:
        _, answer = self._requests.get(message.subject.rpartition(".")[2], ("", None))
        if answer and not answer.done():
            answer.set_result(message)

    async def _on_error(self, error: Exception) -> None:
        text = _text_of(error)
        if "permissions violation" in text.lower():
            self.violation = text
            reason = f"the NATS servers refuse this user a right: {text}; grant the right to the user of the timers"
            self._refuse(reason, violation=text)
        if text != self._last:
            self._last = text
            _log.error("NATS connection", extra={"fields": {"error": text}})

    async def _on_disconnect(self) -> None:
        if not self._client.is_closed:
            _log.warning("NATS connection lost; connecting again")

    async def _on_reconnect(self) -> None:
        self._last = ""
        _log.info("NATS connection restored", extra={"fields": {"stream": self._stream}})
        self.reconnected()

    async def _on_close(self) -> None:
        if self._is_open:  # else `open` tries again
            self.closed.set()


def _text_of(error: Exception) -> str:
    return str(error).removeprefix("nats: ") or type(error).__name__


def _answer_in(message: Msg) -> Answer:
    if not message.data:  # the server has no subscription for the subject
        raise AbsentJetStreamError
    try:
        answer = parse_json(message.data)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise TryLaterError(f"NATS: expected an answer of JetStream, got {message.data[:100]!r}")
    if "error" in answer:
        code, description = int(answer["error"].get("err_code", 0)), str(answer["error"].get("description", ""))
        if code == _TOO_LARGE:
            raise EventError(f"the timer is too large for the stream: {description}", status=413)
        raise ApiError(description, code)
    return answer


async def _ending_when_cancelled(work: Coroutine[Any, Any, None]) -> None:
    """Await work of the client library, in which a cancellation may get lost.

    `asyncio.wait_for` of Python 3.11, which the library uses, returns its result and drops a cancellation that comes
    at the same moment. Then the process would not end on SIGTERM.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task])
    finally:
        while not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=_CANCEL_SECONDS)
    task.result()
