"""Durations as people write them, such as `90s`, `1h30m` and `2d`, and the instants of timers.

All results follow from the arguments: nothing is stored, and no random source is needed.
"""

import hashlib
import math
import re
import zlib
from datetime import UTC, datetime, timedelta

from shared.core.values.objects import quote

# A century: far beyond any retention, far below what overflows a date.
DURATION_MAX = timedelta(days=36_500)
_EXPECTED = "expected seconds (3600) or a duration such as 90s, 1h30m, 2d, 1w"

_UNITS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
# Each unit at most once, the larger unit first: 30m1h is most likely a mistake. ASCII digits only.
_DURATION = re.compile("".join(f"(?:([0-9]{{1,12}}){unit})?" for unit in _UNITS))
_SECONDS = re.compile("[0-9]+")
_DIGITS_MAX = 12  # more seconds than a century has

_GO_LENGTH_MAX = 64
_GO_UNITS = {"h": 3_600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_GO_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_GO_DURATION = re.compile(rf"[-+]?(0|({_GO_PART.pattern})+)")


def parse_duration(text: str) -> timedelta:
    """Parse a duration that is not negative.

    Args:
        text: Plain seconds, or numbers with the units w, d, h, m, s, the larger unit first.

    Raises:
        ValueError: The text is anything else, or the duration is longer than a century.
    """
    if _SECONDS.fullmatch(text):
        seconds = int(text) if len(text) <= _DIGITS_MAX else math.inf
    else:
        match = _DURATION.fullmatch(text)
        if match is None or not text:
            raise ValueError(f"{_EXPECTED}, got {quote(text)}")
        seconds = sum(int(n or 0) * unit for n, unit in zip(match.groups(), _UNITS.values(), strict=True))
    if seconds > DURATION_MAX.total_seconds():
        raise ValueError(f"expected at most {DURATION_MAX.days}d, got {quote(text)}")
    return timedelta(seconds=seconds)


def or_never(error: ValueError) -> str:
    """The message of `parse_duration` for a value that may also be `never`."""
    return str(error).replace("expected ", "expected never, ", 1)


def parse_go_duration(text: object) -> timedelta:
    """Parse a duration in Go's format: `72h0m0s`, `1.5h`, `100ms`, `-1s`, `0`.

    Args:
        text: Decimal numbers, each with a unit: h, m, s, ms, us, ns; a sign may come first.

    Raises:
        ValueError: The value is anything else, or the duration is longer than a century.
    """
    match = _GO_DURATION.fullmatch(text) if isinstance(text, str) and len(text) <= _GO_LENGTH_MAX else None
    if match is None:
        raise ValueError(f"expected a duration such as 72h0m0s, got {quote(text)}")
    seconds = sum(float(number) * _GO_UNITS[unit] for number, unit in _GO_PART.findall(match[0]))
    if seconds > DURATION_MAX.total_seconds():
        raise ValueError(f"expected at most {DURATION_MAX.days}d, got {quote(text)}")
    return timedelta(seconds=-seconds if match[0].startswith("-") else seconds)


def format_duration(duration: timedelta) -> str:
    """The text that `parse_duration` reads back, in whole seconds; a negative duration has a minus sign."""
    rest = int(duration.total_seconds())
    if rest < 0:
        return f"-{format_duration(-duration)}"
    parts = []
    for unit, seconds in _UNITS.items():
        if unit == "w":
            continue  # 10d is easier to read than 1w3d
        count, rest = divmod(rest, seconds)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def add(instant: datetime, duration: timedelta) -> datetime:
    """The sum, or the last instant that a datetime can hold."""
    try:
        return instant + duration
    except OverflowError:
        return datetime.max.replace(tzinfo=instant.tzinfo)


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
