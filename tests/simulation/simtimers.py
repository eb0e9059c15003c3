"""The timer engine: durable across crashes, at least once, by its own clock."""

import asyncio
from collections.abc import Sequence
from typing import Any

from shared.adapters.timers.deliveries import LIMITS
from shared.core.timing import backoff_seconds
from shared.errors import TryLaterError
from shared.messages import Timer

TimerKey = tuple[str, str]


class TimerFile:
    """What is on disk, and so survives."""

    def __init__(self) -> None:
        self.pending: dict[TimerKey, Timer] = {}


class SimTimers:
    """The engine of one process over the file that all of them share."""

    def __init__(self, world: Any, file: TimerFile) -> None:
        self.world = world
        self.file = file
        self._in_flight: dict[TimerKey, Timer] = {}
        self._not_before: dict[TimerKey, tuple[Timer, float, int]] = {}
        self._changed = asyncio.Event()

    async def set(self, timers: Sequence[Timer]) -> None:
        faults = self.world.faults
        unstored, unacknowledged = faults.happens(faults.timer_fault), faults.happens(faults.timer_fault)
        await asyncio.sleep(faults.latency())
        if unstored:
            raise TryLaterError("the disk is full")
        for timer in timers:
            self.file.pending[timer.ref.uid, timer.purpose] = timer
            if timer.attempts:
                pause = backoff_seconds(timer.attempts - 1, jitter=1.0)
                self._not_before[timer.ref.uid, timer.purpose] = (timer, self.world.loop.time() + pause, timer.attempts)
            self.world.note("timers", f"set {timer.ref} {timer.ref.uid} {timer.due_at:%H:%M:%S.%f}")
        self._changed.set()
        if unacknowledged:
            raise TryLaterError("the disk is slow")

    def look(self) -> None:
        """The clock was stepped."""
        self._changed.set()

    async def run(self) -> None:
        """Fire what is due, until the process dies."""
        while True:
            self._changed.clear()
            pause = self._fire()
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _fire(self) -> float | None:
        """Start what is due; returns the seconds until the next one."""
        pauses = []
        for key, timer in self.file.pending.items():
            if key in self._in_flight:
                continue
            wait = (timer.due_at - self.world.clocks.timers()).total_seconds()
            postponed, until, _ = self._not_before.get(key, (None, 0.0, 0))
            if postponed is timer:
                wait = max(wait, until - self.world.loop.time())
            if wait > 0:
                pauses.append(wait)
            else:
                self._in_flight[key] = timer
                self.world.process.start(self._deliver(key, timer))
        return min(pauses, default=None)

    async def _deliver(self, key: TimerKey, timer: Timer) -> None:
        faults = self.world.faults
        forgotten = faults.happens(faults.fires_twice)
        self.world.note("timers", f"fires {timer.ref} {timer.ref.uid}")
        self.world.checks.fired(timer)
        try:
            async with asyncio.timeout(LIMITS.timeout_of(timer.purpose)):
                await self.world.process.publisher.publish(timer)
        except (TryLaterError, TimeoutError) as error:
            refused = error if isinstance(error, TryLaterError) else TryLaterError("too slow")
            _, _, attempts = self._not_before.get(key, (None, 0.0, 0))
            pause = LIMITS.retry_seconds(attempts, refused, faults.rng.random())
            self._not_before[key] = (timer, self.world.loop.time() + pause, attempts + 1)
        else:
            if self.file.pending.get(key) is timer and not forgotten:
                del self.file.pending[key]
            self._not_before.pop(key, None)
        self._in_flight.pop(key)
        self._changed.set()
