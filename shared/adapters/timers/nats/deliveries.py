"""Publish fired timers, and acknowledge them to the servers.

A fired timer stays in the stream until it is acknowledged. While this process holds it, the servers get a sign of life
for it; if the process dies, they deliver the timer to another process.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta

from shared.adapters.timers.in_flight import FailureLog, drain
from shared.adapters.timers.limits import EngineLimits
from shared.adapters.timers.nats.fired import FiredTimer
from shared.adapters.timers.nats.heads import Heads, NewTimer, Standing, cancellation_of
from shared.adapters.timers.nats.lane import NatsLane
from shared.adapters.timers.nats.records import body_of
from shared.errors import TryLaterError
from shared.messages import ATTEMPTS_COUNTED_MAX
from shared.ports import Clock, Publisher

UNKNOWN_SECONDS = 1.0
"""After this time, a timer that the leader of the stream does not know is delivered again."""

GIVE_BACK_SECONDS_MAX = 5.0
"""The longest time after which a timer that fired early, by the clock of this process, is looked at again."""

RETURN_SECONDS_MAX = 100.0
"""The longest time for which a surplus timer is given back; above it, the timer is set again.

The servers can hold a limited number of timers that were given back, but any number of pending ones.
"""

_log = logging.getLogger("ttl")


class NatsDeliveries:
    """The deliveries in flight.

    Args:
        publisher: Publishes due timers. If it raises any error, the timer is retried.
        clock: The wall clock.
        heads: Sets the next attempts.
        limits: Timeouts.
        jitter: Returns a random number from 0 to 1.
        ended: Called with each timer that this process holds no more.
    """

    def __init__(  # noqa: PLR0913 - the parts of the engine that a delivery needs
        self,
        publisher: Publisher,
        clock: Clock,
        heads: Heads,
        *,
        limits: EngineLimits,
        jitter: Callable[[], float],
        ended: Callable[[FiredTimer], None],
    ) -> None:
        self._publisher, self._clock, self._heads = publisher, clock, heads
        self._limits, self._jitter, self._ended = limits, jitter, ended
        self._failures = FailureLog()
        self._running: set[asyncio.Task[None]] = set()
        self._closing = False

    def start(self, lane: NatsLane, fired: FiredTimer) -> None:
        """Start a delivery; the timer's place is taken until it ends."""
        self._spawn(self._deliver(lane, fired))

    def postpone(self, surplus: Sequence[tuple[FiredTimer, float]]) -> None:
        """Let the servers deliver timers that wait for a place again, some seconds later."""
        if soon := [one for one in surplus if one[1] <= RETURN_SECONDS_MAX]:
            self._spawn(self._give_back(soon))
        for fired, seconds in surplus:
            if seconds > RETURN_SECONDS_MAX:
                self._spawn(self._postpone_waiting(fired, seconds))

    async def drain(self) -> None:
        """Wait for the deliveries in flight, then cancel late ones; another process delivers their timers again."""
        self._closing = True
        await drain(self._running, self._limits.grace_seconds)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _deliver(self, lane: NatsLane, fired: FiredTimer) -> None:
        failed = True
        try:
            failed = await self._settle(lane, fired)
        except TryLaterError as error:  # the servers are away: they deliver the timer again
            _log.warning(
                "timer not acknowledged: NATS delivers it again",
                extra={"fields": {"purpose": lane.purpose, "error": str(error)}},
            )
        finally:
            lane.finish(fired, time.monotonic(), failed=failed)
            self._ended(fired)
            if self._closing and not fired.settled:
                await fired.give_back()

    async def _settle(self, lane: NatsLane, fired: FiredTimer) -> bool:
        """Deliver a timer if it is due and current; return whether that failed."""
        if (seconds := (fired.timer.due_at - self._clock.now()).total_seconds()) > 0:
            await fired.give_back(min(seconds, GIVE_BACK_SECONDS_MAX))
            return False
        if not await self._is_current(fired):
            return False
        failed = await self._publish(lane, fired)
        if fired.replaced and not failed:  # what it replaced may come back: revived.py
            mark = cancellation_of(fired.key, self._clock.now(), fired.sequence)
            await self._heads.postpone(mark, fired.sequence, fired.schedule)
        await fired.settle()
        return failed

    async def _is_current(self, fired: FiredTimer) -> bool:
        """Return whether a timer was neither replaced nor cancelled; if that is unknown, the servers send it again."""
        standing = await self._heads.standing(fired.key, fired.sequence, fired.schedule)
        if standing is Standing.REPLACED:
            await fired.settle()
        elif standing is Standing.UNKNOWN:
            await fired.give_back(UNKNOWN_SECONDS)
        return standing is Standing.CURRENT

    async def _publish(self, lane: NatsLane, fired: FiredTimer) -> bool:
        """Publish a timer, and set its next attempt if that fails; return whether it failed."""
        try:
            async with asyncio.timeout(self._limits.timeout_of(lane.purpose)):
                await self._publisher.publish(fired.timer)
        except asyncio.CancelledError as error:
            if self._closing:
                raise
            await self._retry(lane, fired, error)  # the publisher cancelled itself
            return True
        except Exception as error:  # noqa: BLE001 - no error of a publisher may lose a timer
            await self._retry(lane, fired, error)
            return True
        self._failures.succeeded(lane.purpose)
        return False

    async def _retry(self, lane: NatsLane, fired: FiredTimer, error: BaseException) -> None:
        timer = fired.timer
        seconds = self._limits.retry_seconds(timer.attempts, error, self._jitter())
        attempts = min(timer.attempts + 1, ATTEMPTS_COUNTED_MAX)
        self._failures.failed(lane.purpose, timer.ref.uid, attempts=attempts, error=error, seconds=seconds)
        counted = timer.model_copy(update={"attempts": attempts})
        at = self._clock.now() + timedelta(seconds=seconds)
        later = NewTimer(fired.key, body_of(counted), at, fired.replaced)
        await self._heads.postpone(later, fired.sequence, fired.schedule)

    async def _give_back(self, surplus: Sequence[tuple[FiredTimer, float]]) -> None:
        for fired, seconds in surplus:
            await fired.give_back(seconds)
            self._ended(fired)

    async def _postpone_waiting(self, fired: FiredTimer, seconds: float) -> None:
        try:
            at = self._clock.now() + timedelta(seconds=seconds)
            if await self._is_current(fired):
                later = NewTimer(fired.key, body_of(fired.timer), at, fired.replaced)
                await self._heads.postpone(later, fired.sequence, fired.schedule)
                await fired.settle()
        except TryLaterError as error:
            _log.warning(
                "timer not acknowledged: NATS delivers it again",
                extra={"fields": {"uid": fired.timer.ref.uid, "error": str(error)}},
            )
        finally:
            self._ended(fired)
