"""Deliver the events of one Trigger to a function of this process, with the retries and pauses of Knative.

A delivery calls the function with the headers and the body of the request that Knative would send, and reads its answer
as Knative would. As over HTTP, a function goes on if its sender is cancelled, or waits no longer for the answer.
An event that a function did not accept is a dead letter.
"""

import asyncio
import base64
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

from shared.adapters.events.answers import FunctionAnswer, Respond
from shared.adapters.events.cloudevents import Event, parse_event, to_http
from shared.errors import EventError
from shared.ports import Telemetry
from shared.standalone.triggers import ManifestError, Trigger

DELIVERIES_MAX = 128
"""The limit of attempts in flight at one Trigger: above that of the timer engine. Each Trigger has its own limit."""

RETRY_AFTER_SECONDS_MAX = 60.0
"""The limit of Retry-After if the Trigger sets no `retryAfterMax`: a wrong header must not delay an event for days."""

HOPS_LEFT = "knativebrokerttl"
"""The extension that ends reply loops. Only Brokers read and set it; it is not sent to a function."""

Sleep = Callable[[float], Awaitable[None]]

_ATTEMPT_SECONDS_MAX = 900.0  # if the Trigger sets no `timeout`: the limit of Knative's in-memory channel
_DETAIL_CHARACTERS_MAX = 1024
_ERROR_DATA_CHARACTERS_MAX = 1024
_RETRYABLE = {HTTPStatus.NOT_FOUND, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS}
_NOT_A_CLOUD_EVENT = "received a non-empty response not recognized as CloudEvent"

_log = logging.getLogger("ttl")


@dataclass(frozen=True, slots=True)
class Undelivered:
    """The result of a delivery that failed at one Trigger.

    Attributes:
        trigger: The name of the Trigger; empty if the broker itself rejected the event.
        destination: The function, or `broker`.
        status: The status of the last answer; 500 if there was none, as with Knative.
        detail: The body of the last answer, or why there was none.
        retryable: Whether a later delivery may succeed; the retries of the Trigger are exhausted.
        retry_after_seconds: The Retry-After of the last answer; 0 if it had none.
    """

    trigger: str
    destination: str
    status: int
    detail: str
    retryable: bool
    retry_after_seconds: float = 0.0


class DeadLetterSink(Protocol):
    """The receiver of dead letters."""

    def report(self, event: Event, undelivered: Undelivered) -> None:
        """Report an event, which has the extensions knativeerrordest, knativeerrorcode and knativeerrordata."""
        ...


@dataclass(frozen=True, slots=True)
class ReportedDeadLetters:
    """Reports each dead letter as a problem."""

    telemetry: Telemetry

    def report(self, event: Event, undelivered: Undelivered) -> None:
        """Report a dead letter."""
        self.telemetry.dead_letter(
            event.type,
            undelivered.status,
            trigger=undelivered.trigger,
            id=event.id,
            detail=undelivered.detail,
        )


def as_dead_letter(event: Event, undelivered: Undelivered) -> Event:
    """Make the event that Knative sends to a dead letter sink; the error data is base64 and cut off."""
    data = base64.b64encode(undelivered.detail.encode()).decode()
    errors = {
        "knativeerrordest": undelivered.destination,
        "knativeerrorcode": str(undelivered.status),
        "knativeerrordata": data[:_ERROR_DATA_CHARACTERS_MAX],
    }
    return dataclasses.replace(event, extensions={**event.extensions, **errors})


def is_retryable(status: int) -> bool:
    """Return whether Knative retries after this status: every 5xx, and four of the 4xx."""
    return status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _RETRYABLE


@dataclass(frozen=True, slots=True)
class Parcel:
    """An event, prepared once for all Triggers: its attributes, headers and body."""

    event: Event
    attributes: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


