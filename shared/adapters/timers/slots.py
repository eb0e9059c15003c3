"""The seconds at which the retries of one object meet, on an engine that keeps earlier timers."""

import hashlib
import math
from datetime import UTC, datetime, timedelta

from shared.messages import Timer

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DOUBLINGS_MAX = 4  # 16 s, about a quarter of the longest back-off


def key_of(timer: Timer) -> str:
    """Return a hash of the purpose and the uid."""
    return hashlib.sha256(f"{timer.purpose}/{timer.ref.uid}".encode(errors="replace")).hexdigest()[:32]


def sent_at(timer: Timer, at: datetime, pause: float = 0.0) -> datetime:
    """Return the first second of a grid that is not before an instant.

    The longer the pause, the coarser the grid: each second, or one in 2, 4, 8 or 16 seconds, with an offset that
    depends on the key. So the retries of one timer meet: in the end, there are at most four a minute of it. Otherwise
    each sweep of an object whose timer always fails, and each event that arrives twice, would add a timer that is
    retried as long as it fails.

    Args:
        timer: The timer. If attempts failed, that was a pause, too.
        at: When it is to be sent.
        pause: The seconds that it waits until then, because it failed or found no place.
    """
    doublings = max(timer.attempts - 2, int(math.log2(max(pause, 1.0))))
    period = timedelta(seconds=2 ** min(doublings, _DOUBLINGS_MAX))
    try:
        return at + (_EPOCH + timedelta(seconds=int(key_of(timer)[:8], 16)) - at) % period
    except OverflowError:
        return at
