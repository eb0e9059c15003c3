"""Compute instants of timers: how far ahead one is set, the next attempt after a failure, and a spread of overdue ones.

All results follow from the arguments: nothing is stored, and no random source is needed.
"""

import hashlib
import zlib
from datetime import UTC, datetime, timedelta

SWEEPS_AHEAD = 2
"""A sweep sets timers for objects that are due within so many intervals, so one sweep may be missed."""

HORIZON_MIN = timedelta(minutes=10)
"""The shortest horizon: a sweep may take longer than a short interval."""


def sweep_ahead(interval: timedelta) -> timedelta:
    """How far ahead a sweep sets timers.

    Args:
        interval: Time between two sweeps.
    """
    return SWEEPS_AHEAD * interval


def horizon(interval: timedelta) -> timedelta:
    """How far ahead the `timers` function keeps a timer; this bounds the number of pending timers.

    If an object is deleted early, its timer remains. Without a bound, objects with a TTL of years that are created,
    finished and deleted would fill the disk of `timers`.

    Args:
        interval: Time between two sweeps.
    """
    return max(sweep_ahead(interval), HORIZON_MIN)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def jittered(uid: str, now: datetime, over: timedelta) -> datetime:
    """The next instant for an object's deletion, after `now` and at most `over` later.

    The instants repeat with the period `over`, at an offset that depends only on the uid. So every call before that
    instant returns the same instant.

    Args:
        uid: The object's uid, from which its offset follows.
        now: The current instant, aware.
        over: The time over which deletions are spread; more than zero.
    """
    digest = hashlib.sha256(uid.encode(errors="replace")).digest()
    offset = over * (int.from_bytes(digest[:8], "big") / 2**64)
    try:
        return now + over - (now - _EPOCH - offset) % over
    except OverflowError:
        return now


BACKOFF_SECONDS = 0.5
"""The wait before the first retry; it doubles for each further retry."""

BACKOFF_SECONDS_MAX = 60.0
"""The longest wait, and so the longest delay of a retry after the end of an outage."""

_DOUBLINGS_MAX = 30  # a thousand doublings would overflow a float


def backoff_seconds(attempts: int, *, least: float = 0.0, jitter: float = 0.0) -> float:
    """The seconds to wait after an attempt that failed.

    Args:
        attempts: How many attempts failed before this one.
        least: The wait that the server asks for, in seconds; at most `BACKOFF_SECONDS_MAX` of it counts.
        jitter: 0 to 1; takes off up to a quarter, so that retries spread out.
    """
    longest = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS * 2.0 ** min(attempts, _DOUBLINGS_MAX))
    return max(longest * (1 - jitter / 4), min(least, BACKOFF_SECONDS_MAX))


def jitter_of(uid: str, attempts: int) -> float:
    """A jitter from 0 to 1 that follows from the object and the attempt, so that no random source is needed."""
    return zlib.crc32(f"{uid}/{attempts}".encode(errors="replace")) / 2**32
