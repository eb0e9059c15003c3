"""What all processes of an installation share, and what outlives them: a tripped breaker, and names in a loop.

It is the `data` of a ConfigMap, each value compact JSON:

    breaker       {"at": "2026-01-02T03:04:05Z", "why": "...", "by": "sweep"}    there: tripped
    stop          {"at": "2026-01-02T03:04:05Z", "why": "...", "by": "ann"}      there: a person stopped all deletions
    recreation    {"Job.batch/ci/build-42": "2026-01-02T03:14:05Z"}              left alone until then
    kept          ["Job.batch/ci/build-42"]                                      some of what the open breaker keeps
    deletions     how many were deleted lately, see `deletion_counts`
    names         which names were deleted lately, see `recreation`

Whoever cannot read that something tripped must take it for tripped: any value of `breaker` but none counts. Of all
else, what nobody can read is not there. `stop` stops whatever its value is, even empty: text that is not such JSON is
the reason, so `kubectl patch configmap` sets the brake, too.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from shared.core.jsontext import parse_json
from shared.core.objects import format_instant, get_text, parse_instant, printable
from shared.ports import EventLevel, EventReason, State

HOME = "ttl-after-finished"
"""The namespace of an installation, where TTL_NAMESPACE names no other."""

NAME = "ttl-after-finished-state"
"""Of the ConfigMap, in the installation's namespace."""

BREAKER = "breaker"
STOP = "stop"
RECREATION = "recreation"
KEPT = "kept"
DELETIONS = "deletions"
NAMES = "names"

AFTER = "after"
"""In the value of `deletions`: the last trip, since when they count; where there was none it is empty."""

LOOPS_MAX = 200
"""Names that are left alone at a time, and that outlive a restart: some 80 kB at the most, of a ConfigMap's MiB."""

AHEAD_MAX = timedelta(minutes=1)
"""How far another's clock may be ahead of ours; what is said to have been deleted later than that is nonsense."""

OPEN = EventReason.BREAKER_OPEN
"""Of the Kubernetes Event about the installation, when the breaker trips."""

RELEASED = EventReason.BREAKER_RELEASED
"""The same, when somebody released it."""