def pack(event: Event) -> Parcel:
    """Prepare an event for delivery.

    Raises:
        EventError: An attribute cannot be sent as a header.
    """
    if HOPS_LEFT in event.extensions:
        others = {name: value for name, value in event.extensions.items() if name != HOPS_LEFT}
        event = dataclasses.replace(event, extensions=others)
    for name in event.extensions:
        if not (name.isascii() and name.isalnum()):
            raise EventError(f"{name!r}: expected an attribute name of letters and digits")
    headers, body = to_http(event)
    # As Knative does: the header says that an event in the answer will be published.
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
    """Delivers events to the function of one Trigger.

    Args:
        trigger: The Trigger.
        respond: The function.
        sleep: Waits the given seconds between two attempts.
    """

    def __init__(self, trigger: Trigger, respond: Respond, *, sleep: Sleep) -> None:
        self.trigger = trigger
        self._respond = respond
        self._sleep = sleep
        self._slots = asyncio.Semaphore(DELIVERIES_MAX)
        self._calls: set[asyncio.Task[FunctionAnswer]] = set()
        timeout = trigger.delivery.timeout
        self._seconds_max = timeout.total_seconds() if timeout else _ATTEMPT_SECONDS_MAX

    async def deliver(self, parcel: Parcel) -> Event | Undelivered | None:
        """Deliver an event: retry until it is accepted, permanently rejected, or the Trigger's retries are exhausted.

        An event that waits for its next attempt holds no slot, so failing events do not delay the others.

        Returns:
            The event that the function replied with, None for no reply, or why the event was not accepted.
        """
        delivery, answer = self.trigger.delivery, _Answer(500)
        try:
            for retries in range(delivery.retry + 1):
                async with self._slots:
                    answer = await self._attempt(parcel)
                if answer.is_success:
                    return answer.reply
                if not is_retryable(answer.status) or retries == delivery.retry:
                    break
                await self._sleep(max(delivery.pause_seconds(retries), answer.retry_after_seconds))
        except asyncio.CancelledError as error:
            if answer.detail:  # for a sender that waits for a limited time, and reports why that was too short
                error.add_note(f"{self.trigger.name} answered {answer.status}: {answer.detail.strip()}")
            raise
        return Undelivered(
            trigger=self.trigger.name,
            destination=f"functions/{self.trigger.subscriber}",
            status=answer.status,
            detail=answer.detail,
            retryable=is_retryable(answer.status),
            retry_after_seconds=answer.retry_after_seconds,
        )

    async def finish(self) -> None:
        """Wait for the calls that are in progress, and for those whose senders do not wait any more."""
        if self._calls:
            await asyncio.wait(self._calls)

    async def cancel(self) -> None:
        """Cancel the calls that are in progress."""
        for call in self._calls:
            call.cancel()
        await self.finish()

    async def _attempt(self, parcel: Parcel) -> _Answer:
        # As a task: the function goes on if the sender is cancelled or the time is over, and may then have deleted.
        call = asyncio.create_task(self._call(parcel))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        try:
            async with asyncio.timeout(self._seconds_max):
                answer = await asyncio.shield(call)
        except TimeoutError:
            return _Answer(500, f"dispatch error: no answer within {self._seconds_max:g} s")
        return self._read(answer.status, answer.headers, answer.body)

    async def _call(self, parcel: Parcel) -> FunctionAnswer:
        task = asyncio.current_task()
        try:
            return await self._respond(parcel.headers, parcel.body)
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and task and task.cancelling():
                raise  # by `cancel`; any other is a bug of the function, and must not cancel the sender
            _log.exception("function failed", extra={"fields": {"function": self.trigger.subscriber}})
            return FunctionAnswer(500, body=b"Internal Server Error")

    def _read(self, status: int, headers: Mapping[str, str], body: bytes) -> _Answer:
        """Interpret an HTTP answer as a Broker does."""
        if not _Answer(status).is_success:
            detail = body[:_DETAIL_CHARACTERS_MAX].decode(errors="replace")
            return _Answer(status, detail, retry_after_seconds=self._retry_after_seconds(status, headers))
        if "ce-specversion" not in headers and not headers.get("content-type", "").startswith(
            "application/cloudevents"
        ):
            return _Answer(502, _NOT_A_CLOUD_EVENT) if body else _Answer(status)
        try:
            return _Answer(status, reply=parse_event(headers, body))
        except EventError as error:
            return _Answer(502, f"received a malformed CloudEvent: {error}")

    def _retry_after_seconds(self, status: int, headers: Mapping[str, str]) -> float:
        """Return the Retry-After of a 429 or 503, a lower bound of the pause; a Retry-After that is a date is ignored.

        Knative uses the header only with the feature delivery-retryafter and a `retryAfterMax`. Here the header always
        counts, because our function sets it to when the API server accepts requests again.
        """
        text = headers.get("retry-after", "")
        if status not in {429, 503} or not (text.isascii() and text.isdigit()):
            return 0.0
        limit = self.trigger.delivery.retry_after_max
        return min(float(text), RETRY_AFTER_SECONDS_MAX if limit is None else limit.total_seconds())


def subscribers_of(
    triggers: Sequence[Trigger], functions: Mapping[str, Respond], *, sleep: Sleep = asyncio.sleep
) -> tuple[Subscriber, ...]:
    """Make the subscribers of the Triggers.

    Args:
        triggers: The Triggers.
        functions: The functions, by the names of their Knative Services.
        sleep: Waits the given seconds between two attempts.

    Raises:
        ManifestError: A Trigger's subscriber is no function.
    """
    return tuple(Subscriber(one, _function(one, functions), sleep=sleep) for one in triggers)


def _function(trigger: Trigger, functions: Mapping[str, Respond]) -> Respond:
    if trigger.subscriber not in functions:
        known = ", ".join(sorted(functions)) or "nothing"
        raise ManifestError(
            f"Trigger {trigger.name}: spec.subscriber.ref.name: expected one of {known}, got {trigger.subscriber!r}"
        )
    return functions[trigger.subscriber]
