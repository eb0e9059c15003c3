"""Route events by Triggers inside one process, as Knative's Broker with the in-memory channel does.

`send` returns after every matching function has answered, and every function that matches a reply, and so on. So no
acknowledged event exists only in memory. If a function does not accept an event within the Trigger's retries, the
event becomes a dead letter; other events are not affected.

A delivery calls the function with the headers and the body of the request that Knative would send, and reads its answer
as Knative would. As over HTTP, a function goes on if its sender is cancelled, or waits no longer for the answer.

One difference from Knative is intended. With Knative, a message that became a dead letter counts as delivered. A timer
that fired during a long outage of the API server would then be lost. Here `publish`, which the timer engine calls,
raises TryLaterError; the engine keeps the timer and retries later.
"""

import asyncio
import base64
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus

from shared.adapters.events.answers import FunctionAnswer, Respond
from shared.adapters.events.cloudevents import Event, event_of, parse_event, to_http
from shared.errors import EventError, TryLaterError
from shared.messages import Message
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


def report_dead_letter(telemetry: Telemetry, event: Event, undelivered: Undelivered) -> None:
    """Report a dead letter as a problem."""
    detail = undelivered.detail
    telemetry.dead_letter(event.type, undelivered.status, trigger=undelivered.trigger, id=event.id, detail=detail)


def as_dead_letter(event: Event, undelivered: Undelivered) -> Event:
    """Make the event that Knative sends to a dead letter sink; the error data is base64 and cut off."""
    data = base64.b64encode(undelivered.detail.encode()).decode()
    errors = {
        "knativeerrordest": undelivered.destination,
        "knativeerrorcode": str(undelivered.status),
        "knativeerrordata": data[:_ERROR_DATA_CHARACTERS_MAX],
    }
    return replace(event, extensions={**event.extensions, **errors})


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
        event = replace(event, extensions=others)
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
        is_structured = headers.get("content-type", "").startswith("application/cloudevents")
        if "ce-specversion" not in headers and not is_structured:
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


HOPS = 255
"""The longest chain of replies to an event: the first value of knativebrokerttl."""


class _Chain:
    """The deliveries of one event and of all replies that follow from it.

    Attributes:
        returnable: The event that the sender keeps and sends again after a transient error; None for no such event.
        limit: Entered while the sender waits; it never expires by itself.
    """

    def __init__(self, returnable: Event | None) -> None:
        self.returnable = returnable
        self.undelivered: list[Undelivered] = []
        self.limit = asyncio.timeout(None)

    def abort(self) -> None:
        """Let the sender wait no longer."""
        self.limit.reschedule(asyncio.get_running_loop().time())


