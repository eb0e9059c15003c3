"""Knative's Broker and Triggers in one process, synchronous as its in-memory channel.

`send` returns once every matching function has answered, and every function that matches what they replied, and so
on; so nothing that was acknowledged is only in memory. What a function would not take after the Trigger's retries is
a dead letter, and does not stop the others.

One thing differs from Knative on purpose. There a message that found its dead letter counts as delivered, so a timer
that fired while the API server was away for long would be forgotten. `publish`, which the timer engine calls, raises
TryLaterError instead, and the message stays with the engine, which tries again later.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from typing import Any

from shared.adapters.events.cloudevents import Event, event_of
from shared.errors import EventError, TryLaterError
from shared.messages import Message
from shared.standalone.dead_letters import DeadLetter, Undelivered, as_dead_letter
from shared.standalone.delivery import HOPS_LEFT, Parcel, Subscriber, pack
from shared.standalone.triggers import matches

HOPS = 255
"""Replies to replies to ... an event: what knativebrokerttl starts from."""


class _Chain:
    """One event that was sent, and all that its replies lead to.

    Tasks side by side instead of calls within calls: 255 hops deep would be too deep a stack.

    Attributes:
        returnable: The event that its sender keeps where it may work later; None: its sender keeps nothing.
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
        subscribers: What `subscribers_of` gives for the Triggers.
        dead_letter: Gets what no function would take.
        source: The CloudEvent source of published messages.
    """

    def __init__(self, subscribers: Sequence[Subscriber], *, dead_letter: DeadLetter, source: str) -> None:
        self._subscribers = subscribers
        self._dead_letter = dead_letter
        self._source = source
        self._closing = False
        self._chains: set[_Chain] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def publish(self, message: Message) -> None:
        """Hand over one of our messages; where that fails for now it is given back instead of buried.

        Raises:
            TryLaterError: A function, or one further down the chain, did not take its event and may do so later.
        """
        event = event_of(message, source=self._source)
        later = [one for one in await self._run(event, returnable=event) if one.retryable]
        if later:
            raise TryLaterError(
                f"{message.type}: {later[0].trigger} answered {later[0].status}: {later[0].detail}",
                retry_after_seconds=max(1.0, *(one.retry_after_seconds for one in later)),
            )

    async def send(self, event: Event) -> tuple[Undelivered, ...]:
        """Deliver an event, and the replies to it, and the replies to those.

        Returns:
            What went to the dead letter; empty where every function took its event, or none wanted it.

        Raises:
            TryLaterError: The broker closes: not every function has answered.
        """
        return await self._run(event, returnable=None)

    async def close(self, *, grace_seconds: float) -> None:
        """Take no more events and wait for those under way; after the grace their senders get TryLaterError."""
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
        """Start a delivery at every Trigger that wants the event; most of what we tell, nobody listens to."""
        attributes = event.attributes()
        wanting = [subscriber for subscriber in self._subscribers if matches(subscriber.trigger, attributes)]
        if not wanting:
            return
        if hops <= 0:
            reason = f"{HOPS_LEFT}: expected at most {HOPS} replies to replies; a function may answer itself"
            self._fail(event, _refused(reason), chain)
            return
        try:
            parcel = pack(event)
        except EventError as error:
            self._fail(event, _refused(str(error)), chain)
            return
        for subscriber in wanting:
            chain.start(self._deliver(subscriber, parcel, hops, chain))

    async def _deliver(self, subscriber: Subscriber, parcel: Parcel, hops: int, chain: _Chain) -> None:
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
    """Counted down at every entry into a Broker, this one included; anything but a number starts anew."""
    try:
        return int(event.extensions[HOPS_LEFT]) - 1
    except (KeyError, ValueError):
        return HOPS


def _refused(reason: str) -> Undelivered:
    """The answer of the Broker's ingress itself."""
    return Undelivered(trigger="", destination="broker", status=400, detail=reason, retryable=False)
