"""The clocks: that of this machine, a lower bound of the API server's, and that of the API server at a due time.

No other module reads the time of day.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from shared.errors import TtlError

SAMPLE_AGE_MAX = 60.0
"""Seconds for which a sample is used: the maximum delay until a server clock that was set back is noticed."""

SERVER_AHEAD_MAX = timedelta(seconds=60)
"""Maximum lead of a Date header over this machine's clock: a proxy may write a Date of its own clock."""

STEP_BACK = 2.0
"""Seconds by which a sample must contradict the bound to replace it: more than rounding and a slow answer explain."""


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """Return the current time, timezone-aware, in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - this is the one reader


class ServerClock:
    """A lower bound of the API server's clock, from the Date header of its answers.

    The header is rounded down to whole seconds, and is old when it arrives. So "Date plus the time since its arrival"
    is never ahead of the server. Of the samples of the last minute, the one with the latest time is the closest.

    Args:
        monotonic: A monotonic clock, in seconds. It does not count while the machine is suspended, which makes the
            estimate late.
        wall: This machine's clock. If a Date is ahead of it by more than SERVER_AHEAD_MAX, this clock is used instead,
            so that one wrong clock of the two can only delay deletions. None disables the comparison.

    Attributes:
        ahead: How far the server's clock was ahead of the last result of `observe` or `now`, if this machine's clock
            was used; otherwise zero.
    """

    def __init__(self, monotonic: Callable[[], float], wall: Callable[[], datetime] | None = None) -> None:
        self.ahead = timedelta(0)
        self._monotonic = monotonic
        self._wall = wall
        self._offset: float | None = None
        self._sampled_at = 0.0
        self._date: str | None = None  # of the last answer: those of one second have the same
        self._stated: datetime | None = None

    def observe(self, date: str | None) -> datetime | None:
        """Add the Date header of an answer as a sample; return the time to decide by, or None if it has no time."""
        if date != self._date:
            self._date, self._stated = date, _parse(date)
        stated = self._stated
        if stated is None:
            return None
        arrived = self._monotonic()
        offset = stated.timestamp() - arrived
        if self._offset is None or self._is_better(offset) or arrived - self._sampled_at > SAMPLE_AGE_MAX:
            self._offset, self._sampled_at = offset, arrived
        return self._believe(stated)

    def _is_better(self, offset: float) -> bool:
        """Return whether an offset is closer to the server's clock, or so far behind that the clock was set back."""
        return self._offset is not None and (offset >= self._offset or offset < self._offset - STEP_BACK)

    def now(self) -> datetime | None:
        """Return a time that the server's clock has reached; None without a recent sample."""
        elapsed = self._monotonic() - self._sampled_at
        if self._offset is None or elapsed > SAMPLE_AGE_MAX:
            return None
        return self._believe(datetime.fromtimestamp(0, UTC) + timedelta(seconds=self._offset + self._monotonic()))

    def _believe(self, stated: datetime) -> datetime:
        own = stated if self._wall is None else self._wall()
        is_far_ahead = stated - own > SERVER_AHEAD_MAX
        self.ahead = stated - own if is_far_ahead else timedelta(0)
        return own if is_far_ahead else stated


def _parse(date: str | None) -> datetime | None:
    """Return the time of a Date header; None if it has none."""
    try:
        written = parsedate_to_datetime(date or "")
        stated = written.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return None if written.tzinfo is None else stated  # as local time it could be hours ahead


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
