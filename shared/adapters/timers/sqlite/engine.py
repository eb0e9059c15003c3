"""The embedded timer engine: delayed CloudEvents in one SQLite file, published by the process that owns the file.

Each timer fires at least once after it is due, and never before; this survives kill -9, clock steps and full disks:

- `set` returns once its transaction is on disk. A timer is deleted after its delivery, so a crash between the two
  delivers it again.
- Which timers are in flight is kept in memory only. After a crash none is, and all overdue timers are delivered.
- A row is deleted or postponed only in the generation that was delivered, so a timer that was set again stays.
- The wall clock is read at least every half second, and before each delivery.
"""

import asyncio
import logging
import random
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from shared.adapters.timers.limits import LIMITS, EngineLimits
from shared.adapters.timers.sqlite import store
from shared.adapters.timers.sqlite.deliveries import Deliveries
from shared.adapters.timers.sqlite.file import Room, Shrinking, TimerFile
from shared.adapters.timers.sqlite.group_commit import GroupCommit
from shared.adapters.timers.sqlite.lane import Lane
from shared.adapters.timers.sqlite.store import (
    FOREVER_US,
    LAST_RETRY,
    SECOND_US,
    Position,
    Row,
    from_us,
    page_of,
    parse_position,
    read_page,
    retry_now,
    row_of,
    to_us,
)
from shared.errors import TryLaterError, TtlError
from shared.messages import Timer
from shared.ports import EVERY_TIMER, Clock, Publisher, TimerFilter, TimerPage
from shared.ports.timers import TIMERS_OF_ONE_PAGE

_log = logging.getLogger("ttl")
_ResultT = TypeVar("_ResultT")

FULL_RETRY_SECONDS = 10.0
"""Retry-After if the file is full: due timers may have fired by then, or an operator may have freed space."""


