"""Knative's Broker and Triggers over a network that drops, duplicates, delays and reorders.

The routes, retries and pauses are those of the shipped Trigger manifests.
"""

import asyncio
from functools import cache
from typing import Any

from shared.adapters.events.cloudevents import Event, event_of
from shared.errors import TryLaterError
from shared.messages import Message
from shared.standalone.runner import MANIFESTS
from shared.standalone.triggers import Trigger, read_triggers

_RETRYABLE = (404, 408, 409, 429)


@cache
def triggers() -> tuple[Trigger, ...]:
    return tuple(read_triggers(MANIFESTS))


class SimBroker:
    """Routes events to the process's functions.

    Attributes:
        synchronous: `publish` returns when all functions have answered, as in one process; else once it is accepted.
        dead_letters: Events that no function accepted.
    """

    def __init__(self, world: Any, *, synchronous: bool) -> None:
        self.world = world
        self.synchronous = synchronous
        self.dead_letters = 0
        self._deliveries: dict[asyncio.Task[None], None] = {}

    async def publish(self, message: Message) -> None:
        faults = self.world.faults
        await asyncio.sleep(faults.latency())
        if faults.happens(faults.timer_fault):
            raise TryLaterError("the Broker takes nothing now")
        retryable: list[int] = []
        tasks = self.send(event_of(message, source="simulation"), retryable)
        if self.synchronous:
            for task in tasks:
                await asyncio.wait([task])
            if retryable or any(task.cancelled() for task in tasks):
                raise TryLaterError(f"a function answered {retryable[:1]}")

    def send(self, event: Event, undelivered: list[int] | None = None) -> list[asyncio.Task[None]]:
        """Send an event to each function with a matching trigger."""
        undelivered = [] if undelivered is None else undelivered
        return [
            self._start(trigger, event, undelivered) for trigger in triggers() if trigger.matches(event.attributes())
        ]

    def crash(self) -> None:
        """Forget everything that is under way."""
        for task in self._deliveries:
            task.cancel()

    def _start(self, trigger: Trigger, event: Event, undelivered: list[int]) -> asyncio.Task[None]:
        task = self.world.loop.create_task(self._deliver(trigger, event, undelivered))
        self._deliveries[task] = None
        task.add_done_callback(self._deliveries.pop)
        return task

    async def _deliver(self, trigger: Trigger, event: Event, undelivered: list[int]) -> None:
        faults = self.world.faults
        dropped, doubled, delayed = (
            faults.happens(probability) for probability in (faults.drop, faults.duplicate, faults.delay)
        )
        if doubled:
            self._start(trigger, event, [])
        await asyncio.sleep(faults.rng.uniform(0, 60) if delayed else faults.latency())
        if dropped:
            self.world.note("broker", f"drops {event.type} {event.subject}")
            return
        status, reply = await self._try(trigger, event)
        if status < 300:
            for task in self.send(reply, undelivered) if reply else ():
                await asyncio.wait([task])
            return
        if status >= 500:
            undelivered.append(status)
        self.dead_letters += 1
        self.world.note("broker", f"dead letter: {trigger.name} {event.type} {event.subject} {status}")

    async def _try(self, trigger: Trigger, event: Event) -> tuple[int, Event | None]:
        """The last answer, after all retries that Knative makes."""
        for retries in range(trigger.delivery.retry + 1):
            status, reply, retry_after = await self._attempt(trigger, event)
            if status < 500 and status not in _RETRYABLE:
                break
            if retries < trigger.delivery.retry:
                await asyncio.sleep(max(trigger.delivery.pause_seconds(retries), retry_after))
        return status, reply

    async def _attempt(self, trigger: Trigger, event: Event) -> tuple[int, Event | None, float]:
        timeout = trigger.delivery.timeout
        try:
            async with asyncio.timeout(timeout.total_seconds() if timeout else None):
                return await self.world.process.call(trigger.subscriber, event)
        except TimeoutError:
            return 500, None, 0.0  # the function goes on, and the next attempt runs beside it
