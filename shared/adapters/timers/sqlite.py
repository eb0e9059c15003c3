"""The embedded timer engine: delayed CloudEvents in one SQLite file, fired by the process that holds them.

Every timer is fired at least once after it is due and never before, through kill -9, clock steps and full disks:

- `set` returns once its transaction is on disk; a delivered timer is deleted after its delivery, so that a crash in
  between delivers it again.
- What is in flight is known in memory only: after a crash nothing is, and everything overdue is delivered.
- A row is deleted or postponed only in the generation that was delivered: one set anew meanwhile stays.
- The wall clock is read again at least every half second, and before every delivery.
"""

import asyncio
import logging
import random
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from shared.adapters.timers import sqlite_store as store
from shared.adapters.timers.group_commit import GroupCommit
from shared.adapters.timers.lane import Lane
from shared.adapters.timers.limits import LIMITS, EngineLimits
from shared.adapters.timers.notes import Notes, Write
from shared.adapters.timers.room import Room
from shared.adapters.timers.sqlite_file import TimerFile
from shared.adapters.timers.sqlite_store import FOREVER_US, LISTED_AT_ONCE, SECOND_US, StoredTimer
from shared.errors import EventError, PermanentError, TryLaterError
from shared.messages import Timer
from shared.ports import Clock, Publisher

_log = logging.getLogger("ttl")
_ResultT = TypeVar("_ResultT")

FULL_RETRY_SECONDS = 10.0
"""What a full file asks its callers to wait: until what is due has fired, or an operator has made room."""


