"""The embedded timer engine: delayed CloudEvents in one SQLite file, published by the process that owns the file.

Each timer fires at least once after it is due, and never before; this survives kill -9, clock steps and full disks:

- `set` returns once its transaction is on disk. A timer is deleted after its delivery, so a crash between the two
  delivers it again.
- Which timers are in flight is kept in memory only. After a crash none is, and all overdue timers are delivered.
- A row is deleted or postponed only in the generation that was delivered, so a timer that was set again stays.
- A failed delivery is retried after a back-off, which is in the file: a restart does not shorten it.
- The wall clock is read at least every half second, and before each delivery.
"""

import asyncio
import logging
import random
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from shared.adapters.timers.delivery import FINAL_ATTEMPTS, LIMITS, Attempts, EngineLimits, drain
from shared.adapters.timers.sqlite import store
from shared.adapters.timers.sqlite.due_queue import DueQueue
from shared.adapters.timers.sqlite.file import Room, Shrinking, TimerFile
from shared.adapters.timers.sqlite.group_commit import GroupCommit
from shared.adapters.timers.sqlite.reader import PendingInFile
from shared.adapters.timers.sqlite.store import FOREVER_US, SECOND_US, Row, StoredTimer, row_of
from shared.adapters.timers.stored import microseconds
from shared.core.values.timing import backoff_seconds
from shared.errors import TryLaterError, TtlError
from shared.messages import Timer
from shared.ports import Clock, Publisher

FULL_RETRY_SECONDS = 10.0
"""Retry-After if the file is full: due timers may have fired by then, or an operator may have freed space."""

RETRY_US_MAX = round(backoff_seconds(FINAL_ATTEMPTS) * SECOND_US)
"""The longest back-off of a retry."""

UNWRITTEN_MAX = 10_000
"""Maximum number of deliveries without a permit that wait until their outcome is written; others keep their permits."""

UNWRITTEN_PAUSES_MAX = 16
"""Longest wait before an outcome is written again, in pauses of `EngineLimits.disk_seconds`; a write that succeeds, or
the end of the process, ends the wait."""

Write = Callable[[sqlite3.Connection], int]
"""Writes the outcome of a delivery; returns when to read its row again."""

_log = logging.getLogger("ttl")
_ResultT = TypeVar("_ResultT")


