"""The schema of the state that all processes of an installation share: brake, breaker, loops and recent deletions.

The state is the `data` of a ConfigMap. Each value but `last-trip` is compact JSON:

    breaker          {"at": "2026-01-02T03:04:05Z", "why": "...", "by": "sweep"}  present: the breaker is open
    last-trip        2026-01-02T03:04:05Z                                         also after the release
    stop             {"at": "2026-01-02T03:04:05Z", "why": "...", "by": "ann"}    present: deletions are stopped
    recreation       {"Job.batch/ci/build-42": "2026-01-02T03:14:05Z"}            names kept until an instant
    kept             ["Job.batch/ci/build-42"]                                    names that the open breaker keeps
    deletions.*.*    recent deletions of a process, see `deletion_counts`
    names            names of recent deletions, see `denials`
    archives         {"main": {"id": "...", "location": "s3://..."}}              which archive each name means
    accepted-plan    {"at": "2026-01-02T03:04:05Z", "by": "ann", "rules": ["0f3c..."]}   see `AcceptedPlan`

The breaker is open if `breaker` has any value that is not empty, also one that cannot be read. The brake is set if
`stop` is present, even if its value is empty. A text that is not such JSON is the reason of the stop, so
`kubectl patch configmap` sets the brake, too. If `archives` cannot be read, no archive is used. All other values that
cannot be read are ignored.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Protocol

from shared.core.archive.identity import KnownArchive
from shared.core.policy.policy import Policy
from shared.core.policy.policy_rule import PolicyRule
from shared.core.values.jsontext import parse_json
from shared.core.values.objects import format_instant, get_in, get_text, parse_instant, printable

HOME = "ttl-after-finished"
"""The namespace of an installation, unless TTL_NAMESPACE names another."""

NAME = "ttl-after-finished-state"
"""The name of the ConfigMap in the installation's namespace."""

BREAKER = "breaker"
STOP = "stop"
RECREATION = "recreation"
KEPT = "kept"
NAMES = "names"
ARCHIVES = "archives"

DELETIONS = "deletions."
"""The beginning of the keys with recent deletions; each process writes its own."""

LAST_TRIP = "last-trip"
"""The instant of the last trip, since which deletions count; or what a user wrote to open the breaker."""

LAST_TRIP_MAX = 40
"""Characters that are kept of what a user wrote."""

LOOPS_MAX = 200
"""Names that are kept, also after a restart: at most about 80 kB of a ConfigMap's MiB."""

PROCESS_AHEAD_MAX = timedelta(minutes=1)
"""How far the clock of another process may be ahead; a deletion further in the future is ignored."""

Data = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Trip:
    """Why the breaker is open.

    Attributes:
        at: When it tripped; None if that cannot be read.
        why: The reason, in one sentence.
        by: The function that tripped it.
    """

    at: datetime | None
    why: str
    by: str = ""

    def __str__(self) -> str:
        """`since 2026-01-02T03:04:05Z: 1000 objects were deleted within 10m, ...`."""
        since = f"since {format_instant(self.at)}: " if self.at else ""
        return printable(f"{since}{self.why}")  # a user may have edited it


