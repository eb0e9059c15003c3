"""Publish due timers, and write the result of each delivery to the timer file.

A result that a full or locked disk refuses is kept in memory, and written again later.
"""

import asyncio
import itertools
import logging
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from shared.adapters.timers import sqlite_store as store
from shared.adapters.timers.group_commit import GroupCommit
from shared.adapters.timers.lane import Lane
from shared.adapters.timers.sqlite_store import SECOND_US, StoredTimer, to_us
from shared.core.timing import backoff_seconds
from shared.errors import EventError, PermanentError, TryLaterError
from shared.messages import Purpose
from shared.ports import Clock, Publisher

FINAL_ATTEMPTS = 30
"""The attempts that a final error counts as, so that the longest back-off follows."""

UNWRITTEN_MAX = 10_000
"""Maximum number of kept results (a few MiB); beyond it, each delivery holds its place until its result is written."""

DELIVERY_SECONDS: Mapping[str, float] = {
    Purpose.EXPIRE: 30.0,  # 20 s for an attempt, 10 s to store the timer of the reply
    Purpose.ENFORCE: 30.0,  # as for `expire`
    Purpose.ARCHIVE: 300.0,  # 240 s for an attempt, 270 s of its Trigger, and 30 s for the reply
}
"""Timeout of a delivery, by its purpose.

A Broker may answer only after its subscriber, and after the subscribers of the reply. A timeout that is shorter than an
attempt cancels a healthy attempt, loses its reply, and starts a second attempt while the first one still runs. So the
timeout is never shorter than that of the Trigger.
"""

TIMER_PUBLISH_SECONDS_MAX = max(DELIVERY_SECONDS.values()) + 10.0
"""Timeout of the publisher that the engine uses: longer than any delivery, so that the engine's own timeouts count."""

BATCH = 256
"""Results per transaction."""

Write = Callable[[sqlite3.Connection], int]
"""Writes the result of a delivery; returns when to read its row again."""

_log = logging.getLogger("ttl")


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The limits of a timer engine; only tests change them.

    Attributes:
        in_flight: Maximum number of deliveries in flight per purpose. Each purpose has its own, so that a dead target
            delays no other purpose; `Places` divides them among kinds and namespaces.
        claim: Timers per read: enough to make reads cheap, too few to need much memory.
        delivery_seconds: Timeout of a delivery, by its purpose.
        rest_seconds: Maximum sleep, and so the maximum delay until a step of the wall clock is noticed.
        disk_seconds: Pause between attempts while the disk is full or the file is locked.
        grace_seconds: Time for the deliveries in flight at shutdown; half of the 10 s that Cloud Run allows.
    """

    in_flight: int = 96
    claim: int = 256
    delivery_seconds: Mapping[str, float] = field(default_factory=lambda: DELIVERY_SECONDS)
    rest_seconds: float = 0.5
    disk_seconds: float = 0.5
    grace_seconds: float = 5.0

    def timeout_of(self, purpose: str) -> float:
        """Return the timeout of a delivery; the longest one for a purpose of a later version."""
        return self.delivery_seconds.get(purpose, max(self.delivery_seconds.values()))

    def retry_seconds(self, attempts: int, error: BaseException, jitter: float) -> float:
        """Return the back-off after a failed delivery.

        A final error gets the longest back-off at once. The timer is kept, since the reason of a refusal (a missing
        right, a policy that does not admit this sender) may be fixed tomorrow, and a deleted timer is lost.

        Args:
            attempts: The failed attempts before this one.
            error: The error of this attempt; a TryLaterError sets the minimum back-off.
            jitter: 0 to 1; shortens the back-off by up to a quarter.
        """
        if isinstance(error, EventError | PermanentError):
            return backoff_seconds(FINAL_ATTEMPTS, jitter=jitter)
        least = error.retry_after_seconds if isinstance(error, TryLaterError) else 0.0
        return backoff_seconds(attempts, least=least, jitter=jitter)


LIMITS = EngineLimits()


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
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=self._limits.grace_seconds)
            for delivery in late:
                delivery.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def close(self) -> None:
        """Stop retrying to write results."""
        self._unwritten.close()

    async def _deliver(self, lane: Lane, stored: StoredTimer) -> None:
        """Publish a timer and write the result to the file."""
        failed, write = True, None
        try:
            write, failed = await self._publish(lane, stored)
        finally:
            if write is None:  # an unexpected end: the row is read again
                lane.finish(stored.uid, 0, failed=True)
        try:
            lane.finish(stored.uid, await self._commits.submit(write, shrinks=True), failed=failed)
        except TryLaterError:
            await self._unwritten.keep(lane, stored.uid, write, failed=failed)
        finally:
            self._wake()

    async def _publish(self, lane: Lane, stored: StoredTimer) -> tuple[Write, bool]:
        """Publish a timer; return the write for its row, and whether the delivery failed."""
        try:
            async with asyncio.timeout(self._limits.timeout_of(stored.purpose)):
                await self._publisher.publish(stored.timer())
        except asyncio.CancelledError as error:
            if self._closing:
                raise
            return self._postpone(lane, stored, error), True  # the publisher cancelled itself
        except Exception as error:  # noqa: BLE001 - no error of a publisher may lose a timer
            return self._postpone(lane, stored, error), True
        lane.failing = None
        return partial(store.delete, delivered=stored), False

    def _postpone(self, lane: Lane, stored: StoredTimer, error: BaseException) -> Write:
        """Log a failed delivery; return the write of its next attempt."""
        seconds = self._limits.retry_seconds(stored.attempts, error, self._jitter())
        fields = {"purpose": stored.purpose, "uid": stored.uid, "attempts": stored.attempts + 1}
        fields |= {"error": repr(error), "retry_seconds": round(seconds, 3)}
        if isinstance(error, EventError | PermanentError):
            _log.error("timer refused", extra={"fields": fields})
        elif lane.failing is not type(error):  # an outage is logged once, not once per timer
            lane.failing = type(error)
            _log.warning("timers not delivered", extra={"fields": fields})
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