Data = Mapping[str, str]
Tell = Callable[[str, str, EventLevel], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Trip:
    """Why nothing is deleted any more.

    Attributes:
        at: Since when; None where that cannot be read.
        why: In one sentence.
        by: The function that tripped it.
    """

    at: datetime | None
    why: str
    by: str = ""

    def __str__(self) -> str:
        """`since 2026-01-02T03:04:05Z: 1000 objects were deleted within 10m, ...`."""
        since = f"since {format_instant(self.at)}: " if self.at else ""
        return printable(f"{since}{self.why}")  # anybody may have edited it


@dataclass(frozen=True, slots=True)
class Stop:
    """The brake: a person stopped all deletions.

    Attributes:
        at: Since when; None where that cannot be read.
        why: The person's reason; empty where there is none.
        by: The person, as the API server names them; empty where that cannot be read.
    """

    at: datetime | None
    why: str
    by: str = ""

    def __str__(self) -> str:
        """`since 2026-01-02T03:04:05Z by ann: the dashboards look wrong`."""
        since = f"since {format_instant(self.at)}" if self.at else ""
        head = " ".join(part for part in (since, f"by {self.by}" if self.by else "") if part)
        return printable(": ".join(part for part in (head, self.why) if part)) or "without a reason"


@dataclass(frozen=True, slots=True)
class StateContents:
    """What stands now.

    Attributes:
        trip: None while the breaker is closed.
        loops: Names that are left alone, and until when.
        after: When it tripped the last time; empty where it never did.
        stop: None while nobody has stopped the deletions.
        kept: The first few names of what the open breaker keeps.
    """

    trip: Trip | None = None
    loops: Mapping[str, datetime] = field(default_factory=dict)
    after: str = ""
    stop: Stop | None = None
    kept: tuple[str, ...] = ()

    def name_kept(self, shown: int) -> str:
        """`; it keeps Job.batch/ci/a, Job.batch/ci/b and 3 more`; empty where no name is known."""
        names = self.kept[:shown]
        more = f" and at least {len(self.kept) - shown} more" if len(self.kept) > shown else ""
        return printable(f"; it keeps {', '.join(names)}{more}") if names else ""

    def has_ended(self, trip: Trip) -> bool:
        """Whether this trip was written, though its process may never have heard of that, and was released."""
        return self.trip is None and trip.at is not None and self.after == format_instant(trip.at)


def parse_standing(data: Data) -> StateContents:
    """What the ConfigMap's data say; it never raises, since anybody may have edited them."""
    after = get_text(read_json(data.get(DELETIONS, "")), AFTER)
    trip, loops = _parse_trip(data.get(BREAKER, "")), _parse_loops(data.get(RECREATION, ""))
    stop = _parse_stop(data[STOP]) if STOP in data else None
    return StateContents(trip, loops, after, stop, parse_kept(data) if trip else ())


def parse_kept(data: Data) -> tuple[str, ...]:
    """The names in the data's list of what was kept; none where it cannot be read."""
    names = read_json(data.get(KEPT, ""))
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def with_stop(data: Data, stop: Stop) -> dict[str, str]:
    """The data with the brake set; a later reason replaces an earlier one."""
    told = {"at": format_instant(stop.at) if stop.at else "", "why": stop.why, "by": stop.by}
    return {**data, STOP: compact(told)}


def without_stop(data: Data) -> dict[str, str]:
    """The data with the brake released; an open breaker stays open."""
    return {name: value for name, value in data.items() if name != STOP}


def with_trip(data: Data, trip: Trip) -> dict[str, str]:
    """The data with a trip; one that is there stays, the first being the one that tells why.

    Nothing is counted any more: after the release, whoever makes it, it would trip again at once.
    """
    if data.get(BREAKER) or parse_standing(data).has_ended(trip):
        return dict(data)
    told = {"at": format_instant(trip.at) if trip.at else "", "why": trip.why, "by": trip.by}
    others = {name: value for name, value in data.items() if name != KEPT}
    return {**others, BREAKER: compact(told), DELETIONS: compact({AFTER: told["at"]})}


def without_trip(data: Data) -> dict[str, str]:
    """The data with a closed breaker, and without what others have counted up to its trip."""
    at = get_text(read_json(data.get(BREAKER, "")), "at")
    kept = {name: value for name, value in data.items() if name not in (BREAKER, KEPT)}
    return {**kept, DELETIONS: compact({AFTER: at})}


def with_loop(data: Data, name: str, until: datetime, now: datetime) -> dict[str, str]:
    """The data with one more name that is left alone; those whose time has come are dropped."""
    loops = {**_parse_loops(data.get(RECREATION, "")), name: until}
    contents = sorted(((at, one) for one, at in loops.items() if at > now), reverse=True)[:LOOPS_MAX]
    return {**data, RECREATION: compact({one: format_instant(at) for at, one in sorted(contents)})}


def read_json(text: str) -> Any:
    """The value of a text that anybody may have edited; None where it is no JSON."""
    with suppress(ValueError):
        return parse_json(text)
    return None


def compact(value: Any) -> str:
    """A value as JSON, without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


async def release_breaker(state: State, write_event: Tell) -> Trip | None:
    """Close the breaker; every process deletes again within seconds, and counts anew.

    Args:
        state: Where it is kept.
        write_event: Writes a Kubernetes Event about the installation.

    Returns:
        What had tripped it; None where it was closed.

    Raises:
        TtlError: The state cannot be read or written.
    """
    trip = parse_standing(await state.read()).trip
    if trip is None:
        return None
    await state.write(without_trip)
    await write_event(RELEASED, f"deletes again; nothing was deleted {trip}", "Normal")
    return trip


def _parse_trip(text: str) -> Trip | None:
    if not text:
        return None
    told = read_json(text)
    at = None
    with suppress(ValueError):
        at = parse_instant(get_text(told, "at"))
    return Trip(at, get_text(told, "why") or "nobody can read why", get_text(told, "by"))


def _parse_stop(text: str) -> Stop:
    told = read_json(text)
    if not isinstance(told, dict):
        return Stop(None, text.strip())
    at = None
    with suppress(ValueError):
        at = parse_instant(get_text(told, "at"))
    return Stop(at, get_text(told, "why"), get_text(told, "by"))


def _parse_loops(text: str) -> dict[str, datetime]:
    loops = {}
    told = read_json(text)
    for name, until in told.items() if isinstance(told, dict) else ():
        with suppress(ValueError):
            loops[name] = parse_instant(until)
    return loops