class LocalBroker:
    """Routes events to functions by their Triggers; the Publisher of a process without Knative.

    Args:
        dead_letter: Receives each event that a function did not accept, with the extensions knativeerrordest,
            knativeerrorcode and knativeerrordata.
        source: The CloudEvent source of published messages.
    """

    def __init__(self, *, dead_letter: Callable[[Event, Undelivered], None], source: str) -> None:
        self._subscribers: Sequence[Subscriber] = ()
        self._of_type: dict[str, list[Subscriber]] = {}
        self._dead_letter = dead_letter
        self._source = source
        self._closing = False
        self._chains: set[_Chain] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    def subscribe(self, subscribers: Sequence[Subscriber]) -> None:
        """Deliver to these subscribers from now on. Their functions may publish to this broker."""
        self._subscribers, self._of_type = subscribers, {}

    async def publish(self, message: Message) -> None:
        """Publish a message; after a transient error it does not become a dead letter, but stays with the sender.

        Raises:
            TryLaterError: A function of the chain did not accept its event, and may accept it later.
        """
        if not self._closing and not self._subscribers_of(message.type):  # such as `object.deleted`: make no event
            return
        event = event_of(message, source=self._source)
        later = [one for one in await self._run(event, returnable=event) if one.retryable]
        if later:
            raise TryLaterError(
                f"{message.type}: {later[0].trigger} answered {later[0].status}: {later[0].detail}",
                retry_after_seconds=max(1.0, *(one.retry_after_seconds for one in later)),
            )

    async def send(self, event: Event) -> tuple[Undelivered, ...]:
        """Deliver an event, the replies to it, and the replies to those.

        Returns:
            The dead letters; empty if every matching function accepted its event.

        Raises:
            TryLaterError: The broker closed before every function had answered.
        """
        return await self._run(event, returnable=None)

    async def close(self, *, grace_seconds: float) -> None:
        """Accept no more events, and wait for those in flight and for all functions that are called.

        After the grace, the senders get TryLaterError, and the functions are cancelled.
        """
        self._closing = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                await self._idle.wait()
                for subscriber in self._subscribers:
                    await subscriber.finish()
        for chain in self._chains:
            chain.abort()
        await self._idle.wait()
        for subscriber in self._subscribers:
            await subscriber.cancel()

    async def _run(self, event: Event, *, returnable: Event | None) -> tuple[Undelivered, ...]:
        if self._closing:
            raise TryLaterError("the broker is closing")
        matching = self._matching(event)
        if not matching:
            return ()
        chain = _Chain(returnable)
        self._chains.add(chain)
        self._idle.clear()
        try:
            async with chain.limit:
                await self._deliver(event, matching, _hops_left(event), chain)
        except TimeoutError:
            raise TryLaterError("the broker closed before every function had answered") from None
        finally:
            self._chains.discard(chain)
            if not self._chains:
                self._idle.set()
        return tuple(chain.undelivered)

    def _matching(self, event: Event) -> list[Subscriber]:
        subscribers = self._subscribers_of(event.type)
        attributes = event.attributes() if subscribers else {}
        return [subscriber for subscriber in subscribers if subscriber.trigger.matches(attributes)]

    def _subscribers_of(self, event_type: str) -> list[Subscriber]:
        """Return the subscribers whose Triggers can match events of a type; worked out once for each type."""
        if event_type not in self._of_type:
            found = [one for one in self._subscribers if one.trigger.may_match(event_type)]
            self._of_type[event_type] = found
        return self._of_type[event_type]

    async def _deliver(self, event: Event, matching: Sequence[Subscriber], hops: int, chain: _Chain) -> None:
        """Deliver an event to its subscribers, and the replies to theirs; a loop, since calls do not nest 255 deep."""
        while matching:
            parcel = self._pack(event, hops, chain)
            if parcel is None:
                return
            if len(matching) > 1:
                async with asyncio.TaskGroup() as group:
                    for subscriber in matching:
                        group.create_task(self._deliver_and_follow(subscriber, parcel, hops, chain))
                return
            reply = await self._deliver_one(matching[0], parcel, chain)
            if reply is None:
                return
            event, matching, hops = reply, self._matching(reply), hops - 1

    def _pack(self, event: Event, hops: int, chain: _Chain) -> Parcel | None:
        if hops <= 0:
            reason = f"{HOPS_LEFT}: expected at most {HOPS} replies in a chain; a function may answer itself"
            self._fail(event, _refused(reason), chain)
            return None
        try:
            return pack(event)
        except EventError as error:
            self._fail(event, _refused(str(error)), chain)
            return None

    async def _deliver_and_follow(self, subscriber: Subscriber, parcel: Parcel, hops: int, chain: _Chain) -> None:
        reply = await self._deliver_one(subscriber, parcel, chain)
        if reply is not None:
            await self._deliver(reply, self._matching(reply), hops - 1, chain)

    async def _deliver_one(self, subscriber: Subscriber, parcel: Parcel, chain: _Chain) -> Event | None:
        """Deliver an event to one subscriber; returns the reply."""
        result = await subscriber.deliver(parcel)
        if isinstance(result, Undelivered):
            self._fail(parcel.event, result, chain)
            return None
        return result

    def _fail(self, event: Event, undelivered: Undelivered, chain: _Chain) -> None:
        chain.undelivered.append(undelivered)
        if not (undelivered.retryable and event is chain.returnable):
            self._dead_letter(as_dead_letter(event, undelivered), undelivered)


def _hops_left(event: Event) -> int:
    """Return the hops that an event has left: each Broker counts down by one; a value that is no number is ignored."""
    try:
        return int(event.extensions[HOPS_LEFT]) - 1
    except (KeyError, ValueError):
        return HOPS


def _refused(reason: str) -> Undelivered:
    """Make the result of an event that the broker itself rejects."""
    return Undelivered(trigger="", destination="broker", status=400, detail=reason, retryable=False)
