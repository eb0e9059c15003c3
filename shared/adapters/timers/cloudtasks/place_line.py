"""The tasks that wait for a place, since Cloud Tasks sends more at once than may be delivered at once."""

import asyncio

from shared.adapters.timers.places import Places, Share
from shared.errors import TryLaterError


class PlaceLine:
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
