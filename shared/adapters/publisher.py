"""Into the Broker over HTTP: the only outgoing events of a function, beside its replies."""

from functools import cached_property
from http import HTTPStatus

import aiohttp

from shared.adapters.events import Event, event_of, to_http
from shared.adapters.identity import Identity
from shared.errors import PermanentError, TryLaterError
from shared.messages import Message

SECONDS_MAX = 60.0
"""Long on purpose: an in-memory channel answers only after its subscribers have, their retries included."""

CONNECT_SECONDS_MAX = 10.0

_RETRYABLE = (HTTPStatus.NOT_FOUND, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS)


class HttpPublisher:
    """Publishes to one sink.

    Args:
        sink: The Broker's URL.
        source: The CloudEvent source of what is published.
        seconds_max: How long to wait for an answer.
        identity: Whose token goes with each event, if anybody's.
    """

    def __init__(
        self, sink: str, *, source: str, seconds_max: float = SECONDS_MAX, identity: Identity | None = None
    ) -> None:
        self._sink = sink
        self._source = source
        self._seconds_max = seconds_max
        self._identity = identity

    @cached_property
    def _session(self) -> aiohttp.ClientSession:
        timeout = aiohttp.ClientTimeout(total=self._seconds_max, sock_connect=CONNECT_SECONDS_MAX)
        return aiohttp.ClientSession(timeout=timeout)

    async def close(self) -> None:
        """Close the connections."""
        if self._identity:
            self._identity.close()
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
        if self._identity:
            headers["authorization"] = f"Bearer {await self._identity.token()}"
        try:
            # A redirect would be followed with a GET, and a login page would pass for the Broker's consent.
            async with self._session.post(self._sink, data=body, headers=headers, allow_redirects=False) as response:
                status, text = response.status, await response.text(errors="replace")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise TryLaterError(f"cannot publish to {self._sink}: {error or type(error).__name__}") from None
        if status in _RETRYABLE or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise TryLaterError(f"{self._sink} answered {status}: {text[:200]}")
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            raise PermanentError(f"{self._sink} refused {event.type} with {status}: {text[:200]}")