class SqliteTimers(PendingInFile):
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
        self._clock, self._limits = clock, limits
        self._attempts = Attempts(publisher, limits, jitter)
        self._file = TimerFile(path, room)
        self._commits = GroupCommit(self._file.writer, self._file.health, Shrinking().step)
        self._reading = ThreadPoolExecutor(1, "timers-read")
        self._queues = {purpose: DueQueue(purpose, limits.in_flight) for purpose in self._file.purposes}
        self._running: set[asyncio.Task[None]] = set()
        self._unwritten, self._written = 0, asyncio.Event()
        self._wake = asyncio.Event()
        self._seen_us = FOREVER_US
        self._closing = False

    async def set(self, timers: Sequence[Timer]) -> None:
        """Set timers, each in place of the pending one with its uid and purpose; return once they are on disk.

        Raises:
            TryLaterError: The timers could not be stored now; assume that none was.
            EventError: A reference can never be stored.
        """
        now = self._clock.now()
        rows = [row_of(timer, now) for timer in timers]
        stored = self._commits.submit(partial(store.put, rows=rows, shortage=self._file.room.shortage))
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
                for queue in tuple(self._queues.values()):
                    await self._read_due(queue)
                    self._start(queue)
                await self._rest()
        finally:
            await self.close()

    async def close(self) -> None:
        """Wait for the deliveries in flight, commit waiting writes and close the file. `run` ends with this call."""
        if self._closing:
            return
        self._closing = self._attempts.are_cancelled = True
        self._retry_writes()
        try:
            await drain(self._running, self._limits.grace_seconds)
        finally:
            self._commits.close()
            self._reading.shutdown()
            self._file.close()

    async def _watch_clock(self) -> None:
        """Bring forward retries that were planned too late, at the start and after the clock was set back."""
        now_us, seen_us = self._now_us(), self._seen_us
        self._seen_us = now_us
        if now_us <= seen_us - SECOND_US:
            with suppress(TryLaterError):  # if the write fails, each timer is retried at its planned time
                await self._commits.submit(partial(store.cap_retries, latest_us=now_us + RETRY_US_MAX), shrinks=True)
            for queue in self._queues.values():
                queue.restart()

    async def _read_due(self, queue: DueQueue) -> None:
        """Read due timers, many at once, and only if there can be any."""
        now_us = self._now_us()
        read = queue.begin_read(now_us, self._limits.claim)
        if read is None:
            return
        try:
            found = await self._read(read.run)
        except TryLaterError as error:
            _log.error("timers not read", extra={"fields": {"purpose": queue.purpose, "error": str(error)}})
            queue.restart(now_us + round(self._limits.disk_seconds * SECOND_US))
        else:
            queue.end_read(found)

    def _start(self, queue: DueQueue) -> None:
        """Start a delivery in each free permit."""
        while stored := queue.take(self._now_us()):
            delivery = asyncio.create_task(self._deliver(queue, stored))
            self._running.add(delivery)
            delivery.add_done_callback(self._running.discard)

    async def _deliver(self, queue: DueQueue, stored: StoredTimer) -> None:
        """Publish a timer and write the outcome to the file."""
        read_us, failed = 0, True  # after an unexpected error, the row is read again
        try:
            write, failed = await self._publish(stored)
            try:
                read_us = await self._commits.submit(write, shrinks=True)
            except TryLaterError:
                read_us = await self._write_later(queue, stored, write, failed=failed)
            self._retry_writes()
        finally:
            queue.finish(stored.uid, read_us, failed=failed)
            self._wake.set()

    def _retry_writes(self) -> None:
        """Wake the deliveries that wait to write their outcomes again."""
        if self._unwritten:
            self._written.set()
            self._written = asyncio.Event()

    async def _publish(self, stored: StoredTimer) -> tuple[Write, bool]:
        """Publish a timer; return the write for its row, and whether the delivery failed."""
        try:
            seconds = await self._attempts.publish(stored.timer())
        except ValueError as error:  # another program wrote the row
            seconds = self._attempts.failed(stored.purpose, stored.uid, stored.attempts, error)
        if seconds is None:
            return partial(store.delete, delivered=stored), False
        # Never before the due time, even if the clock was set back during the delivery.
        fire_us = max(stored.due_us, self._now_us() + round(seconds * SECOND_US))
        return partial(store.postpone, failed=stored, fire_us=fire_us), True

    async def _write_later(self, queue: DueQueue, stored: StoredTimer, write: Write, *, failed: bool) -> int:
        """Free the permit, since a full or locked disk must not stop other timers, and write until it succeeds."""
        if not self._unwritten:
            _log.error("timer results not written", extra={"fields": {"purpose": stored.purpose, "uid": stored.uid}})
        self._unwritten += 1
        pauses = 1
        try:
            if self._unwritten <= UNWRITTEN_MAX:
                queue.free_permit(stored.uid, failed=failed)
                self._wake.set()
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pauses * self._limits.disk_seconds):
                        await self._written.wait()
                if self._closing:
                    return FOREVER_US  # the next process delivers the timer again
                pauses = min(2 * pauses, UNWRITTEN_PAUSES_MAX)
                with suppress(TryLaterError):
                    return await self._commits.submit(write, shrinks=True)
        finally:
            self._unwritten -= 1

    async def _rest(self) -> None:
        """Sleep until a timer is due or set, a permit is free, or the clock must be read."""
        next_us = min((queue.next_us() for queue in self._queues.values()), default=FOREVER_US)
        seconds = min((next_us - self._now_us()) / SECOND_US, self._limits.rest_seconds)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._wake.wait()

    def _notice(self, rows: Sequence[Row], stored: asyncio.Future[str]) -> None:
        """Update the queues after timers were stored, and wake up if one of them is the earliest."""
        if stored.cancelled() or stored.exception() or stored.result():
            return
        self._retry_writes()
        for uid, purpose, _, fire_us, attempts, _ in rows:
            if purpose not in self._queues:
                self._queues[purpose] = DueQueue(purpose, self._limits.in_flight)
                self._wake.set()
            if self._queues[purpose].replace(uid, fire_us, attempts=attempts):
                self._wake.set()

    def _now_us(self) -> int:
        return microseconds(self._clock.now())

    async def _read(self, query: Callable[[sqlite3.Connection], _ResultT]) -> _ResultT:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reading, query, self._file.reader)
        except sqlite3.Error as error:
            raise TryLaterError(f"timers could not be read: {self._file.health.explain(error)}") from error
