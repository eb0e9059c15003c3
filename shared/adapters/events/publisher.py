"""Into the Broker over HTTP: the only outgoing events of a function, beside its replies."""

from collections.abc import Awaitable, Callable
from functools import cached_property
from http import HTTPStatus
from pathlib import Path

import aiohttp

from shared.adapters.auth.identity import is_token
from shared.adapters.auth.redirects import refuse_redirects
from shared.adapters.events.cloudevents import Event, event_of, to_http
from shared.errors import PermanentError, TryLaterError
from shared.messages import Message

SECONDS_MAX = 60.0
"""Long on purpose: an in-memory channel answers only after its subscribers have, their retries included."""

CONNECT_SECONDS_MAX = 10.0

TOKEN_FILE = Path("/oidc/token")
"""Where a SinkBinding puts the token for its sink, and a newer one in time, where Knative's authentication is on."""

_RETRYABLE = (HTTPStatus.NOT_FOUND, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS)


async def bound_token(file: Path = TOKEN_FILE) -> str:
    """The token that a SinkBinding mounts; empty while there is none.

    It is read for each event, which costs some microseconds: so it is never older than its file.

    Raises:
        TryLaterError: It cannot be read.
    """
    try:
        text = file.read_text().strip()  # noqa: ASYNC240 - a thread costs more than a file in memory
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no text"
        raise TryLaterError(f"{file}: expected a readable token, got {reason}") from None
    if text and not is_token(text):
        raise TryLaterError(f"{file}: expected a token and nothing else, got more")
    return text


class HttpPublisher:
    """Publishes to one sink.

    Args:
        sink: The Broker's URL.
        source: The CloudEvent source of what is published.
        seconds_max: How long to wait for an answer.
        token: Gives what goes with each event as its bearer token; nothing does where it is empty.
    """

    def __init__(
        self,
        sink: str,
        *,
        source: str,
        seconds_max: float = SECONDS_MAX,
        token: Callable[[], Awaitable[str]] = bound_token,
    ) -> None:
        self._sink = sink
        self._source = source
        self._seconds_max = seconds_max
        self._token = token

    @cached_property
    def _session(self) -> aiohttp.ClientSession:
        timeout = aiohttp.ClientTimeout(total=self._seconds_max, sock_connect=CONNECT_SECONDS_MAX)
        # A redirect would be followed with a GET, and a login page would pass for the Broker's consent.
        return aiohttp.ClientSession(timeout=timeout, middlewares=(refuse_redirects,))

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def publish(self, message: Message) -> None:
        """See `shared.ports.Publisher`; raises what `send` raises."""
        await self.send(event_of(message, source=self._source))

    async def send(self, event: Event) -> None:
        """Hand over an event that is already made; returns once it was accepted.

        Raises:
            EventError: An attribute has characters that no attribute may have.
            TryLaterError: No answer, or one that Knative would retry too.
            PermanentError: The Broker refuses, for instance because a policy does not admit us.
        """
        headers, body = to_http(event)
        if token := await self._token():
            headers["authorization"] = f"Bearer {token}"
        try:
            async with self._session.post(self._sink, data=body, headers=headers) as response:
                status, text = response.status, await response.text(errors="replace")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise TryLaterError(f"cannot publish to {self._sink}: {error or type(error).__name__}") from None
        if status in _RETRYABLE or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise TryLaterError(f"{self._sink} answered {status}: {text[:200]}")
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            raise PermanentError(f"{self._sink} refused {event.type} with {status}: {text[:200]}")