class SqliteTimers:
    """Timers in a file that only this process uses; call all methods in one event loop.

    Args:
        path: The file; created if it does not exist. Not on NFS, where WAL does not work.
        clock: The wall clock.
        publisher: Publishes due timers. If it raises any error, the timer is kept and retried.
        limits: Limits other than the defaults, for tests.
        room: Limits of the file's size; those for its volume if None.
        jitter: Returns a random number from 0 to 1, so that timers that failed together are not retried together.

    Raises:
        TtlError: Another process owns the file, or it is not a timer file that this version can read.
    """

    def __init__(  # noqa: PLR0913 - most are for tests
        self,
        path: Path,
        clock: Clock,
        publisher: Publisher,
        *,
        limits: EngineLimits = LIMITS,
        room: Room | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._file = TimerFile(path, room)
        self._commits = GroupCommit(self._file.writer, self._file.health, Shrinking().step)
        self._reading = ThreadPoolExecutor(1, "timers-read")
        self._lanes = {purpose: Lane(purpose, limits.in_flight) for purpose in self._file.purposes}
        self._wake = asyncio.Event()
        self._deliveries = Deliveries(
            publisher, clock, self._commits, limits=limits, jitter=jitter, wake=self._wake.set
        )
        self._seen_us = FOREVER_US
        self._retries: Position | None = None
        self._closing = False

    async def set(self, timers: Sequence[Timer]) -> None:
        """Set timers, each in place of the pending one with its uid and purpose; return once they are on disk.

        Raises:
            TryLaterError: The timers could not be stored now; assume that none was.
            EventError: A reference can never be stored.
        """
        rows = [row_of(timer, self._now_us()) for timer in timers]
        put = partial(store.put, rows=rows, row_ids=self._file.row_ids, shortage=self._file.room.shortage)
        stored = self._commits.submit(put)
        # A callback, not code after the await: the caller may be cancelled, and the timers are stored nevertheless.
        stored.add_done_callback(lambda done: self._notice(rows, done))
        if shortage := await asyncio.shield(stored):
            raise TryLaterError(f"the timer file is full: {shortage}", retry_after_seconds=FULL_RETRY_SECONDS)

    async def run(self) -> None:
        """Fire timers until cancelled, then close.

        Raises:
            TtlError: Nothing can be written any more; restart the process.
        """
        try:
            while True:
                self._wake.clear()
                if failure := self._commits.failure:
                    raise TtlError(f"timers cannot be stored, restart this process: {failure!r}") from failure
                await self._watch_clock()
                for lane in tuple(self._lanes.values()):
                    await self._read_due(lane)
                    self._start(lane)
                await self._rest()
        finally:
            await self.close()

    async def close(self) -> None:
        """Wait for the deliveries in flight, commit waiting writes and close the file. `run` ends with this call."""
        if self._closing:
            return
        self._closing = True
        try:
            await self._deliveries.drain()
        finally:
            self._deliveries.close()
            self._commits.close()
            self._reading.shutdown()
            self._file.close()

    async def pending(self) -> int:
        """Return the number of timers, those in flight included."""
        return await self._read(store.count)

    async def next_due(self) -> datetime | None:
        """Return when the next timer fires: its due time, or its next attempt; None without timers."""
        next_us = await self._read(store.first_us)
        return None if next_us == FOREVER_US else from_us(next_us)

    async def page(
        self, after: str = "", *, limit: int = TIMERS_OF_ONE_PAGE, wanted: TimerFilter = EVERY_TIMER
    ) -> TimerPage:
        """Read a page of pending timers, in the order of their rows; see `PendingTimers.page`."""
        position = parse_position(after)
        return page_of(await self._read(partial(read_page, after=position, limit=limit)), limit, wanted)

    async def _watch_clock(self) -> None:
        """Retry all timers now after the start, and after the clock was set back.

        After a start, the reason of the failures may be gone. After a step back, the planned retries are too late.
        """
        now_us, seen_us = self._now_us(), self._seen_us
        self._seen_us = now_us
        if now_us <= seen_us - SECOND_US:
            self._retries = LAST_RETRY
        if self._retries is not None:
            await self._retry_slice(self._retries, now_us)

    async def _retry_slice(self, position: Position, now_us: int) -> None:
        """Retry some timers now; the next turn of `run` does the next ones, so that other timers fire in between."""
        self._retries = None  # if the write fails, each timer is retried at its planned time
        with suppress(TryLaterError):
            self._retries = await self._commits.submit(partial(retry_now, now_us=now_us, position=position))
        if self._retries is not None:
            self._wake.set()
        if self._retries is None or position == LAST_RETRY:  # a read after each slice would skip the same rows again
            for lane in self._lanes.values():
                lane.read_again()

    async def _read_due(self, lane: Lane) -> None:
        """Read due timers, many at once, and only if there can be any."""
        now_us = self._now_us()
        read = lane.begin_read(now_us, self._limits.claim)
        if read is None:
            return
        try:
            found = await self._read(read.run)
        except TryLaterError as error:
            _log.error("timers not read", extra={"fields": {"purpose": lane.purpose, "error": str(error)}})
            lane.fail_read(now_us + round(self._limits.disk_seconds * SECOND_US))
        else:
            lane.end_read(found)

    def _start(self, lane: Lane) -> None:
        """Start a delivery in each free place."""
        while stored := lane.take(self._now_us()):
            self._deliveries.start(lane, stored)

    async def _rest(self) -> None:
        """Sleep until a timer is due or set, a place is free, or the clock must be read."""
        next_us = min((lane.next_us() for lane in self._lanes.values()), default=FOREVER_US)
        seconds = min((next_us - self._now_us()) / SECOND_US, self._limits.rest_seconds)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._wake.wait()

    def _notice(self, rows: Sequence[Row], stored: asyncio.Future[str]) -> None:
        """Update the lanes after timers were stored, and wake up if one of them is the earliest."""
        if stored.cancelled() or stored.exception() or stored.result():
            return
        for uid, purpose, _, fire_us, attempts, _ in rows:
            if self._lane(purpose).replace(uid, fire_us, attempts=attempts):
                self._wake.set()

    def _lane(self, purpose: str) -> Lane:
        if purpose not in self._lanes:
            self._lanes[purpose] = Lane(purpose, self._limits.in_flight)
        return self._lanes[purpose]

    def _now_us(self) -> int:
        return to_us(self._clock.now())

    async def _read(self, query: Callable[[sqlite3.Connection], _ResultT]) -> _ResultT:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reading, query, self._file.reader)
        except sqlite3.Error as error:
            raise TryLaterError(f"timers could not be read: {self._file.health.explain(error)}") from error