class SqliteTimers:
    """Timers in a file of which this process is the only owner; all methods belong in one event loop.

    Args:
        path: The file; made where there is none. Not on NFS, where WAL does not work.
        clock: Read again whenever the time matters.
        publisher: Takes what is due. Whatever it raises, the timer is kept and tried again.
        limits: For tests.
        room: How large the file may grow; by its volume if None.
        jitter: A random number from 0 to 1, so that what failed together does not come back together.

    Raises:
        TtlError: Another process owns the file, or it is not a timer file that this version understands.
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
        self._publisher = publisher
        self._limits = limits
        self._jitter = jitter
        self._file = TimerFile(path, room)
        self._commits = GroupCommit(self._file.writer)
        self._reading = ThreadPoolExecutor(1, "timers-read")
        self._lanes = {purpose: Lane(purpose, limits.in_flight) for purpose in self._file.purposes}
        self._deliveries: set[asyncio.Task[None]] = set()
        self._notes = Notes(self._commits, limits.disk_seconds, self._wake_up)
        self._wake = asyncio.Event()
        self._seen_us = FOREVER_US
        self._closing = False

    async def set(self, timers: Sequence[Timer]) -> None:
        """Set the timers, each in place of the pending one of its uid and purpose; returns once they are on disk.

        Raises:
            TryLaterError: They could not be stored now; none of them may be relied on.
            EventError: A reference that can never be stored.
        """
        rows = [store.row_of(timer, self._now_us()) for timer in timers]
        stored = self._commits.submit(partial(store.put, rows=rows, shortage=self._file.room.shortage))
        # Not after the await: who waits may give up (a request that is cut off), and they are set all the same.
        stored.add_done_callback(lambda done: self._notice(rows, done))
        if shortage := await asyncio.shield(stored):
            raise TryLaterError(f"the timer file is full: {shortage}", retry_after_seconds=FULL_RETRY_SECONDS)

    async def run(self) -> None:
        """Fire timers until cancelled; then close."""
        try:
            while True:
                self._wake.clear()
                await self._watch_clock()
                for lane in tuple(self._lanes.values()):
                    await self._look(lane)
                    self._start(lane)
                await self._rest()
        finally:
            await self.close()

    async def close(self) -> None:
        """Wait for the deliveries in flight, commit what waits, let go of the file. `run` ends with this."""
        if self._closing:
            return
        self._closing = True
        try:
            await self._drain()
        finally:
            self._notes.close()
            self._commits.close()
            self._reading.shutdown()
            self._file.close()

    async def pending(self) -> int:
        """How many timers there are, those in flight included."""
        return await self._read(store.count)

    async def next_due(self) -> datetime | None:
        """When the next timer fires: its due, or the next attempt of one that failed; None where there is none."""
        next_us = await self._read(store.first_us)
        return None if next_us == FOREVER_US else store.from_us(next_us)

    async def list_pending(self, limit: int) -> AsyncIterator[Timer]:
        """Up to `limit` timers: purpose by purpose, in the order in which they will fire."""
        last: StoredTimer | None = None
        while limit > 0:
            page = await self._read(partial(store.list_after, last=last, limit=min(limit, LISTED_AT_ONCE)))
            if not page:
                return
            for last in page:
                yield last.timer()
            limit -= len(page)

    # What is due

    async def _watch_clock(self) -> None:
        """Retry everything at once after the start and after the clock was set back.

        After a start the reason for waiting may be gone. A clock set back by an hour would have them wait an hour.
        """
        now_us, seen_us = self._now_us(), self._seen_us
        self._seen_us = now_us
        if now_us > seen_us - SECOND_US:
            return
        with suppress(TryLaterError):  # then each waits for its time
            await self._commits.submit(partial(store.hasten, now_us=now_us))
        for lane in self._lanes.values():
            lane.look_at(0)

    async def _look(self, lane: Lane) -> None:
        """Read what is due: one SELECT for many timers, and none while there can be nothing."""
        now_us = self._now_us()
        if not lane.wants_look(now_us):
            return
        skipped, selection = lane.begin_look()
        limit = self._limits.claim + skipped
        query = partial(store.find_due, purpose=lane.purpose, now_us=now_us, limit=limit, selection=selection)
        try:
            found, next_us, is_full = await self._read(query)
        except TryLaterError as error:
            _log.error("timers not read", extra={"fields": {"purpose": lane.purpose, "error": str(error)}})
            lane.fail_look(now_us + round(self._limits.disk_seconds * SECOND_US))
        else:
            lane.end_look(found, next_us, is_full=is_full)

    def _start(self, lane: Lane) -> None:
        """Start a delivery in every free place."""
        while stored := lane.take(self._now_us()):
            delivery = asyncio.create_task(self._deliver(lane, stored))
            self._deliveries.add(delivery)
            delivery.add_done_callback(self._deliveries.discard)

    async def _rest(self) -> None:
        """Sleep until something is due or set, or a place is free, or the clock has to be looked at."""
        next_us = min((lane.next_us() for lane in self._lanes.values()), default=FOREVER_US)
        seconds = min((next_us - self._now_us()) / SECOND_US, self._limits.rest_seconds)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._wake.wait()

    def _notice(self, rows: Sequence[store.Row], stored: asyncio.Future[str]) -> None:
        """Timers were set: wake up for the earlier ones."""
        if stored.cancelled() or stored.exception() or stored.result():
            return
        for uid, purpose, _, fire_us, attempts, _ in rows:
            if self._lane(purpose).replace(uid, fire_us, attempts=attempts):
                self._wake.set()

    # Deliveries

    async def _deliver(self, lane: Lane, stored: StoredTimer) -> None:
        """Publish a timer and note what came of it in the file; its place is taken until then."""
        failed, write = True, None
        try:
            write, failed = await self._publish(lane, stored)
        finally:
            if write is None:  # in a way nobody thought of: its row is looked at again
                lane.land(stored.uid, 0, failed=True)
        try:
            lane.land(stored.uid, await self._commits.submit(write, shrinks=True), failed=failed)
        except TryLaterError:
            await self._notes.keep(lane, stored.uid, write, failed=failed)
        finally:
            self._wake.set()

    async def _publish(self, lane: Lane, stored: StoredTimer) -> tuple[Write, bool]:
        """Publish a timer; returns what to write about it, and whether it failed."""
        try:
            async with asyncio.timeout(self._limits.delivery_seconds):
                await self._publisher.publish(stored.timer())
        except asyncio.CancelledError as error:
            if self._closing:
                raise
            return self._refused(lane, stored, error), True  # a publisher's own doing
        except Exception as error:  # noqa: BLE001 - whatever it raises, the timer is not lost
            return self._refused(lane, stored, error), True
        lane.failing = None
        return partial(store.delete, delivered=stored), False

    def _refused(self, lane: Lane, stored: StoredTimer, error: BaseException) -> Write:
        """Report a delivery that failed; returns when to try again, to write."""
        seconds = self._limits.retry_seconds(stored.attempts, error, self._jitter())
        fields = {"purpose": stored.purpose, "uid": stored.uid, "attempts": stored.attempts + 1}
        fields |= {"error": repr(error), "retry_seconds": round(seconds, 3)}
        if isinstance(error, EventError | PermanentError):
            _log.error("timer refused", extra={"fields": fields})
        elif lane.failing is not type(error):  # an outage is one line, not one for each timer
            lane.failing = type(error)
            _log.warning("timers not delivered", extra={"fields": fields})
        # Not before its due even if the clock was set back during the delivery.
        fire_us = max(stored.due_us, self._now_us() + round(seconds * SECOND_US))
        return partial(store.postpone, refused=stored, fire_us=fire_us)

    async def _drain(self) -> None:
        """Let the deliveries in flight end, for a while; those that are cut off are delivered again."""
        if self._deliveries:
            _, late = await asyncio.wait(self._deliveries, timeout=self._limits.grace_seconds)
            for delivery in late:
                delivery.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _wake_up(self) -> None:
        self._wake.set()

    def _lane(self, purpose: str) -> Lane:
        if purpose not in self._lanes:
            self._lanes[purpose] = Lane(purpose, self._limits.in_flight)
        return self._lanes[purpose]

    def _now_us(self) -> int:
        return store.to_us(self._clock.now())

    async def _read(self, query: Callable[[sqlite3.Connection], _ResultT]) -> _ResultT:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reading, query, self._file.reader)
        except sqlite3.Error as error:
            raise TryLaterError(f"timers could not be read: {error}") from error
