"""The deliveries in flight of the engine on Cloud Tasks, and the tasks that wait for a place.

Cloud Tasks sends more at once than may be delivered at once.
"""

import asyncio
from collections.abc import Callable
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

    Attributes:
        failures: Logs failed deliveries.
    """

    def __init__(self, publisher: Publisher, limits: EngineLimits) -> None:
        self._publisher = publisher
        self._limits = limits
        self._lines: dict[str, _PlaceLine] = {}
        self.failures = FailureLog()
        self._running: dict[asyncio.Task[None], datetime] = {}

    def oldest(self) -> datetime | None:
        """Return the first due time of the timers in flight; None without one."""
        return min(self._running.values(), default=None)

    async def deliver(self, timer: Timer, is_ended: Callable[[], bool]) -> Exception | None:
        """Publish a timer when it has a place; return the error if it failed, a NoPlaceError if it got none.

        Args:
            timer: The timer.
            is_ended: Whether it was replaced or cancelled while it waited; then it is dropped.

        Raises:
            TryLaterError: The engine stops, and cancelled the delivery.
        """
        line = self._lines.setdefault(timer.purpose, _PlaceLine(self._limits.in_flight))
        share = share_of(timer.ref)
        if not await line.take(share, self._limits.place_seconds):
            return NoPlaceError("as many timers of this kind are being delivered as may be at once")
        if is_ended():
            line.give(share, failed=None)
            return None
        delivery = asyncio.create_task(self._publish(timer))
        self._running[delivery] = timer.due_at
        delivery.add_done_callback(self._running.pop)
        delivery.add_done_callback(lambda done: line.give(share, failed=done.cancelled() or bool(done.exception())))
        await asyncio.wait([delivery])
        if delivery.cancelled():
            raise TryLaterError("the timer engine is stopping")
        error = delivery.exception()
        if error is None:
            self.failures.succeeded(timer.purpose)
        elif not isinstance(error, Exception):
            raise error
        return error

    async def drain(self) -> None:
        """Wait for the deliveries in flight, then cancel late ones; Cloud Tasks sends their tasks again.

        So it does with those that wait for a place.
        """
        for line in self._lines.values():
            line.close()
        await drain(self._running, self._limits.grace_seconds)

    async def _publish(self, timer: Timer) -> None:
        async with asyncio.timeout(self._limits.timeout_of(timer.purpose)):
            await self._publisher.publish(timer)


class _PlaceLine:
    """The line for the places of a purpose: who came first is first, but no share waits for another one.

    Args:
        total: The maximum number of deliveries in flight.
    """

    def __init__(self, total: int) -> None:
        self._places = Places(total)
        self._waiting: dict[asyncio.Future[None], Share] = {}

    async def take(self, share: Share, seconds: float) -> bool:
        """Take a place until `give`; return False if none became free in time.

        Raises:
            TryLaterError: The engine stops.
        """
        if self._places.may_take(share):
            self._places.take(share)
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = share
        try:
            await asyncio.wait([waiter], timeout=seconds)
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.give(share, failed=None)
            raise
        finally:
            self._waiting.pop(waiter, None)
        if waiter.cancelled():
            raise TryLaterError("the timer engine is stopping")
        return waiter.done()

    def give(self, share: Share, *, failed: bool | None) -> None:
        """Free a place, and let those in who may have one now; see `Places.give`."""
        self._places.give(share, failed=failed)
        full: set[Share] = set()
        for waiter, waiting in list(self._waiting.items()):
            if waiting in full or waiter.done():
                continue
            if self._places.may_take(waiting):
                self._places.take(waiting)
                waiter.set_result(None)
            else:
                full.add(waiting)

    def close(self) -> None:
        """Send away all who wait."""
        for waiter in self._waiting:
            waiter.cancel()
