"""The wall clock. No other module reads the time of day."""

from datetime import UTC, datetime


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """Return the current time, timezone-aware, in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - this is the one reader
