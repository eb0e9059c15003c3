"""Read the API server's clock once for all objects that are due at one instant."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta

from shared.adapters.clock import ServerClock
from shared.errors import TtlError

LAG_MAX = timedelta(seconds=2)
"""Maximum lag of `ServerClock` behind the API server: the rounding of a Date, and a slow answer."""

NEAR = timedelta(milliseconds=20)
"""Up to this lag, waiting is as quick as a read."""

READ_SECONDS_MAX = 1.0
"""Timeout of a read: an object must not wait for its own GET longer than this."""

PAUSE_SECONDS = 0.1
"""Minimum time from one read to the next: otherwise forged timers could force a read each."""

FAILED_PAUSE_SECONDS = 5.0
"""The same after a read that failed: the API server is busy, or refuses it."""


class ServerTime:
    """The API server's time when an object is due.

    A Date has whole seconds, so at the due time the last one is too old to prove that the object is due. Without a
    shared read, each object of a burst would be read for its Date. The result is always a bound of `ServerClock`: no
    failure of a read makes it later than the API server's clock.

    Args:
        clock: The bound of the API server's clock.
        read: Makes the smallest request whose answer has a Date.
        monotonic: The monotonic clock of `clock`, in seconds.
    """

    def __init__(
        self, clock: ServerClock, read: Callable[[], Awaitable[object]], monotonic: Callable[[], float]
    ) -> None:
        self._clock = clock
        self._read = read
        self._monotonic = monotonic
        self._reading: asyncio.Task[None] | None = None
        self._next_read_at = monotonic()

    async def now(self, due_at: datetime) -> datetime | None:
        """Return a time that the API server's clock has reached; None if there is none.

        If that clock may have reached `due_at` since the last answer, it is read first. Concurrent callers share one
        request. If the request fails, or if the last one was just made, the result is what is known: then the caller
        reads its object.
        """
        now = self._clock.now()
        if now is not None and not timedelta(0) < due_at - now <= LAG_MAX:
            return now
        if now is not None and due_at - now <= NEAR:
            await asyncio.sleep((due_at - now).total_seconds() + 0.001)
            return self._clock.now()
        if self._reading is None and self._monotonic() >= self._next_read_at:
            self._reading = asyncio.create_task(self._read_date())
        if self._reading is not None:
            await asyncio.wait({self._reading})  # a cancelled caller does not cancel the read of the others
        return self._clock.now()

    async def _read_date(self) -> None:
        pause = FAILED_PAUSE_SECONDS
        try:
            with suppress(TtlError, TimeoutError):
                async with asyncio.timeout(READ_SECONDS_MAX):
                    await self._read()
                pause = PAUSE_SECONDS
        finally:
            self._next_read_at, self._reading = self._monotonic() + pause, None
