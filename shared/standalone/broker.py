"""Route events by Triggers inside one process, as Knative's Broker with the in-memory channel does.

`send` returns after every matching function has answered, and every function that matches a reply, and so on. So no
acknowledged event exists only in memory. If a function does not accept an event within the Trigger's retries, the
event becomes a dead letter; other events are not affected.

One difference from Knative is intended. With Knative, a message that became a dead letter counts as delivered. A timer
that fired during a long outage of the API server would then be lost. Here `publish`, which the timer engine calls,
raises TryLaterError; the engine keeps the timer and retries later.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from typing import Any

from shared.adapters.events.cloudevents import Event, event_of
from shared.errors import EventError, TryLaterError
from shared.messages import Message
from shared.standalone.dead_letters import DeadLetterSink, Undelivered, as_dead_letter
from shared.standalone.delivery import HOPS_LEFT, Parcel, Subscriber, pack

HOPS = 255
"""The longest chain of replies to an event: the first value of knativebrokerttl."""


class _Chain:
    """The deliveries of one event and of all replies that follow from it.

    Each delivery is a task, because nested calls over 255 hops would exceed the stack.

    Attributes:
        returnable: The event that the sender keeps and sends again after a transient error; None for no such event.
    """

    def __init__(self, returnable: Event | None) -> None:
        self.returnable = returnable
        self.undelivered: list[Undelivered] = []
        self.aborted = False
        self.group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, step: Coroutine[Any, Any, None]) -> None:
        task = self.group.create_task(step)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def abort(self) -> None:
        self.aborted = True
        for task in self._tasks:
            task.cancel()


class LocalBroker:
    """Routes events to functions by their Triggers; the Publisher of a process without Knative.

    Args:
        subscribers: The subscribers of the Triggers, see `subscribers_of`.
        dead_letter: Receives each event that a function did not accept.
        source: The CloudEvent source of published messages.
    """

    def __init__(self, subscribers: Sequence[Subscriber], *, dead_letter: DeadLetterSink, source: str) -> None:
        self._subscribers = subscribers
        self._dead_letter = dead_letter
        self._source = source
        self._closing = False
        self._chains: set[_Chain] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def publish(self, message: Message) -> None:
        """Publish a message; after a transient error it does not become a dead letter, but stays with the sender.

        Raises:
            TryLaterError: A function of the chain did not accept its event, and may accept it later.
        """
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
        """Accept no more events and wait for those in flight; after the grace their senders get TryLaterError."""
        self._closing = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                await self._idle.wait()
        for chain in self._chains:
            chain.abort()
        await self._idle.wait()

    async def _run(self, event: Event, *, returnable: Event | None) -> tuple[Undelivered, ...]:
        if self._closing:
            raise TryLaterError("the broker is closing")
        chain = _Chain(returnable)
        self._chains.add(chain)
        self._idle.clear()
        try:
            async with chain.group:
                self._route(event, _hops_left(event), chain)
        finally:
            self._chains.discard(chain)
            if not self._chains:
                self._idle.set()
        if chain.aborted:
            raise TryLaterError("the broker closed before every function had answered")
        return tuple(chain.undelivered)

    def _route(self, event: Event, hops: int, chain: _Chain) -> None:
        """Start a delivery for every Trigger that matches the event; most events have no Trigger."""
        attributes = event.attributes()
        matching = [subscriber for subscriber in self._subscribers if subscriber.trigger.matches(attributes)]
        if not matching:
            return
        if hops <= 0:
            reason = f"{HOPS_LEFT}: expected at most {HOPS} replies in a chain; a function may answer itself"
            self._fail(event, _refused(reason), chain)
            return
        try:
            parcel = pack(event)
        except EventError as error:
            self._fail(event, _refused(str(error)), chain)
            return
        for subscriber in matching:
            chain.start(self._deliver(subscriber, parcel, hops=hops, chain=chain))

    async def _deliver(self, subscriber: Subscriber, parcel: Parcel, *, hops: int, chain: _Chain) -> None:
        result = await subscriber.deliver(parcel)
        if isinstance(result, Undelivered):
            self._fail(parcel.event, result, chain)
        elif result is not None:
            self._route(result, hops - 1, chain)

    def _fail(self, event: Event, undelivered: Undelivered, chain: _Chain) -> None:
        chain.undelivered.append(undelivered)
        if not (undelivered.retryable and event is chain.returnable):
            self._dead_letter.report(as_dead_letter(event, undelivered), undelivered)


def _hops_left(event: Event) -> int:
    """Return the hops that an event has left: each Broker counts down by one; a value that is no number is ignored."""
    try:
        return int(event.extensions[HOPS_LEFT]) - 1
    except (KeyError, ValueError):
        return HOPS


def _refused(reason: str) -> Undelivered:
    """Make the result of an event that the broker itself rejects."""
    return Undelivered(trigger="", destination="broker", status=400, detail=reason, retryable=False)