@dataclass(frozen=True, slots=True)
class BrakeStop:
    """The brake: a person stopped all deletions.

    Attributes:
        at: Since when; None if that cannot be read.
        why: The person's reason; empty if there is none.
        by: The person's user name at the API server; empty if that cannot be read.
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
    """The contents of the state.

    Attributes:
        trip: None while the breaker is closed.
        loops: Names that are kept, each until an instant.
        last_trip: When the breaker tripped the last time; empty if it never did.
        stop: None while the deletions are not stopped.
        kept: The first names that the open breaker keeps.
        archives: The archives that are remembered, by name; None if they cannot be read.
    """

    trip: Trip | None = None
    loops: Mapping[str, datetime] = field(default_factory=dict)
    last_trip: str = ""
    stop: BrakeStop | None = None
    kept: tuple[str, ...] = ()
    archives: Mapping[str, KnownArchive] | None = field(default_factory=dict)

    def name_kept(self, shown: int) -> str:
        """`; it keeps Job.batch/ci/a, Job.batch/ci/b and 3 more`; empty if no name is known."""
        names = self.kept[:shown]
        more = f" and at least {len(self.kept) - shown} more" if len(self.kept) > shown else ""
        return printable(f"; it keeps {', '.join(names)}{more}") if names else ""

    def has_ended(self, trip: Trip) -> bool:
        """Return whether this trip was written and released; its process may have got no answer to the write."""
        return self.trip is None and trip.at is not None and self.last_trip == format_instant(trip.at)


class StatePart(Protocol):
    """One part of the state: this process adds what it knows to the data, and reads what all processes know.

    The parts are deletion counts, recreated names, and names that the open breaker keeps.
    """

    @property
    def has_unwritten(self) -> bool:
        """Return whether this process knows something that is not in the data."""
        ...

    def merge(self, data: Data, now: datetime) -> Data:
        """Return the data with what only this process knew; may be called more than once, since others write, too."""
        ...

    def learn(self, data: Data, now: datetime, *, is_written: bool) -> None:
        """Read what all processes know.

        Args:
            data: The present data.
            now: By the wall clock.
            is_written: Whether `data` is the result of `merge`.
        """
        ...


def parse_state(data: Data) -> StateContents:
    """Parse the data of the ConfigMap; never raises, since a user may have edited them."""
    trip, loops = _parse_trip(data.get(BREAKER, "")), _parse_loops(data.get(RECREATION, ""))
    stop = _parse_stop(data[STOP]) if STOP in data else None
    kept = parse_kept(data) if trip else ()
    return StateContents(trip, loops, data.get(LAST_TRIP, ""), stop, kept, _parse_archives(data.get(ARCHIVES, "")))


def parse_kept(data: Data) -> tuple[str, ...]:
    """Return the names that the open breaker keeps; none if the list cannot be read."""
    names = read_json(data.get(KEPT, ""))
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def with_stop(data: Data, stop: BrakeStop) -> dict[str, str]:
    """Return the data with the brake set; a later reason replaces an earlier one."""
    value = {"at": format_instant(stop.at) if stop.at else "", "why": stop.why, "by": stop.by}
    return {**data, STOP: compact(value)}


def without_stop(data: Data) -> dict[str, str]:
    """Return the data with the brake released; an open breaker stays open."""
    return {name: value for name, value in data.items() if name != STOP}


def with_trip(data: Data, trip: Trip) -> dict[str, str]:
    """Return the data with an open breaker; if it is open already, the first trip stays.

    The counted deletions are removed: after a release, they would trip the breaker again at once.
    """
    if data.get(BREAKER) or parse_state(data).has_ended(trip):
        return dict(data)
    value = {"at": format_instant(trip.at) if trip.at else "", "why": trip.why, "by": trip.by}
    return {**_without_counts(data), BREAKER: compact(value), LAST_TRIP: value["at"]}


def without_trip(data: Data) -> dict[str, str]:
    """Return the data with a closed breaker, and without the deletions that were counted up to its trip."""
    text = data.get(BREAKER, "")
    if not text:
        return dict(data)
    last_trip = get_text(read_json(text), "at") or text
    others = {name: value for name, value in _without_counts(data).items() if name != BREAKER}
    return {**others, LAST_TRIP: last_trip[:LAST_TRIP_MAX]}


def _without_counts(data: Data) -> dict[str, str]:
    return {name: value for name, value in data.items() if name != KEPT and not name.startswith(DELETIONS)}


def with_loop(data: Data, name: str, until: datetime, now: datetime) -> dict[str, str]:
    """Return the data with one more name that is kept; names whose time has passed are removed."""
    loops = {**_parse_loops(data.get(RECREATION, "")), name: until}
    contents = sorted(((at, one) for one, at in loops.items() if at > now), reverse=True)[:LOOPS_MAX]
    return {**data, RECREATION: compact({one: format_instant(at) for at, one in sorted(contents)})}


def with_archive(data: Data, name: str, known: KnownArchive, *, replaces: bool = False) -> dict[str, str]:
    """Return the data with one more archive; one that is remembered stays, unless it is replaced.

    What cannot be read stays, too, and is replaced as a whole. Other names of a replaced archive's destination mean the
    new archive, too.
    """
    before = _parse_archives(data.get(ARCHIVES, ""))
    if not replaces and (before is None or name in before):
        return dict(data)
    others = {
        one: known if replaces and other.location == known.location else other for one, other in (before or {}).items()
    }
    archives = {**others, name: known}
    value = {one: {"id": known.id, "location": known.location} for one, known in sorted(archives.items())}
    return {**data, ARCHIVES: compact(value)}


def read_json(text: str) -> Any:
    """Parse a text that a user may have edited; None if it is not JSON."""
    with suppress(ValueError):
        return parse_json(text)
    return None


def compact(value: Any) -> str:
    """Format a value as JSON without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _parse_trip(text: str) -> Trip | None:
    if not text:
        return None
    value = read_json(text)
    at = None
    with suppress(ValueError):
        at = parse_instant(get_text(value, "at"))
    return Trip(at, get_text(value, "why") or "the reason cannot be read", get_text(value, "by"))


