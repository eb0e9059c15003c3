"""What the installation said of itself: its last sweep, and its dead letters. The API server keeps Events an hour."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from shared.core.objects import get_in, get_text, parse_instant
from shared.core.ttl.durations import format_duration
from shared.doctor.findings import Finding, Place, ok, unknown, warn
from shared.installation.inventory import Listed, Obj
from shared.usecases.deadletter import REASON as DEAD_LETTER
from shared.usecases.sweep import SWEPT, SWEPT_IN_PART

KEPT_FOR = timedelta(hours=1)
"""The API server's default, --event-ttl."""

_ENDS = (SWEPT, SWEPT_IN_PART)

INTERVALS_MAX = 3
"""Sweeps that may be missing before it is said."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How sweeps are to come.

    Attributes:
        interval: Between two of them.
        since: When they began to be asked for; None where that is not known.
        logs: The command that shows what `sweep` says.
    """

    interval: timedelta
    since: datetime | None
    logs: str


def check_sweep(events: Listed, now: datetime, rhythm: Rhythm, place: Place) -> Finding:
    """When everything was last looked at.

    Args:
        events: Those about the installation.
        now: By the API server's clock.
        rhythm: What is expected.
        place: The installation.
    """
    if events.problem:
        return unknown("last sweep", events.problem, place)
    told = [(at, event) for event in events.items if get_text(event, "reason") in _ENDS and (at := time_of(event))]
    every = f"one is due every {format_duration(rhythm.interval)}"
    patience = INTERVALS_MAX * rhythm.interval
    if told:
        at, event = max(told, key=lambda one: one[0])
        ago = f"{format_duration(_whole(now - at))} ago"
        if now - at > patience:
            return warn("last sweep", f"{ago}, and {every}", rhythm.logs)
        if get_text(event, "reason") == SWEPT_IN_PART:
            return warn("last sweep", f"{ago}, but it {get_text(event, 'message')}", rhythm.logs)
        return ok("last sweep", f"{ago}; {every}")
    if rhythm.since is not None and now - rhythm.since < patience:
        return ok("last sweep", f"none yet, asked for since {rhythm.since:%H:%M:%S} UTC; {every}")
    if patience > KEPT_FOR:
        return warn("last sweep", f"cannot be told: Events are kept for an hour, and {every}", rhythm.logs)
    return warn("last sweep", f"none in the last hour, and {every}", rhythm.logs)


def check_dead_letters(events: Listed, now: datetime, place: Place) -> Finding:
    """Events of the last hour that no function would take. The same trouble is told once an hour."""
    if events.problem:
        return unknown("dead letters", events.problem, place)
    told = [
        event
        for event in events.items
        if get_text(event, "reason") == DEAD_LETTER and (at := time_of(event)) and now - at < KEPT_FOR
    ]
    if not told:
        return ok("dead letters", "none in the last hour")
    last = max(told, key=lambda event: time_of(event) or now)
    look = place.command("get", "events", "--field-selector", f"reason={DEAD_LETTER}")
    many = f"{len(told)} kinds of trouble" if len(told) > 1 else "one kind of trouble"
    return warn("dead letters", f"{many} in the last hour, the last: {get_text(last, 'message')}", look)


def time_of(event: Obj) -> datetime | None:
    """When it was stored, by the API server's clock; ours are written once."""
    candidates: list[Any] = [get_in(event, path) for path in ("metadata.creationTimestamp", "lastTimestamp")]
    for text in candidates:
        try:
            return parse_instant(text)
        except ValueError:
            continue
    return None


def _whole(age: timedelta) -> timedelta:
    return timedelta(seconds=max(0, int(age.total_seconds())))
