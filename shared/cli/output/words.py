"""Counts and instants as the commands print them."""

from datetime import datetime, timedelta

from shared.core.ttl.durations import format_duration
from shared.core.values.objects import format_instant


def plural(count: int, one: str, several: str = "") -> str:
    """`1 child`, `2 children`."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


def describe_time(instant: datetime, now: datetime) -> str:
    """Return `in 5m` or `3h ago`."""
    distance = instant - now
    if distance < timedelta(0):
        return f"{format_duration(now - instant)} ago"
    return f"in {format_duration(distance)}"


def describe_instant(instant: datetime, now: datetime) -> str:
    """Return `2026-01-02T03:04:05Z (in 5m)`."""
    is_now = abs(instant - now) < timedelta(seconds=1)
    return f"{format_instant(instant)} ({'just now' if is_now else describe_time(instant, now)})"


def instant_as_json(instant: datetime | None) -> str | None:
    """Return an instant as RFC 3339 in UTC; None, which is null, if it is unknown."""
    return None if instant is None else format_instant(instant)
