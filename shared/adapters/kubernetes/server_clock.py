"""What time it is at the API server, never ahead of it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

SAMPLE_AGE_MAX = 60.0
"""Seconds for which a sample counts: a server clock that is set back is believed after this at the latest."""

AHEAD_MAX = timedelta(seconds=60)
"""How far a Date may be ahead of this machine's clock and still be believed: a proxy may write one of its own."""

STEP_BACK = 2.0
"""Seconds by which a sample must contradict the bound to replace it: rounding explains one, a slow answer some more."""


class ServerClock:
    """A lower bound of the API server's clock, from the `Date` of its answers.

    The header is rounded down to whole seconds and is old by the time it arrives, so "Date plus the time since it
    arrived" is never ahead of the server. Of the samples of the last minute the one that says latest is the nearest.

    Args:
        monotonic: Seconds that never go back; not counting a suspended machine, which errs to the late side.
        wall: This machine's clock. A Date further ahead of it than AHEAD_MAX gives way to it, so that one wrong clock
            of the two can only make things late. None compares with nothing.

    Attributes:
        ahead: By how much the server's clock was ahead of what `observe` or `now` gave last in its place; mostly zero.
    """

    def __init__(self, monotonic: Callable[[], float], wall: Callable[[], datetime] | None = None) -> None:
        self.ahead = timedelta(0)
        self._monotonic = monotonic
        self._wall = wall
        self._offset: float | None = None
        self._sampled_at = 0.0

    def observe(self, date: str | None) -> datetime | None:
        """Take the Date header of an answer; returns the instant to decide by, or None where it states none."""
        try:
            written = parsedate_to_datetime(date or "")
            stated = written.astimezone(UTC)
        except (ValueError, OverflowError):
            return None
        if written.tzinfo is None:  # read as local time it could be hours ahead
            return None
        arrived = self._monotonic()
        offset = stated.timestamp() - arrived
        if self._offset is None or self._is_better(offset) or arrived - self._sampled_at > SAMPLE_AGE_MAX:
            self._offset, self._sampled_at = offset, arrived
        return self._believe(stated)

    def _is_better(self, offset: float) -> bool:
        """Nearer to the server's clock; or so far behind that the clock was set back, or is another server's."""
        return self._offset is not None and (offset >= self._offset or offset < self._offset - STEP_BACK)

    def now(self) -> datetime | None:
        """An instant that the server's clock has reached; None where it was not heard of lately."""
        elapsed = self._monotonic() - self._sampled_at
        if self._offset is None or elapsed > SAMPLE_AGE_MAX:
            return None
        return self._believe(datetime.fromtimestamp(0, UTC) + timedelta(seconds=self._offset + self._monotonic()))

    def _believe(self, stated: datetime) -> datetime:
        own = stated if self._wall is None else self._wall()
        is_far_ahead = stated - own > AHEAD_MAX
        self.ahead = stated - own if is_far_ahead else timedelta(0)
        return own if is_far_ahead else stated
