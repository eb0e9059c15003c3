"""Publish due timers, and write the result of each delivery to the timer file.

A result that a full or locked disk refuses is kept in memory, and written again later.
"""

import asyncio
import itertools
import logging
import sqlite3
from collections.abc import Callable
from functools import partial

from shared.adapters.timers.in_flight import FailureLog, drain
from shared.adapters.timers.limits import EngineLimits
from shared.adapters.timers.sqlite import store
from shared.adapters.timers.sqlite.group_commit import GroupCommit
from shared.adapters.timers.sqlite.lane import Lane
from shared.adapters.timers.sqlite.store import SECOND_US, StoredTimer, to_us
from shared.errors import TryLaterError
from shared.ports import Clock, Publisher

UNWRITTEN_MAX = 10_000
"""Maximum number of kept results (a few MiB); beyond it, each delivery holds its place until its result is written."""

BATCH = 256
"""Results per transaction."""

Write = Callable[[sqlite3.Connection], int]
"""Writes the result of a delivery; returns when to read its row again."""

_log = logging.getLogger("ttl")


class Deliveries:
    """The deliveries in flight of a timer engine.

    Args:
        publisher: Publishes due timers. If it raises any error, the timer is kept and retried.
        clock: The wall clock.
        commits: Writes the results.
        limits: Timeouts and pauses.
        jitter: Returns a random number from 0 to 1.
        wake: Called after each delivery, since it may leave a free place.
    """

    def __init__(  # noqa: PLR0913 - the parts of the engine that a delivery needs
        self,
        publisher: Publisher,
        clock: Clock,
        commits: GroupCommit,
        *,
        limits: EngineLimits,
        jitter: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self._publisher = publisher
        self._clock = clock
        self._commits = commits
        self._limits = limits
        self._jitter = jitter
        self._wake = wake
        self._unwritten = UnwrittenResults(commits, limits.disk_seconds, wake)
        self._failures = FailureLog()
        self._running: set[asyncio.Task[None]] = set()
        self._closing = False

    def start(self, lane: Lane, stored: StoredTimer) -> None:
        """Start a delivery; the timer's place is taken until it ends."""
        delivery = asyncio.create_task(self._deliver(lane, stored))
        self._running.add(delivery)
        delivery.add_done_callback(self._running.discard)

    async def drain(self) -> None:
        """Wait for the deliveries in flight, then cancel late ones; the next process delivers their timers again."""
        self._closing = True
        await drain(self._running, self._limits.grace_seconds)

    def close(self) -> None:
        """Stop retrying to write results."""
        self._unwritten.close()

    async def _deliver(self, lane: Lane, stored: StoredTimer) -> None:
        """Publish a timer and write the result to the file."""
        failed, write = True, None
        try:
            write, failed = await self._publish(stored)
        finally:
            if write is None:  # an unexpected end: the row is read again
                lane.finish(stored.uid, 0, failed=True)
        try:
            lane.finish(stored.uid, await self._commits.submit(write, shrinks=True), failed=failed)
        except TryLaterError:
            await self._unwritten.keep(lane, stored.uid, write, failed=failed)
        finally:
            self._wake()

    async def _publish(self, stored: StoredTimer) -> tuple[Write, bool]:
        """Publish a timer; return the write for its row, and whether the delivery failed."""
        try:
            async with asyncio.timeout(self._limits.timeout_of(stored.purpose)):
                await self._publisher.publish(stored.timer())
        except asyncio.CancelledError as error:
            if self._closing:
                raise
            return self._postpone(stored, error), True  # the publisher cancelled itself
        except Exception as error:  # noqa: BLE001 - no error of a publisher may lose a timer
            return self._postpone(stored, error), True
        self._failures.succeeded(stored.purpose)
        return partial(store.delete, delivered=stored), False

    def _postpone(self, stored: StoredTimer, error: BaseException) -> Write:
        """Log a failed delivery; return the write of its next attempt."""
        seconds = self._limits.retry_seconds(stored.attempts, error, self._jitter())
        self._failures.failed(stored.purpose, stored.uid, attempts=stored.attempts + 1, error=error, seconds=seconds)
        # Never before the due time, even if the clock was set back during the delivery.
        fire_us = max(stored.due_us, to_us(self._clock.now()) + round(seconds * SECOND_US))
        return partial(store.postpone, refused=stored, fire_us=fire_us)


class UnwrittenResults:
    """Writes kept results as soon as the disk accepts them, oldest first; until then their timers are not delivered.

    Args:
        commits: Writes the results.
        pause_seconds: Pause between two attempts.
        wake: Called after each attempt.
    """

    def __init__(self, commits: GroupCommit, pause_seconds: float, wake: Callable[[], None]) -> None:
        self._commits = commits
        self._pause_seconds = pause_seconds
        self._wake = wake
        self._kept: dict[tuple[str, str], tuple[Lane, Write]] = {}
        self._writing: asyncio.Task[None] | None = None
        self._closed = False

    async def keep(self, lane: Lane, uid: str, write: Write, *, failed: bool) -> None:
        """Keep a result that could not be written, and free its place; wait while too many are kept."""
        while len(self._kept) >= UNWRITTEN_MAX and not self._closed:  # noqa: ASYNC110 - rare: the disk is full
            await asyncio.sleep(self._pause_seconds)
        lane.finish_unwritten(uid, failed=failed)
        self._kept[lane.purpose, uid] = lane, write
        if self._writing is None and not self._closed:
            _log.error("timer results not written", extra={"fields": {"purpose": lane.purpose, "uid": uid}})
            self._writing = asyncio.create_task(self._write())

    def close(self) -> None:
        """Drop the kept results: the next process delivers their timers again."""
        self._closed = True
        if self._writing:
            self._writing.cancel()

    async def _write(self) -> None:
        try:
            while self._kept:
                batch = list(itertools.islice(self._kept.items(), BATCH))
                written = [self._commits.submit(write, shrinks=True) for _, (_, write) in batch]
                await asyncio.wait(written)
                for (key, (lane, _)), done in zip(batch, written, strict=True):
                    if done.exception() is None:
                        del self._kept[key]
                        lane.written(key[1], done.result())
                self._wake()
                if written[-1].exception() is not None:
                    await asyncio.sleep(self._pause_seconds)
        finally:
            self._writing = None
