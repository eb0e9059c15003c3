"""Check what an installation shows only while it runs: its Lease, its last sweep and its dead letters.

The API server keeps the Events about sweeps and dead letters for an hour.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from shared.core.objects import get_text, parse_instant
from shared.core.scope import parse_scope
from shared.core.ttl.durations import format_duration
from shared.doctor.findings import Finding, fail, ok, unknown, warn
from shared.installation.defaults import LEASE
from shared.installation.inventory import Inventory, Listed
from shared.installation.leader import LEASE_AGE_MAX
from shared.installation.place import Place
from shared.installation.sweeps import find_last_sweep, time_of
from shared.ports import EventReason


def check_lease(found: Inventory, now: datetime, place: Place) -> Finding:
    """Check that a Pod of `standalone` holds the Lease."""
    if found.parts["Lease"].problem:
        return unknown("Lease", found.parts["Lease"].problem, place)
    lease = found.get("Lease", LEASE)
    holder = get_text(lease, "spec.holderIdentity")
    logs = place.command("logs", "deployment/standalone", "--tail=20")
    if not holder:
        return fail("Lease", "no Pod holds it, so nothing is deleted", logs)
    try:
        age = now - parse_instant(get_text(lease, "spec.renewTime"))
    except ValueError as error:
        return warn("Lease", f"held by {holder}; renewTime: {error}", logs)
    if age > LEASE_AGE_MAX:
        detail = f"{holder} has not renewed it for {age.total_seconds():.0f} s, so nothing is deleted"
        return fail("Lease", detail, logs)
    scope = parse_scope(lease)
    return ok("Lease", f"{holder} leads" + (f"; it handles {scope}" if scope else ""))


KEPT_FOR = timedelta(hours=1)
"""How long the API server keeps an Event: the default of --event-ttl."""

INTERVALS_MAX = 3
"""Sweep intervals without a sweep after which doctor reports a warning."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """The schedule of the sweeps.

    Attributes:
        interval: The time between two sweeps.
        since: When the schedule began; None if that is unknown.
        logs: The command that shows the log of `sweep`.
    """

    interval: timedelta
    since: datetime | None
    logs: str


def check_sweep(events: Listed, now: datetime, rhythm: Rhythm, *, place: Place) -> Finding:
    """Check that the last sweep of all objects is recent and complete.

    Args:
        events: The Events about the installation.
        now: The time, by the API server's clock.
        rhythm: The expected schedule.
        place: The installation.
    """
    if events.problem:
        return unknown("last sweep", events.problem, place)
    every = f"expected every {format_duration(rhythm.interval)}"
    age_max = INTERVALS_MAX * rhythm.interval
    if last := find_last_sweep(events.items):
        ago = f"{format_duration(_whole(now - last.at))} ago"
        if now - last.at > age_max:
            return warn("last sweep", f"{ago}; {every}", rhythm.logs)
        if not last.is_complete:
            return warn("last sweep", f"{ago}, but incomplete: {last.message}", rhythm.logs)
        return ok("last sweep", f"{ago}; {every}")
    if rhythm.since is not None and now - rhythm.since < age_max:
        return ok("last sweep", f"none yet; scheduled since {rhythm.since:%H:%M:%S} UTC, {every}")
    if age_max > KEPT_FOR:
        return warn("last sweep", f"unknown: Events are kept for an hour, and a sweep is {every}", rhythm.logs)
    return warn("last sweep", f"none in the last hour; {every}", rhythm.logs)


def check_dead_letters(events: Listed, now: datetime, place: Place) -> Finding:
    """Check the dead letters of the last hour. The same problem is reported in one Event an hour."""
    if events.problem:
        return unknown("dead letters", events.problem, place)
    letters = [
        event
        for event in events.items
        if get_text(event, "reason") == EventReason.DEAD_LETTER and (at := time_of(event)) and now - at < KEPT_FOR
    ]
    if not letters:
        return ok("dead letters", "none in the last hour")
    last = max(letters, key=lambda event: time_of(event) or now)
    show = place.command("get", "events", "--field-selector", f"reason={EventReason.DEAD_LETTER}")
    count = f"{len(letters)} different problems" if len(letters) > 1 else "one problem"
    return warn("dead letters", f"{count} in the last hour; the latest: {get_text(last, 'message')}", show)


def _whole(age: timedelta) -> timedelta:
    return timedelta(seconds=max(0, int(age.total_seconds())))
