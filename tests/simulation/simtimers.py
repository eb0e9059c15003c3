"""The timer engines of the simulated worlds: the engine in memory, with the faults of a store and of a crash.

In some worlds a timer that is set again fires at its earlier due time too, as on Cloud Tasks. There the timers of one
object become one as its tasks do. Otherwise each event that arrives twice would begin one more chain of retries.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from shared.adapters.timers.stored import sent_at
from shared.errors import TryLaterError, TtlError
from shared.messages import Message, Timer
from shared.ports import Publisher
from tests.fakes import ReadClock
from tests.simulation.memory_timers import MemoryTimers, PendingTimer


class ForgetfulTimers(MemoryTimers):
    """An engine that now and then forgets that it delivered a timer, as a crash in between does, or keeps an older one.

    Args:
        world: Has the clocks, the faults and the store of the timers.
        publisher: Publishes due timers.
        start: Starts a task of the process.
    """

    def __init__(self, world: Any, publisher: Publisher, start: Any) -> None:
        self.world = world
        self.clock = ReadClock(world.clocks.timers)
        super().__init__(world.timer_store, self.clock, publisher, jitter=world.faults.rng.random, start=start)

    def keeps(self, replaced: PendingTimer) -> bool:
        faults = self.world.faults
        is_kept: bool = faults.happens(faults.keeps_replaced)
        if is_kept:
            self.world.note(
                "timers", f"keeps the older timer of {replaced.timer.ref} {replaced.timer.due_at:%H:%M:%S.%f}"
            )
        return is_kept

    def add(self, one: PendingTimer) -> None:
        if self.world.faults.keeps_replaced and one.fire_at > self.clock.now():
            one = replace(one, fire_at=sent_at(one.timer.model_copy(update={"attempts": one.attempts}), one.fire_at))
            same = [other for other in self.store.pending.values() if other.timer.key == one.timer.key]
            if any(other.fire_at == one.fire_at and not self.is_in_flight(other) for other in same):
                return
        super().add(one)

    def delivered(self, one: PendingTimer) -> None:
        if not self.world.faults.happens(self.world.faults.fires_twice):
            super().delivered(one)


class SimTimers(ForgetfulTimers):
    """An engine whose disk is slow, or full, or stores what it does not acknowledge."""

    def __init__(self, world: Any, publisher: Publisher, start: Any) -> None:
        super().__init__(world, NotedPublisher(world, publisher), start)

    async def set(self, timers: Sequence[Timer]) -> None:
        faults = self.world.faults
        unstored, unacknowledged = faults.happens(faults.timer_fault), faults.happens(faults.timer_fault)
        await asyncio.sleep(faults.latency())
        if unstored:
            raise TryLaterError("the disk is full")
        await super().set(timers)
        for timer in timers:
            self.world.note("timers", f"set {timer.ref} {timer.ref.uid} {timer.due_at:%H:%M:%S.%f}")
        if unacknowledged:
            raise TryLaterError("the disk is slow")


class TimerTarget:
    """Hands what fires to the functions of a process.

    Args:
        take: Takes a timer; what it raises makes the engine try again.
    """

    def __init__(self, take: Callable[[Timer], Awaitable[None]]) -> None:
        self._take = take

    async def publish(self, message: Message) -> None:
        assert isinstance(message, Timer)
        await self._take(message)


class NotedPublisher:
    """Tells the checks what fires; an error that no publisher has is a bug."""

    def __init__(self, world: Any, publisher: Publisher) -> None:
        self._world, self._publisher = world, publisher

    async def publish(self, message: Message) -> None:
        assert isinstance(message, Timer)
        self._world.note("timers", f"fires {message.ref} {message.ref.uid}")
        self._world.checks.fired(message)
        try:
            await self._publisher.publish(message)
        except (TtlError, TimeoutError):
            raise
        except Exception as error:
            self._world.checks.fail("bug", repr(error))
            raise
