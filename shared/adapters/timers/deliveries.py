"""Publish due timers, and write the result of each delivery to the timer file."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from shared.adapters.timers import sqlite_store as store
from shared.adapters.timers.group_commit import GroupCommit
from shared.adapters.timers.lane import Lane
from shared.adapters.timers.limits import EngineLimits
from shared.adapters.timers.stored_timer import SECOND_US, StoredTimer, to_us
from shared.adapters.timers.unwritten_results import UnwrittenResults, Write
from shared.errors import EventError, PermanentError, TryLaterError
from shared.ports import Clock, Publisher

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
            async with asyncio.timeout(self._limits.delivery_seconds):
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
