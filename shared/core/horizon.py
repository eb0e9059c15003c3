"""How far ahead an object gets a timer: what is due later gets its timer from a later sweep."""

from datetime import timedelta

SWEEPS_AHEAD = 2
"""A sweep sets timers for what is due within two intervals, so one sweep may be missed."""

HORIZON_MIN = timedelta(minutes=10)
"""What `schedule` may set a timer for at the least: a sweep may take longer than a short interval."""


def sweep_ahead(interval: timedelta) -> timedelta:
    """How far ahead a sweep sets timers.

    Args:
        interval: Time between two sweeps.
    """
    return SWEEPS_AHEAD * interval


def horizon(interval: timedelta) -> timedelta:
    """How far ahead `timers` keeps a timer at all: so many objects as finish within it can be pending.

    A timer outlives its object if that is deleted early. Without a bound, objects that are made, finished and deleted
    with a TTL of years would fill the disk of the timers.

    Args:
        interval: Time between two sweeps.
    """
    return max(sweep_ahead(interval), HORIZON_MIN)
