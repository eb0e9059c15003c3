"""The deliveries in flight of the engine on Cloud Tasks, which sends more at once than may be delivered at once."""

import asyncio
from datetime import datetime

from shared.adapters.timers.in_flight import FailureLog, drain
from shared.adapters.timers.limits import EngineLimits
from shared.adapters.timers.places import Places, Share, share_of
from shared.errors import TryLaterError
from shared.messages import Timer
from shared.ports import Publisher


class NoPlaceError(TryLaterError):
    """As many timers are being delivered as may be at once: nothing failed."""


class TaskDeliveries:
    """Publishes due timers, a limited number at once.

    Args:
        publisher: Publishes due timers.
        limits: Timeouts, and the number of deliveries at once.
    """

    def __init__(self, publisher: Publisher, limits: EngineLimits) -> None:
        self._publisher, self._limits = publisher, limits
        self._places: dict[str, Places] = {}
        self._failures = FailureLog()
        self._running: dict[asyncio.Task[None], datetime] = {}
        self._closing = False

    def oldest(self) -> datetime | None:
        """Return the first due time of the timers in flight; None without one."""
        return min(self._running.values(), default=None)

    async def deliver(self, timer: Timer) -> Exception | None:
        """Publish a timer if it has a place; return the error if it failed, a NoPlaceError if it got none.

        Raises:
            TryLaterError: The engine stops; Cloud Tasks sends the task again.
        """
        if self._closing:
            raise TryLaterError("the timer engine is stopping")
        places, share = self._places.setdefault(timer.purpose, Places(self._limits.in_flight)), share_of(timer.ref)
        if not places.may_take(share):
            return NoPlaceError("as many timers of this kind are being delivered as may be at once")
        places.take(share)
        delivery = asyncio.create_task(self._publish(timer))
        self._running[delivery] = timer.due_at
        delivery.add_done_callback(lambda done: self._end(done, places, share))
        await asyncio.wait([delivery])
        if delivery.cancelled():
            raise TryLaterError("the timer engine is stopping")
        error = delivery.exception()
        if error is None:
            self._failures.succeeded(timer.purpose)
        elif not isinstance(error, Exception):
            raise error
        return error

    def failed(self, timer: Timer, error: Exception, seconds: float) -> None:
        """Log a failed delivery, and in how many seconds the next attempt follows."""
        uid, attempts = timer.ref.uid, timer.attempts
        self._failures.failed(timer.purpose, uid, attempts=attempts, error=error, seconds=seconds)

    async def drain(self) -> None:
        """Wait for the deliveries in flight, then cancel late ones; Cloud Tasks sends their tasks again."""
        self._closing = True
        await drain(self._running, self._limits.grace_seconds)

    def _end(self, done: asyncio.Task[None], places: Places, share: Share) -> None:
        del self._running[done]
        places.give(share, failed=done.cancelled() or bool(done.exception()))

    async def _publish(self, timer: Timer) -> None:
        async with asyncio.timeout(self._limits.timeout_of(timer.purpose)):
            await self._publisher.publish(timer)
