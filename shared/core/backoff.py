"""Compute the wait before the next attempt: it doubles after each failure, up to a bound."""

import zlib

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
