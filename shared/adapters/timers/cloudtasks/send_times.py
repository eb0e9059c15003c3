"""When a task is to be sent: pure, without a clock."""

from datetime import datetime, timedelta

from shared.core.values.timing import BACKOFF_SECONDS_MAX, backoff_seconds
from shared.messages import Timer

PUT_OFF_SECONDS = 2.0
"""The least wait of a timer that found no place."""

AHEAD_MAX = timedelta(days=29)
"""How far ahead a task is scheduled: Cloud Tasks accepts 30 days by its own clock, and keeps a task for 31 days."""


def first_at(timer: Timer, now: datetime) -> datetime:
    """Return when a new timer is sent first: at its due time, and after the back-off of its failed attempts."""
    if not timer.attempts:
        return timer.due_at
    return max(timer.due_at, later(now, timedelta(seconds=backoff_seconds(timer.attempts - 1, jitter=1.0))))


def put_off_seconds(timer: Timer, scheduled_at: datetime, jitter: float) -> float:
    """Return how long a timer waits that found no place: as long as since its due time, so that a crowd thins out.

    Args:
        timer: The timer.
        scheduled_at: When its task was to be sent.
        jitter: 0 to 1; takes off up to a quarter.
    """
    since = (scheduled_at - timer.due_at).total_seconds()
    return min(max(since, PUT_OFF_SECONDS), BACKOFF_SECONDS_MAX) * (1 - jitter / 4)


def within_reach(at: datetime, now: datetime) -> datetime:
    """Return an instant, or the last one that Cloud Tasks accepts."""
    return min(at, later(now, AHEAD_MAX))


def later(instant: datetime, by: timedelta) -> datetime:
    """Return a later instant; the last one that there is if it would be beyond."""
    try:
        return instant + by
    except OverflowError:
        return datetime.max.replace(tzinfo=instant.tzinfo)
