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
from collections.abc import Sequence

from shared.adapters.events.cloudevents import Event, event_of
from shared.errors import EventError, TryLaterError
from shared.messages import Message
from shared.standalone.delivery import HOPS_LEFT, DeadLetterSink, Parcel, Subscriber, Undelivered, as_dead_letter, pack

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
        dead_letter: Receives each event that a function did not accept.
        source: The CloudEvent source of published messages.
    """

    def __init__(self, *, dead_letter: DeadLetterSink, source: str) -> None:
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
