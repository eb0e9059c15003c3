"""One Trigger's deliveries over HTTP: Knative's table of what is tried again, and its pauses."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import aiohttp
from yarl import URL

from shared.adapters.events.cloudevents import Event, parse_event, to_http
from shared.errors import EventError
from shared.standalone.dead_letters import Undelivered
from shared.standalone.trigger_files import ManifestError
from shared.standalone.triggers import Trigger

CONCURRENCY = 128
"""Attempts under way at one Trigger: more than the timer engine makes at once, and no other Trigger waits for them."""

RETRY_AFTER_SECONDS_MAX = 60.0
"""Where the Trigger sets no `retryAfterMax`: a slip in a header must not park an event for days."""

HOPS_LEFT = "knativebrokerttl"
"""The extension that ends loops: between Brokers only, a function neither sees nor sets it."""

Sleep = Callable[[float], Awaitable[None]]

_ATTEMPT_SECONDS_MAX = 900.0  # without `timeout`: the in-memory channel's own limit of a fan-out
_KEEP_ALIVE_SECONDS = 3.0  # less than a uvicorn's 5: a connection it just closed would cost a retry
_DETAIL_CHARACTERS_MAX = 1024
_RETRYABLE = {HTTPStatus.NOT_FOUND, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS}
_NOT_A_CLOUD_EVENT = "received a non-empty response not recognized as CloudEvent"
# aiohttp would call an empty body application/octet-stream.
_SKIPPED_HEADERS = ("Content-Type", "User-Agent")


def open_session(socket: Path | None = None) -> aiohttp.ClientSession:
    """A session made for a LocalBroker, to be closed after it.

    Without a limit of its own, since the Triggers have theirs and must not wait for each other; without cookies.

    Args:
        socket: The unix socket that every URL leads to; None: TCP.
    """
    connector = (
        aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS)
        if socket is None
        else aiohttp.UnixConnector(str(socket), limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS)
    )
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())


def is_retryable(status: int) -> bool:
    """Whether Knative tries again after this answer: all of 5xx, and four of 4xx."""
    return status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _RETRYABLE


@dataclass(frozen=True, slots=True)
class Parcel:
    """An event ready to go: what every Trigger needs of it, made once."""

    event: Event
    attributes: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


def pack(event: Event) -> Parcel:
    """The event ready to go.

    Raises:
        EventError: An attribute cannot be a header.
    """
    if HOPS_LEFT in event.extensions:
        others = {name: value for name, value in event.extensions.items() if name != HOPS_LEFT}
        event = dataclasses.replace(event, extensions=others)
    for name in event.extensions:
        if not (name.isascii() and name.isalnum()):
            raise EventError(f"{name!r}: expected an attribute name of letters and digits")
    headers, body = to_http(event)
    # As Knative does: the subscriber learns that an event in its answer will be published.
    return Parcel(event, event.attributes(), {**headers, "prefer": "reply"}, body)


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    detail: str = ""
    reply: Event | None = None
    retry_after_seconds: float = 0.0

    @property
    def is_success(self) -> bool:
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES


class Subscriber:
    """Delivers to one Trigger's function.

    Args:
        trigger: Whose events these are.
        url: Where the function answers.
        session: Its connection limit must not be below CONCURRENCY for every Trigger together.
        sleep: Waits the given seconds between two attempts.
    """

    def __init__(self, trigger: Trigger, url: URL, *, session: aiohttp.ClientSession, sleep: Sleep) -> None:
        self.trigger = trigger
        self._url = url
        self._session = session
        self._sleep = sleep
        self._slots = asyncio.Semaphore(CONCURRENCY)
        timeout = trigger.delivery.timeout
        self._timeout = aiohttp.ClientTimeout(total=timeout.total_seconds() if timeout else _ATTEMPT_SECONDS_MAX)

    async def deliver(self, parcel: Parcel) -> Event | Undelivered | None:
        """Try until it is taken, refused for good, or the Trigger's retries are over.

        An event that waits for its next attempt holds no slot: a few that fail do not stop the many that work.

        Returns:
            The event the function replied with, None for none, or why the event was not taken.
        """
        delivery = self.trigger.delivery
        for retries in range(delivery.retry + 1):
            async with self._slots:
                answer = await self._attempt(parcel)
            if answer.is_success:
                return answer.reply
            if not is_retryable(answer.status) or retries == delivery.retry:
                break
            await self._sleep(max(delivery.pause_seconds(retries), answer.retry_after_seconds))
        return Undelivered(
            trigger=self.trigger.name,
            destination=str(self._url),
            status=answer.status,
            detail=answer.detail,
            retryable=is_retryable(answer.status),
            retry_after_seconds=answer.retry_after_seconds,
        )

    async def _attempt(self, parcel: Parcel) -> _Answer:
        try:
            async with self._session.post(
                self._url,
                data=parcel.body,
                headers=parcel.headers,
                timeout=self._timeout,
                allow_redirects=False,
                skip_auto_headers=_SKIPPED_HEADERS,
            ) as response:
                return self._read(response.status, response.headers, await response.read())
        except TimeoutError:
            return _Answer(500, f"dispatch error: no answer within {self._timeout.total:g} s")
        except (aiohttp.ClientError, OSError) as error:
            return _Answer(500, f"dispatch error: {error or type(error).__name__}")

    def _read(self, status: int, headers: Mapping[str, str], body: bytes) -> _Answer:
        """What an HTTP answer means behind a Broker."""
        if not _Answer(status).is_success:
            detail = body[:_DETAIL_CHARACTERS_MAX].decode(errors="replace")
            return _Answer(status, detail, retry_after_seconds=self._asked_pause_seconds(status, headers))
        if "ce-specversion" not in headers and not headers.get("content-type", "").startswith(
            "application/cloudevents"
        ):
            return _Answer(502, _NOT_A_CLOUD_EVENT) if body else _Answer(status)
        try:
            event = parse_event({name.lower(): value for name, value in headers.items()}, body)
            return _Answer(status, reply=event)
        except EventError as error:
            return _Answer(502, f"received a malformed CloudEvent: {error}")

    def _asked_pause_seconds(self, status: int, headers: Mapping[str, str]) -> float:
        """Retry-After of a 429 or 503, as a lower bound of the pause; as a date it is passed over.

        Knative honours it only with the feature delivery-retryafter and a `retryAfterMax`; here it always counts,
        for a function of ours knows best when the API server will take calls again.
        """
        text = headers.get("retry-after", "")
        if status not in {429, 503} or not (text.isascii() and text.isdigit()):
            return 0.0
        limit = self.trigger.delivery.retry_after_max
        return min(float(text), RETRY_AFTER_SECONDS_MAX if limit is None else limit.total_seconds())


def subscribers_of(
    triggers: Sequence[Trigger],
    urls: Mapping[str, str],
    *,
    session: aiohttp.ClientSession,
    sleep: Sleep = asyncio.sleep,
) -> tuple[Subscriber, ...]:
    """The functions behind the Triggers.

    Args:
        triggers: Which events go where.
        urls: Where the functions answer, by the name of their Knative Service.
        session: What `open_session` gives.
        sleep: Waits between two attempts; seconds.

    Raises:
        ManifestError: A Trigger's subscriber has no URL.
    """
    return tuple(Subscriber(one, _url(one, urls), session=session, sleep=sleep) for one in triggers)


def _url(trigger: Trigger, urls: Mapping[str, str]) -> URL:
    if trigger.subscriber not in urls:
        known = ", ".join(sorted(urls)) or "nothing"
        raise ManifestError(
            f"Trigger {trigger.name}: spec.subscriber.ref.name: expected one of {known}, got {trigger.subscriber!r}"
        )
    return URL(urls[trigger.subscriber])
