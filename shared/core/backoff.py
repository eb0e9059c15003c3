"""How long to wait before the next attempt: doubled after each failure, up to a bound."""

import zlib

BACKOFF_SECONDS = 0.5
"""Before the first retry; doubled for each further one."""

BACKOFF_SECONDS_MAX = 60.0
"""The longest wait: an outage delays a retry by at most this after its end."""

_DOUBLINGS_MAX = 30  # a float cannot hold a thousand


def backoff_seconds(attempts: int, *, least: float = 0.0, jitter: float = 0.0) -> float:
    """The seconds to wait after an attempt that failed.

    Args:
        attempts: How many attempts failed before this one.
        least: What the other side asked for, in seconds; never more than `BACKOFF_SECONDS_MAX` is waited for it.
        jitter: 0 to 1; takes off up to a quarter, so that retries spread out.
    """
    longest = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS * 2.0 ** min(attempts, _DOUBLINGS_MAX))
    return max(longest * (1 - jitter / 4), min(least, BACKOFF_SECONDS_MAX))


def jitter_of(uid: str, attempts: int) -> float:
    """A jitter from 0 to 1 that follows from the object and the attempt, so that no random source is needed."""
    return zlib.crc32(f"{uid}/{attempts}".encode(errors="replace")) / 2**32
