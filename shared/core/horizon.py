"""Compute how far ahead objects get a timer; an object that is due later gets its timer from a later sweep."""

from datetime import timedelta

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
