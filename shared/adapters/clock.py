"""The wall clock: the only place that reads it."""

from datetime import UTC, datetime


class SystemClock:
    """This machine's clock."""

    def now(self) -> datetime:
        """The current instant, aware, in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - this is the one reader
