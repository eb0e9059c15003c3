"""Compare two policies: when each object is due or is stopped under each, and which decisions change.

An object that is kept only until its archive has it counts as if the archive acknowledged it now.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property

from shared.cli.objects.archive_report import if_archived, is_archived_first
from shared.cli.objects.object_report import is_ahead, is_stop_ahead
from shared.core.deadlines.decide_stop import Stop, StopDecision
from shared.core.decision.decide import Decision, Expire, Ignore, Reason, Wait, find_fate
from shared.evaluation.batch import BatchResult


class Term(StrEnum):
    """When an object is due; each value is the name of a JSON field."""

    NOW = "dueNow"
    HOUR = "within1h"
    DAY = "from1hTo24h"
    LATER = "later"
    KEPT = "kept"


AnyDecision = Decision | StopDecision

_TERMS = ((timedelta(hours=1), Term.HOUR), (timedelta(hours=24), Term.DAY))


@dataclass(slots=True)
class Count:
    """The number of objects under the policy in force, and under the new one."""

    in_force: int = 0
    new: int = 0

    @property
    def more(self) -> int:
        """How many more objects under the new policy."""
        return self.new - self.in_force


Row = Mapping[Term, Count]
"""A count for each term."""


@dataclass(frozen=True)
class Comparison:
    """Objects with two decisions each about the TTL and the deadline: in force, then under the new policy."""

    objects: Sequence[BatchResult]

    @cached_property
    def totals(self) -> Row:
        """The counts of all objects."""
        return self._count(lambda *_: "").get("") or _row()

    @cached_property
    def stops(self) -> Row:
        """The counts of the objects by when they are stopped at their deadline."""
        row = _row()
        for one in self.objects:
            in_force, new = one.stops
            row[term_of(in_force, one.now)].in_force += 1
            row[term_of(new, one.now)].new += 1
        return row

    @cached_property
    def stops_now(self) -> Mapping[str, int]:
        """How many objects the new policy stops at once, by the source of the deadline, the highest first."""
        found = [one.stops[1] for one in self.objects if isinstance(one.stops[1], Stop)]
        return dict(Counter(map(source_of, found)).most_common())

    @cached_property
    def rules(self) -> Mapping[str, Row]:
        """The counts by the source of the TTL: a policy rule, a field, an annotation; empty if no source sets one."""
        return self._count(lambda _, decision: source_of(decision))

    @cached_property
    def kinds(self) -> Mapping[str, Row]:
        """The counts by kind: `jobs.batch`."""
        return self._count(lambda one, _: one.rule.name)

    @cached_property
    def namespaces(self) -> Mapping[str, Row]:
        """The counts by namespace; the name is empty for cluster-scoped objects."""
        return self._count(lambda one, _: one.ref.namespace)

    @cached_property
    def unanswered(self) -> Mapping[str, Count]:
        """The counts of objects that are kept because a policy rule has no TTL for them, by rule, the highest first."""
        counts: defaultdict[str, Count] = defaultdict(Count)
        for one in self.objects:
            in_force, new = (decision.facts.unanswered for decision in one.decisions)
            if in_force:
                counts[in_force].in_force += 1
            if new:
                counts[new].new += 1
        return dict(sorted(counts.items(), key=lambda item: (-item[1].new, item[0])))

    @cached_property
    def recreated(self) -> Count:
        """How many objects are kept, and not stopped, because a controller would create them again."""
        counts = [
            sum(Reason.RECREATED in (one.decisions[n].reason, one.stops[n].reason) for one in self.objects)
            for n in range(2)
        ]
        return Count(*counts)

    @cached_property
    def changed(self) -> Sequence[BatchResult]:
        """The objects whose decision changes, by their due time under the new policy."""
        found = [one for one in self.objects if _changes(one.decisions, one.now) or _changes(one.stops, one.now)]
        return sorted(found, key=lambda one: (_due(one), one.ref.namespace, one.ref.kind, one.ref.name))

    def due_within(self, window: timedelta) -> Sequence[BatchResult]:
        """Return the objects that are due, or are stopped, under the new policy within this time."""
        return [
            one
            for one in self.objects
            if (is_ahead(if_archived(one.decisions[1], one.now)) or is_stop_ahead(one.stops[1]))
            and _due(one) - one.now <= window
        ]

    @cached_property
    def archived_first(self) -> Mapping[str, int]:
        """How many objects the new policy deletes as soon as their archive has them, by the name of the archive."""
        found = [
            one.decisions[1].facts.archiving
            for one in self.objects
            if is_archived_first(one.decisions[1]) and term_of(one.decisions[1], one.now) is Term.NOW
        ]
        return Counter(archiving.to for archiving in found if archiving)

    def _count(self, key_of: Callable[[BatchResult, Decision], str]) -> Mapping[str, Row]:
        """Count by key; rows with the most objects due now come first, then by name."""
        rows: defaultdict[str, dict[Term, Count]] = defaultdict(_row)
        for one in self.objects:
            in_force, new = one.decisions
            rows[key_of(one, in_force)][term_of(in_force, one.now)].in_force += 1
            rows[key_of(one, new)][term_of(new, one.now)].new += 1
        return dict(sorted(rows.items(), key=lambda item: (*(-item[1][term].new for term in Term), item[0])))


def _row() -> dict[Term, Count]:
    return {term: Count() for term in Term}


def _due(one: BatchResult) -> datetime:
    """Return when it is due or is stopped under the new policy; if neither, the last possible instant."""
    return min(_due_of(one.decisions[1], one.now), _due_of(one.stops[1], one.now))


def _due_of(decision: AnyDecision, now: datetime) -> datetime:
    match _ahead(decision, now):
        case Expire() | Stop():
            return now
        case Wait(until):
            return until
        case Ignore():
            return datetime.max.replace(tzinfo=now.tzinfo)


def _ahead(decision: AnyDecision, now: datetime) -> AnyDecision:
    return find_fate(decision if isinstance(decision, Stop) else if_archived(decision, now))


def _changes(decisions: Sequence[AnyDecision], now: datetime) -> bool:
    in_force, new = (_ahead(one, now) for one in decisions)
    return outcome_of(in_force) != outcome_of(new)


def term_of(decision: AnyDecision, now: datetime) -> Term:
    """Return the term in which an object is due, or is stopped; it counts as archived."""
    return plain_term(_ahead(decision, now), now)


def plain_term(decision: AnyDecision, now: datetime) -> Term:
    """Return the term in which an object is due, or is stopped; an object that must be archived first is kept."""
    match decision:
        case Ignore():
            return Term.KEPT
        case Expire() | Stop():
            return Term.NOW
        case Wait(until):
            return next((term for within, term in _TERMS if until - now <= within), Term.LATER)


def outcome_of(decision: AnyDecision) -> tuple[str, datetime | None]:
    """Return the decision without its source: two policies that lead to the same outcome change nothing."""
    return type(decision).__name__, decision.until if isinstance(decision, Wait) else None


def source_of(decision: AnyDecision) -> str:
    """Return the source of the TTL or the deadline; empty if no source sets one, or if it is unreadable."""
    source = decision.facts.ttl or decision.facts.active.deadline
    return source.source if source else ""
