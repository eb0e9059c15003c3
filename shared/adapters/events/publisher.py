"""Publish events to the Broker over HTTP; a function's replies are its only other events."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar

import aiohttp

from shared.adapters.events.cloudevents import Event, event_of, to_http
from shared.adapters.http_client import UNCOMPRESSED, is_token, read_up_to, refuse_redirects
from shared.core.values.timing import backoff_seconds
from shared.core.values.traceparent import TRACEPARENT
from shared.errors import PermanentError, TryLaterError
from shared.messages import Message

PUBLISH_SECONDS_MAX = 60.0
"""Timeout for an answer. It is long because an in-memory channel answers after its subscribers, retries included."""

CONNECT_SECONDS_MAX = 10.0

TOKEN_FILE = Path("/oidc/token")
"""The file with the token for the Broker, which the kubelet renews; also where a ContainerSource mounts its own."""

PUBLISH_ANSWER_BYTES_MAX = 64 * 1024
"""Bytes that are read of an answer: the status is the result, and a complete answer keeps the connection usable."""

_SHOWN_BYTES = 200  # of an answer, in an error
_RETRYABLE = (HTTPStatus.NOT_FOUND, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS)


async def bound_token(file: Path = TOKEN_FILE) -> str:
    """Read the token for the Broker; return an empty text if there is no file.

    The file is read for each event, which takes some microseconds. So the token is as new as its file.

    Raises:
        TryLaterError: The file cannot be read.
    """
    try:
        text = file.read_text().strip()  # noqa: ASYNC240 - a thread costs more than reading a file in memory
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "a file that is not text"
        raise TryLaterError(f"{file}: expected a readable token, got {reason}") from None
    if text and not is_token(text):
        raise TryLaterError(f"{file}: expected one token and no other text, got other text")
    return text


class HttpPublisher:
    """Publishes events to one sink.

    The number of connections has no limit here, because the callers limit their events in flight. With a limit, events
    that wait for slow subscribers would delay all others.

    Args:
        sink: The Broker's URL.
        source: The CloudEvents source of published messages.
        seconds_max: Timeout for an answer.
        token: Returns the bearer token for each event; empty for none.
    """

    def __init__(
        self,
        sink: str,
        *,
        source: str,
        seconds_max: float = PUBLISH_SECONDS_MAX,
        token: Callable[[], Awaitable[str]] = bound_token,
    ) -> None:
        self._sink = sink
        self._source = source
        self._seconds_max = seconds_max
        self._token = token

    @cached_property
    def _session(self) -> aiohttp.ClientSession:
        timeout = aiohttp.ClientTimeout(total=self._seconds_max, sock_connect=CONNECT_SECONDS_MAX)
        # A followed redirect becomes a GET, and the 200 of a login page would count as accepted by the Broker.
        connector = aiohttp.TCPConnector(limit=0)
        return aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            middlewares=(refuse_redirects,),
            headers=UNCOMPRESSED,
            auto_decompress=False,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def publish(self, message: Message) -> None:
        """See `shared.ports.Publisher`; raises what `send` raises."""
        await self.send(event_of(message, source=self._source))

    async def send(self, event: Event) -> None:
        """Send an event; return once the Broker accepted it.

        Raises:
            EventError: An attribute has characters that CloudEvents does not allow.
            TryLaterError: The Broker did not answer, or answered with a status that Knative retries.
            PermanentError: The Broker refused the event, for instance because no EventPolicy admits this sender.
        """
        headers, body = to_http(event)
        if TRACEPARENT in event.extensions:  # so that the spans of the Broker belong to the trace, too
            headers[TRACEPARENT] = event.extensions[TRACEPARENT]
        if token := await self._token():
            headers["authorization"] = f"Bearer {token}"
        try:
            async with self._session.post(self._sink, data=body, headers=headers) as response:
                status, (answer, _) = response.status, await read_up_to(PUBLISH_ANSWER_BYTES_MAX, response)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise TryLaterError(f"cannot publish to {self._sink}: {error or type(error).__name__}") from None
        text = answer[:_SHOWN_BYTES].decode(errors="replace")
        if status in _RETRYABLE or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise TryLaterError(f"{self._sink} answered {status}: {text}")
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            raise PermanentError(f"{self._sink} refused {event.type} with {status}: {text}")


RETRIES = 6
"""Retries of a call: half a minute in total, ten times that of Knative's sources; a Broker restarts within it."""

_T = TypeVar("_T")


def retrying(
    take: Callable[[_T], Awaitable[object]],
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    jitter: Callable[[], float] = random.random,
) -> Callable[[_T], Awaitable[None]]:
    """Return a function that calls `take` and retries it after each TryLaterError.

    `stamina` does not fit. A timer's back-off follows from a stored count of attempts, so `backoff_seconds` stays in
    any case, and stamina would add a second formula for the pauses. By default it also logs the arguments of each call
    that it retries, and here these are whole objects.

    Args:
        take: Takes one value. A TryLaterError is retried; any other error is raised at once.
        sleep: Waits a number of seconds.
        jitter: Returns a random number from 0 to 1, so that calls that failed together are not retried together.

    Returns:
        The function; it raises the last TryLaterError after all pauses.
    """

    async def take_with_retries(value: _T) -> None:
        for attempts in range(RETRIES):
            try:
                await take(value)
            except TryLaterError:
                await sleep(backoff_seconds(attempts, jitter=jitter()))
            else:
                return
        await take(value)

    return take_with_retries
