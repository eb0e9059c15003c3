"""The times of timers: as integers, and when an attempt is made after failed ones.

An integer is a number of microseconds since 1970 in UTC, the resolution of `datetime`, so no time is rounded.
"""

import hashlib
import math
from datetime import UTC, datetime, timedelta

from shared.core.values.timing import backoff_seconds
from shared.messages import Timer

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DOUBLINGS_MAX = 4  # 16 s, about a quarter of the longest back-off


def microseconds(instant: datetime) -> int:
    """Return an aware time as an integer."""
    return (instant - _EPOCH) // _MICROSECOND


def instant_of(number: int) -> datetime:
    """Return the time of an integer; the inverse of `microseconds`.

    Raises:
        ValueError: There is no such time.
    """
    try:
        return _EPOCH + number * _MICROSECOND
    except OverflowError as error:
        raise ValueError(f"expected microseconds since 1970, got {number}") from error


def later(instant: datetime, by: timedelta) -> datetime:
    """Return a later time; the last one that there is if it would be beyond."""
    try:
        return instant + by
    except OverflowError:
        return datetime.max.replace(tzinfo=instant.tzinfo)


def first_attempt_at(timer: Timer, now: datetime) -> datetime:
    """Return when a timer that is set fires.

    A timer with failed attempts is not tried before its back-off ends by the engine's own clock: the clock of the
    process that set it may be behind.
    """
    if not timer.attempts:
        return timer.due_at
    return max(timer.due_at, later(now, timedelta(seconds=backoff_seconds(timer.attempts - 1, jitter=1.0))))


def key_of(timer: Timer) -> str:
    """Return a hash of the purpose and the uid."""
    return hashlib.sha256(f"{timer.purpose}/{timer.ref.uid}".encode(errors="replace")).hexdigest()[:32]


def sent_at(timer: Timer, at: datetime, pause: float = 0.0) -> datetime:
    """Return the first second of a grid that is not before an instant: there the retries of one object meet.

    An engine that keeps earlier timers needs it. The longer the pause, the coarser the grid: each second, or one in 2,
    4, 8 or 16 seconds, with an offset that depends on the key. So in the end, there are at most four a minute of it.
    Otherwise each sweep of an object whose timer always fails, and each event that arrives twice, would add a timer
    that is retried as long as it fails.

    Args:
        timer: The timer. If attempts failed, that was a pause, too.
        at: When it is to be sent.
        pause: The seconds that it waits until then, because it failed or found no permit.
    """
    doublings = max(timer.attempts - 2, int(math.log2(max(pause, 1.0))))
    period = timedelta(seconds=2 ** min(doublings, _DOUBLINGS_MAX))
    try:
        return at + (_EPOCH + timedelta(seconds=int(key_of(timer)[:8], 16)) - at) % period
    except OverflowError:
        return at
