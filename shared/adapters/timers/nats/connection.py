"""The connection to the NATS servers: requests whose errors are ours."""

import asyncio
import base64
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from nats import errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from shared.adapters.timers.nats.acks import Acks, Answer, ApiError
from shared.adapters.timers.nats.records import headers_of
from shared.adapters.timers.nats.servers import TLS_MISSING, NatsClient, NatsServers
from shared.adapters.timers.nats.subjects import KeySubjects
from shared.errors import TryLaterError, TtlError

_CONNECT_SECONDS = 3.0
_RECONNECT_SECONDS = 0.5
_CANCEL_SECONDS = 0.1
_NOT_FOUND = 10037
_NOT_DELETED = 10057  # the stream does not have the message
_log = logging.getLogger("ttl")


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """A message of the stream.

    Attributes:
        sequence: Its position.
    """

    subject: str
    sequence: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class NatsConnection:
    """A connection that reconnects for ever.

    Args:
        servers: The servers.
        stream: The name of the stream.

    Attributes:
        violation: The last right that the servers refused; empty if none.
        reconnected: Called after each reconnection.
    """

    def __init__(self, servers: NatsServers, stream: str) -> None:
        self.violation = ""
        self.reconnected: Callable[[], None] = lambda: None
        self._servers, self._stream = servers, stream
        self._client = NatsClient()
        self._acks = Acks(self._client, self._stream)
        self._last, self._is_open = "", False

    @property
    def problem(self) -> str:
        """Why no server is reachable, as far as it is known; empty if one is."""
        return "" if self._client.is_connected else f"no NATS server is reachable: {self._last or 'not connected yet'}"

    @property
    def version(self) -> str:
        """The version of the server that this process is connected to."""
        version = self._client.connected_server_version
        return f"{version.major}.{version.minor}.{version.patch}"

    @property
    def closed(self) -> bool:
        """Whether the connection is closed for good."""
        return bool(self._client.is_closed)

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
                self._client.options["max_reconnect_attempts"] = -1
                self._acks = Acks(self._client, self._stream)
                await self._acks.start()
                self._is_open, self._last = True, ""
                return

    async def close(self) -> None:
        """Send what waits, and close the connection."""
        self._acks.close()
        if self._client.is_connected:
            try:
                await self._client.flush(timeout=2)
            except (errors.Error, TimeoutError, OSError):
                _log.warning("NATS did not take the last acknowledgements; some timers are delivered again")
                self._client.abort()
                self._client.discard()
        elif not self._is_open:
            self._client.abort()  # it did not connect, or not to the end
            return
        else:
            self._client.discard()
        try:
            await self._client.close()
        except (errors.Error, OSError) as error:  # the server went away meanwhile, and has the timers all the same
            _log.warning("NATS connection not closed in order", extra={"fields": {"error": str(error)}})

    async def store(self, subject: str, body: bytes, headers: dict[str, str]) -> asyncio.Future[Answer]:
        """Send a message to the stream; the future has an answer once it is durable. See `Acks.send`.

        Raises:
            TryLaterError: No server is reachable.
        """
        self._require_connection()
        return await self._acks.send(subject, body, headers)

    async def api(self, operation: str, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Call JetStream's API.

        Args:
            operation: What follows `$JS.API.`.
            request: The request.

        Raises:
            ApiError: JetStream answered with an error.
            TryLaterError: No server answers.
        """
        self._require_connection()
        self.violation = ""
        body = json.dumps(request).encode() if request is not None else b""
        return await (await self._acks.send(f"$JS.API.{operation}", body))

    async def last(self, subject: str) -> StreamMessage | None:
        """Read the last message under a filter of subjects from the leader of the stream; None without one."""
        return await self._read({"last_by_subj": subject})

    async def first(self, subject: str, sequence: int) -> StreamMessage | None:
        """Read the first message under a filter of subjects from a sequence on; None without one."""
        return await self._read({"next_by_subj": subject, "seq": sequence})

    async def remove(self, subjects: str, last: int) -> int:
        """Remove what has one of the subjects and a sequence up to the last one; return how many messages."""
        answer = await self.api(f"STREAM.PURGE.{self._stream}", {"filter": subjects, "seq": last + 1})
        return int(answer["purged"])

    async def delete(self, sequence: int) -> None:
        """Remove one message, if the stream still has it."""
        try:
            await self.api(f"STREAM.MSG.DELETE.{self._stream}", {"seq": sequence, "no_erase": True})
        except ApiError as error:
            if error.code != _NOT_DELETED:
                raise

    async def _read(self, request: Mapping[str, Any]) -> StreamMessage | None:
        try:
            found = (await self.api(f"STREAM.MSG.GET.{self._stream}", request))["message"]
        except ApiError as error:
            if error.code == _NOT_FOUND:
                return None
            raise
        body = base64.b64decode(found.get("data") or "")
        headers = base64.b64decode(found.get("hdrs") or "").decode(errors="replace")
        return StreamMessage(found["subject"], found["seq"], body, headers_of(headers))

    async def send(self, subject: str, body: bytes = b"", reply: str = "") -> None:
        """Publish without an answer.

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

    def _require_connection(self) -> None:
        if problem := self.problem:
            raise TryLaterError(problem)

    async def _on_error(self, error: Exception) -> None:
        text = str(error).removeprefix("nats: ") or type(error).__name__
        if "permissions violation" in text.lower():
            self.violation = text
            self._acks.refuse(text)
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


async def contents_of(connection: NatsConnection, key: KeySubjects) -> list[StreamMessage]:
    """Return the newest schedule of a key, if it has one, and all its fired messages.

    They are read from the server that leads the stream, or that still believes so.

    The schedule is read first: if it fires in the meantime, it is among the fired messages. nats-server finds the last
    message of a filter at once, and so the first one of a subject without wildcards. For the first message of a filter
    with wildcards, it goes through the stream: 7 ms with 100,000 timers, seen in 2.15.2.

    Raises:
        TryLaterError: The servers do not answer.
    """
    head = await connection.last(key.heads)
    fired, newest = await asyncio.gather(connection.first(key.fired, 1), connection.last(key.fired))
    found = []
    while fired and newest and fired.sequence < newest.sequence:
        found.append(fired)
        fired = await connection.first(key.fired, fired.sequence + 1)
    return found + [one for one in (newest, head) if one]
