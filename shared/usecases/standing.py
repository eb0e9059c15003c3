"""What all processes of an installation share, and what outlives them: a tripped breaker, and names in a loop.

It is the `data` of a ConfigMap, each value compact JSON:

    breaker       {"at": "2026-01-02T03:04:05Z", "why": "...", "by": "sweep"}    there: tripped
    recreation    {"Job.batch/ci/build-42": "2026-01-02T03:14:05Z"}              left alone until then
    deletions     how many were deleted lately, see `tally`
    names         which names were deleted lately, see `recreation`

Whoever cannot read that something tripped must take it for tripped: any value of `breaker` but none counts. Of all
else, what nobody can read is not there.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from shared.core.objects import format_instant, get_text, parse_instant, printable
from shared.ports import EventLevel, State

NAME = "ttl-after-finished-state"
"""Of the ConfigMap, in the installation's namespace."""

BREAKER = "breaker"
RECREATION = "recreation"
DELETIONS = "deletions"
NAMES = "names"

AFTER = "after"
"""In the value of `deletions`: the last trip, since when they count; where there was none it is empty."""

LOOPS_MAX = 200
"""Names that are left alone at a time, and that outlive a restart: some 80 kB at the most, of a ConfigMap's MiB."""

AHEAD_MAX = timedelta(minutes=1)
"""How far another's clock may be ahead of ours; what is said to have been deleted later than that is nonsense."""

OPEN = "BreakerOpen"
"""Of the Kubernetes Event about the installation, when the breaker trips."""

RELEASED = "BreakerReleased"
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
class Standing:
    """What stands now.

    Attributes:
        trip: None while the breaker is closed.
        loops: Names that are left alone, and until when.
        after: When it tripped the last time; empty where it never did.
    """

    trip: Trip | None = None
    loops: Mapping[str, datetime] = field(default_factory=dict)
    after: str = ""

    def has_ended(self, trip: Trip) -> bool:
        """Whether this trip was written, though its process may never have heard of that, and was released."""
        return self.trip is None and trip.at is not None and self.after == format_instant(trip.at)


def parse_standing(data: Data) -> Standing:
    """What the ConfigMap's data say; it never raises, since anybody may have edited them."""
    after = get_text(read_json(data.get(DELETIONS, "")), AFTER)
    return Standing(_parse_trip(data.get(BREAKER, "")), _parse_loops(data.get(RECREATION, "")), after)


def with_trip(data: Data, trip: Trip) -> dict[str, str]:
    """The data with a trip; one that is there stays, the first being the one that tells why.

    Nothing is counted any more: after the release, whoever makes it, it would trip again at once.
    """
    if data.get(BREAKER) or parse_standing(data).has_ended(trip):
        return dict(data)
    told = {"at": format_instant(trip.at) if trip.at else "", "why": trip.why, "by": trip.by}
    return {**data, BREAKER: compact(told), DELETIONS: compact({AFTER: told["at"]})}


def without_trip(data: Data) -> dict[str, str]:
    """The data with a closed breaker, and without what others have counted up to its trip."""
    at = get_text(read_json(data.get(BREAKER, "")), "at")
    kept = {name: value for name, value in data.items() if name != BREAKER}
    return {**kept, DELETIONS: compact({AFTER: at})}


def with_loop(data: Data, name: str, until: datetime, now: datetime) -> dict[str, str]:
    """The data with one more name that is left alone; those whose time has come are dropped."""
    loops = {**_parse_loops(data.get(RECREATION, "")), name: until}
    standing = sorted(((at, one) for one, at in loops.items() if at > now), reverse=True)[:LOOPS_MAX]
    return {**data, RECREATION: compact({one: format_instant(at) for at, one in sorted(standing)})}


def read_json(text: str) -> Any:
    """The value of a text that anybody may have edited; None where it is no JSON."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return None


def compact(value: Any) -> str:
    """A value as JSON, without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


async def release_breaker(state: State, tell: Tell) -> Trip | None:
    """Close the breaker; every process deletes again within seconds, and counts anew.

    Args:
        state: Where it is kept.
        tell: Writes a Kubernetes Event about the installation.

    Returns:
        What had tripped it; None where it was closed.

    Raises:
        TtlError: The state cannot be read or written.
    """
    trip = parse_standing(await state.read()).trip
    if trip is None:
        return None
    await state.write(without_trip)
    await tell(RELEASED, f"deletes again; nothing was deleted {trip}", "Normal")
    return trip


def _parse_trip(text: str) -> Trip | None:
    if not text:
        return None
    told = read_json(text)
    at = None
    with suppress(ValueError):
        at = parse_instant(get_text(told, "at"))
    return Trip(at, get_text(told, "why") or "nobody can read why", get_text(told, "by"))


def _parse_loops(text: str) -> dict[str, datetime]:
    loops = {}
    told = read_json(text)
    for name, until in told.items() if isinstance(told, dict) else ():
        with suppress(ValueError):
            loops[name] = parse_instant(until)
    return loops
