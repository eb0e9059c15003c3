"""A timer engine in memory, under the contract of all engines: for simulations, where a real store has no place.

Its store outlives the engine as a file outlives a process. All it does follows from the clock, the store and the
publisher, so a simulation of one seed is the same each time.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from operator import attrgetter
from typing import Any

from shared.adapters.timers.delivery import LIMITS, EngineLimits, Permits, share_of
from shared.core.values.timing import backoff_seconds
from shared.errors import TryLaterError
from shared.messages import ATTEMPTS_COUNTED_MAX, Timer, TimerKey
from shared.ports import EVERY_TIMER, Clock, Publisher, TimerFilter, TimerPage
from shared.ports.process import TIMERS_OF_ONE_PAGE

CLOCK_STEP = timedelta(seconds=1)
"""A clock that was set back by more has made the planned retries too late."""


@dataclass(frozen=True, slots=True)
class PendingTimer:
    """A stored timer.

    Attributes:
        row: Its position in the pages.
        timer: The timer as it was set.
        fire_at: Its next attempt.
        attempts: The attempts that it was set with, and the failed deliveries since.
    """

    row: int
    timer: Timer
    fire_at: datetime
    attempts: int


@dataclass
class TimerStore:
    """What survives a process.

    Attributes:
        pending: The timers, by row.
        newest: The row of the timer that was set last, by its key.
        rows: The rows of the next timers.
    """

    pending: dict[int, PendingTimer] = field(default_factory=dict)
    newest: dict[TimerKey, int] = field(default_factory=dict)
    rows: "count[int]" = field(default_factory=lambda: count(1))


class MemoryTimers:
    """Timers in a store that one engine at a time uses.

    Args:
        store: The store.
        clock: The clock of the engine.
        publisher: Publishes due timers. If it raises any error, the timer is kept and retried.
        limits: The limits of the engine.
        jitter: Returns a number from 0 to 1, for the back-off.
        start: Starts a task; a simulated process ends its tasks when it is killed.
    """

    def __init__(
        self,
        store: TimerStore,
        clock: Clock,
        publisher: Publisher,
        *,
        limits: EngineLimits = LIMITS,
        jitter: Callable[[], float] = lambda: 0.0,
        start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]] = asyncio.create_task,
    ) -> None:
        self.store, self._clock, self._publisher, self._limits = store, clock, publisher, limits
        self._jitter, self._start = jitter, start
        self._permits: dict[str, Permits] = {}
        self._in_flight: dict[int, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._seen_at: datetime | None = None
        self._closing = False

    async def set(self, timers: Sequence[Timer]) -> None:
        """See `Timers.set`."""
        self._check_open()
        for timer in timers:
            fire_at = timer.due_at
            if timer.attempts:
                pause = timedelta(seconds=backoff_seconds(timer.attempts - 1, jitter=1.0))
                fire_at = max(fire_at, self._clock.now() + pause)
            replaced = self.store.pending.get(self.store.newest.get(timer.key, 0))
            if replaced and not self.keeps(replaced):
                del self.store.pending[replaced.row]
            row = self.store.newest[timer.key] = next(self.store.rows)
            self.add(PendingTimer(row, timer, fire_at, timer.attempts))
        self._changed.set()

    def keeps(self, _replaced: PendingTimer) -> bool:
        """Return whether a timer that is set again fires at its earlier due time too."""
        return False

    def add(self, one: PendingTimer) -> None:
        """Store a timer that was set, or whose delivery failed."""
        self.store.pending[one.row] = one

    def is_in_flight(self, one: PendingTimer) -> bool:
        """Return whether a timer is being delivered."""
        return one.row in self._in_flight

    async def pending(self) -> int:
        """See `CountedTimers.pending`."""
        return len(self.store.pending)

    async def next_due(self) -> datetime | None:
        """See `CountedTimers.next_due`."""
        return min((one.fire_at for one in self.store.pending.values()), default=None)

    async def page(
        self, after: str = "", *, limit: int = TIMERS_OF_ONE_PAGE, wanted: TimerFilter = EVERY_TIMER
    ) -> TimerPage:
        """See `PendingTimers.page`."""
        if after and not after.isdecimal():
            raise ValueError(f"expected a position in the store, got {after!r}")
        rows = sorted(self.store.pending.values(), key=attrgetter("row"))
        read = [one for one in rows if one.row > int(after or 0)][:limit]
        timers = tuple(filter(wanted.matches, map(_counted, read)))
        return TimerPage(timers, str(read[-1].row) if len(read) == limit else "")

    async def run(self) -> None:
        """See `DurableTimers.run`."""
        try:
            while True:
                self._changed.clear()
                self._watch_clock()
                pause = self._start_due()
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._changed.wait()
        finally:
            await self.close()

    async def close(self) -> None:
        """See `DurableTimers.close`; the next engine delivers what takes too long."""
        self._closing = True
        if self._in_flight:
            _, late = await asyncio.wait(self._in_flight.values(), timeout=self._limits.grace_seconds)
            for delivery in late:
                delivery.cancel()

    def _check_open(self) -> None:
        if self._closing:
            raise TryLaterError("timers cannot be stored: the process is shutting down")

    def _watch_clock(self) -> None:
        """Retry at once after a start, and after the clock was set back: the planned retries would be too late."""
        now, seen_at = self._clock.now(), self._seen_at
        self._seen_at = now
        if seen_at is not None and now > seen_at - CLOCK_STEP:
            return
        for row, one in self.store.pending.items():
            if one.attempts and one.fire_at > now and row not in self._in_flight:
                self.store.pending[row] = replace(one, fire_at=one.timer.due_at)

    def _start_due(self) -> float:
        """Start what is due and has a permit, the oldest first; return the seconds until the next look."""
        now, waiting = self._clock.now(), []
        for row, one in self.store.pending.items():
            if row not in self._in_flight:
                waiting.append((one.fire_at, row, one))
        waiting.sort()
        pause = self._limits.rest_seconds
        for fire_at, _, one in waiting:
            if fire_at > now:
                return min(pause, (fire_at - now).total_seconds())
            permits = self._permits.setdefault(one.timer.purpose, Permits(self._limits.in_flight))
            if permits.may_take(share_of(one.timer.ref)):
                permits.take(share_of(one.timer.ref))
                self._in_flight[one.row] = self._start(self._deliver(one, permits))
        return pause

    async def _deliver(self, one: PendingTimer, permits: Permits) -> None:
        failed = True
        try:
            async with asyncio.timeout(self._limits.timeout_of(one.timer.purpose)):
                await self._publisher.publish(_counted(one))
        except Exception as error:  # noqa: BLE001 - no error of a publisher may lose a timer
            self._postpone(one, error)
        else:
            failed = False
            self.delivered(one)
        finally:
            permits.give(share_of(one.timer.ref), failed=failed)
            del self._in_flight[one.row]
            self._changed.set()

    def delivered(self, one: PendingTimer) -> None:
        """Delete a delivered timer; one that was replaced during the delivery is gone already."""
        self.store.pending.pop(one.row, None)

    def _postpone(self, one: PendingTimer, error: Exception) -> None:
        if self.store.pending.pop(one.row, None) is None:
            return
        pause = timedelta(seconds=self._limits.retry_seconds(one.attempts, error, self._jitter()))
        fire_at = max(one.timer.due_at, self._clock.now() + pause)
        self.add(replace(one, fire_at=fire_at, attempts=one.attempts + 1))


def _counted(one: PendingTimer) -> Timer:
    return one.timer.model_copy(update={"attempts": min(one.attempts, ATTEMPTS_COUNTED_MAX)})
