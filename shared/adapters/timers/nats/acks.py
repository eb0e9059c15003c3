"""Send requests to JetStream, many at once, and match the answers to them.

The client library starts a timer for each request. Here, one timer ends all requests that the servers did not
answer, which takes half of the processor time.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from nats import errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from shared.core.jsontext import parse_json
from shared.errors import EventError, TryLaterError

UNANSWERED_MAX = 1_024
"""Maximum number of requests without an answer."""

ACK_ANSWER_SECONDS = 5.0
"""How long the servers may take: longer than an election of a new leader."""

_LOOK_SECONDS = 0.5
_WRONG_SEQUENCE = (10071, 10164)
_TOO_LARGE = 10054


Answer = dict[str, Any]
"""The JSON that JetStream answers: of a publication it has `seq`, the sequence in the stream."""


class ExpectationError(Exception):
    """The key has changed since it was read: the server did not store the message."""


class ApiError(TryLaterError):
    """JetStream answered a request with an error.

    Attributes:
        code: The number of the error in JetStream's list (`err_code`); 0 without one.
    """

    def __init__(self, description: str, code: int) -> None:
        super().__init__(f"NATS JetStream: {description} (error {code})")
        self.code = code


class AbsentJetStreamError(TryLaterError):
    """No server answers for JetStream, or for the stream: it is off, or it has no leader now."""


class Acks:
    """The requests of a connection that wait for their answers.

    Args:
        client: The connected client.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._inbox = client.new_inbox()
        self._waiting: dict[str, tuple[asyncio.Future[Answer], float]] = {}
        self._free = asyncio.Semaphore(UNANSWERED_MAX)
        self._number, self._heard_at = 0, 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Subscribe to the answers."""
        await self._client.subscribe(f"{self._inbox}.*", cb=self._receive)
        self._look()

    def close(self) -> None:
        """End all requests without an answer."""
        if self._timer:
            self._timer.cancel()
        for token in tuple(self._waiting):
            self._end(token, TryLaterError("the connection to NATS is closed"))

    async def send(self, subject: str, body: bytes, headers: dict[str, str] | None = None) -> asyncio.Future[Answer]:
        """Send a message to the stream, or a request to the API; wait while too many have no answer.

        Returns:
            A future of the answer; that of a message is set once the message is durable. Its exception is an
            ExpectationError, an EventError if the message is too large, or a TryLaterError.

        Raises:
            TryLaterError: The connection is closed.
        """
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        self._number += 1
        token = str(self._number)
        answer: asyncio.Future[Answer] = loop.create_future()
        self._waiting[token] = answer, loop.time() + ACK_ANSWER_SECONDS
        try:
            await self._client.publish(subject, body, f"{self._inbox}.{token}", headers)
        except errors.Error as error:
            self._end(token, TryLaterError(f"NATS: {error}"))
        return answer

    async def _receive(self, message: Msg) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        token = message.subject.rpartition(".")[2]
        if not message.data:  # the server has no subscription for the subject
            self._end(
                token, AbsentJetStreamError("no NATS server answers for JetStream, or for the stream of the timers")
            )
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
            if not waiting[0].done():
                waiting[0].set_result(answer)

    def _look(self) -> None:
        """End the requests that have waited too long; the dict is in the order of their deadlines.

        If the server answers none, as one that hangs, another one is tried: the client notices that only later.
        """
        loop = asyncio.get_running_loop()
        late = []
        for token, (_, deadline) in self._waiting.items():
            if deadline > loop.time():
                break
            late.append(token)
        if late and self._heard_at < loop.time() - ACK_ANSWER_SECONDS:
            self._heard_at = loop.time()  # one reconnection for each silence
            self._reconnecting = loop.create_task(self._client.force_reconnect())
        for token in late:
            self._end(token, TryLaterError(f"no answer by NATS within {ACK_ANSWER_SECONDS:.0f} s"))
        self._timer = loop.call_later(_LOOK_SECONDS, self._look)

    def _end(self, token: str, error: Exception) -> None:
        if waiting := self._waiting.pop(token, None):
            self._free.release()
            if not waiting[0].done():
                waiting[0].set_exception(error)
                waiting[0].exception()  # the caller may be gone


def _error_of(error: Mapping[str, object]) -> Exception:
    code, description = int(str(error.get("err_code", 0))), str(error.get("description", ""))
    if code in _WRONG_SEQUENCE:
        return ExpectationError(description)
    if code == _TOO_LARGE:
        return EventError(f"the timer is too large for the stream: {description}", status=413)
    return ApiError(description, code)