def _parse_archives(text: str) -> Mapping[str, KnownArchive] | None:
    value = read_json(text) if text else {}
    if not isinstance(value, dict):
        return None
    found = {name: KnownArchive(get_text(one, "id"), get_text(one, "location")) for name, one in value.items()}
    return found if all(one.id for one in found.values()) else None


def _parse_stop(text: str) -> BrakeStop:
    value = read_json(text)
    if not isinstance(value, dict):
        return BrakeStop(None, text.strip())
    at = None
    with suppress(ValueError):
        at = parse_instant(get_text(value, "at"))
    return BrakeStop(at, get_text(value, "why"), get_text(value, "by"))


def _parse_loops(text: str) -> dict[str, datetime]:
    loops = {}
    value = read_json(text)
    for name, until in value.items() if isinstance(value, dict) else ():
        with suppress(ValueError):
            loops[name] = parse_instant(until)
    return loops


ACCEPTED_PLAN = "accepted-plan"

_DIGITS = 32
"""Hexadecimal digits of a hash."""


@dataclass(frozen=True, slots=True)
class AcceptedPlan:
    """A plan of unused objects that an operator has accepted, for `doctor`: no process that deletes reads it.

    Attributes:
        at: When, by the API server's clock.
        by: The user name of the operator.
        rules: The hashes of the rules with `unused` that it showed, see `hash_unused_rules`.
    """

    at: datetime
    by: str
    rules: frozenset[str]

    def __str__(self) -> str:
        """`on 2026-01-02T03:04:05Z by ann`."""
        return printable(f"on {format_instant(self.at)} by {self.by}")


def parse_accepted_plan(data: Mapping[str, object]) -> AcceptedPlan | None:
    """Parse the value; None without one, and with one that cannot be read, since a user may have edited it."""
    text = data.get(ACCEPTED_PLAN)
    value = read_json(text) if isinstance(text, str) else None
    rules = get_in(value, "rules")
    if not isinstance(rules, list):
        return None
    try:
        at = parse_instant(get_text(value, "at"))
    except ValueError:
        return None
    return AcceptedPlan(at, get_text(value, "by"), frozenset(one for one in rules if isinstance(one, str)))


def with_accepted_plan(data: Data, plan: AcceptedPlan) -> dict[str, str]:
    """Return the data with this plan, which replaces an earlier one."""
    value = {"at": format_instant(plan.at), "by": plan.by, "rules": sorted(plan.rules)}
    return {**data, ACCEPTED_PLAN: compact(value)}


def hash_unused_rules(policy: Policy) -> Mapping[str, str]:
    """Return a hash of each rule with `unused`, by the name of the rule.

    Of the rules that match an object, the first counts. So a hash includes the rules with `unused` before it: if one of
    them changes, the later rule may delete other objects.
    """
    hashes: dict[str, str] = {}
    text = ""
    for rule in policy.rules:
        if rule.unused is not None:
            text = sha256((text + _text_of(rule)).encode()).hexdigest()[:_DIGITS]
            hashes[rule.name] = text
    return hashes


def _text_of(rule: PolicyRule) -> str:
    """The canonical text of a rule; its expression counts as it is written."""
    fields = rule.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"when"})
    return json.dumps([fields, rule.when.text if rule.when else ""], sort_keys=True, separators=(",", ":"))
