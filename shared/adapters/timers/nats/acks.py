"""Send requests to JetStream, many at once, and match the answers to them.

The client library starts a timer for each request. Here, one timer ends all requests that the servers did not
answer, which takes half of the processor time.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from nats import errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from shared.core.values.jsontext import parse_json
from shared.errors import EventError, TryLaterError

UNANSWERED_MAX = 1_024
"""Maximum number of requests without an answer."""

ACK_ANSWER_SECONDS = 5.0
"""How long the servers may take: longer than an election of a new leader."""

PROBE_SECONDS = 2.0
"""After this time without any answer, the servers are asked for the state of the stream: a full disk stops no reads."""

_LOOK_SECONDS = 0.5
_WRONG_SEQUENCE = (10071, 10164)
_TOO_LARGE = 10054
_NO_STORAGE, _STORE_FAILED = (10002, 10023, 10047), 10077
_ABSENT = (
    "no NATS server answers for JetStream, or for the stream of the timers: JetStream is off, or stopped because its "
    "disk is full, or the stream has no leader now; see the log of nats-server"
)


_SILENCE = f"no answer by NATS within {ACK_ANSWER_SECONDS:.0f} s"
_NOTHING_STORED = (
    f"the NATS servers answer, but stored nothing within {ACK_ANSWER_SECONDS:.0f} s: their disk is full or too slow, "
    "or too few servers are up; see the log and the disk of nats-server"
)
_PROBE = "probe"

Answer = dict[str, Any]
"""The JSON that JetStream answers: of a publication it has `seq`, the sequence in the stream."""


class ExpectationError(Exception):
    """The key has changed since it was read: the server did not store the message."""


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
        super().__init__(_ABSENT)


_CLOSED = "NATS did not answer before the connection was closed"


@dataclass(slots=True)
class _Waiting:
    answer: asyncio.Future[Answer]
    subject: str
    deadline: float


class Acks:
    """The requests of a connection that wait for their answers.

    Args:
        client: The connected client.
        stream: The name of the stream.
    """

    def __init__(self, client: Client, stream: str) -> None:
        self._client = client
        self._inbox = client.new_inbox()
        self._probe_subject = f"$JS.API.STREAM.INFO.{stream}"
        self._waiting: dict[str, _Waiting] = {}
        self._free = asyncio.Semaphore(UNANSWERED_MAX)
        self._number, self._heard_at, self._probed_at = 0, 0.0, 0.0
        self._work: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Subscribe to the answers."""
        await self._client.subscribe(f"{self._inbox}.*", cb=self._receive)
        self._look()

    def close(self) -> None:
        """End all requests without an answer, also those that wait for a place."""
        self._is_closed = True
        if self._timer:
            self._timer.cancel()
        for token in tuple(self._waiting):
            self._end(token, TryLaterError(_CLOSED))

    def refuse(self, violation: str) -> None:
        """End the requests that the servers have just refused.

        Args:
            violation: What the servers reported; it has the subject in quotes. The client writes it in small letters.
        """
        error = f"the NATS servers refuse this user a right: {violation}; grant the right to the user of the timers"
        for token, waiting in tuple(self._waiting.items()):
            if f'"{waiting.subject}"'.lower() in violation.lower():
                self._end(token, TryLaterError(error))

    async def send(self, subject: str, body: bytes, headers: dict[str, str] | None = None) -> asyncio.Future[Answer]:
        """Send a message to the stream, or a request to the API; wait while too many have no answer.

        Returns:
            A future of the answer; that of a message is set once the message is durable. Its exception is an
            ExpectationError, an EventError if the message is too large, or a TryLaterError.

        Raises:
            TryLaterError: The connection is closed.
        """
        await self._free.acquire()
        if self._is_closed:
            self._free.release()
            raise TryLaterError(_CLOSED)
        loop = asyncio.get_running_loop()
        self._number += 1
        token = str(self._number)
        answer: asyncio.Future[Answer] = loop.create_future()
        self._waiting[token] = _Waiting(answer, subject, loop.time() + ACK_ANSWER_SECONDS)
        try:
            await self._client.publish(subject, body, f"{self._inbox}.{token}", headers)
        except errors.Error as error:
            self._end(token, TryLaterError(_refusal_of(subject, error)))
        return answer

    async def _receive(self, message: Msg) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        token = message.subject.rpartition(".")[2]
        if not message.data:  # the server has no subscription for the subject
            self._end(token, AbsentJetStreamError())
            return
        try:
            answer = parse_json(message.data)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            self._end(token, TryLaterError(f"NATS: expected an answer of JetStream, got {message.data[:100]!r}"))
        elif "error" in answer:
            self._end(token, _error_of(answer["error"]))
        elif waiting := self._waiting.pop(token, None):
            self._free.release()
            if not waiting.answer.done():
                waiting.answer.set_result(answer)

    def _look(self) -> None:
        """End the requests that have waited too long; the dict is in the order of their deadlines.

        If the server answers none, as one that hangs, another one is tried: the client notices that only later.
        """
        now = asyncio.get_running_loop().time()
        late = []
        for token, waiting in self._waiting.items():
            if waiting.deadline > now:
                break
            late.append((token, waiting))
        for token, waiting in late:
            is_read = waiting.subject.startswith("$JS.API.")
            is_answering = self._heard_at > waiting.deadline - ACK_ANSWER_SECONDS + PROBE_SECONDS
            self._end(token, TryLaterError(_NOTHING_STORED if is_answering and not is_read else _SILENCE))
        if late and self._heard_at < now - ACK_ANSWER_SECONDS:
            self._heard_at = now  # one reconnection for each silence
            self._start(self._client.force_reconnect())
        if self._is_probe_due(now):
            self._probed_at = now
            self._start(self._probe())
        self._timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def _is_probe_due(self, now: float) -> bool:
        """Return whether a request waits for long, and nothing shows whether the servers answer at all."""
        oldest = next(iter(self._waiting.values()), None)
        sent_at = oldest.deadline - ACK_ANSWER_SECONDS if oldest else now
        return now - max(sent_at, self._heard_at, self._probed_at) >= PROBE_SECONDS

    async def _probe(self) -> None:
        with suppress(errors.Error, OSError):
            await self._client.publish(self._probe_subject, b"", f"{self._inbox}.{_PROBE}")

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    def _end(self, token: str, error: Exception) -> None:
        if waiting := self._waiting.pop(token, None):
            self._free.release()
            if not waiting.answer.done():
                waiting.answer.set_exception(error)
                waiting.answer.exception()  # the caller may be gone


def _error_of(error: Mapping[str, object]) -> Exception:
    code, description = int(str(error.get("err_code", 0))), str(error.get("description", ""))
    if code in _WRONG_SEQUENCE:
        return ExpectationError(description)
    if code == _TOO_LARGE:
        return EventError(f"the timer is too large for the stream: {description}", status=413)
    return ApiError(description, code)


def _refusal_of(subject: str, error: Exception) -> str:
    """Say what the client library refused to send; it sends nothing then."""
    reason = str(error).removeprefix("nats: ") or type(error).__name__
    return f"NATS does not take a message for {subject}: {reason}"
