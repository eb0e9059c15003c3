"""Two policies beside each other: what is due when under each, and which objects have another fate."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property

from shared.core.decide import Decision, Expire, Ignore, Wait
from shared.evaluation.batch import BatchResult


class Term(StrEnum):
    """When an object is due; each is the name of a JSON field."""

    NOW = "dueNow"
    HOUR = "within1h"
    DAY = "within24h"
    LATER = "later"
    STAYS = "stays"


_TERMS = ((timedelta(hours=1), Term.HOUR), (timedelta(hours=24), Term.DAY))


@dataclass(slots=True)
class Count:
    """Objects under the policy in force, and under the new one."""

    in_force: int = 0
    new: int = 0

    @property
    def more(self) -> int:
        """How many more under the new one."""
        return self.new - self.in_force


Row = Mapping[Term, Count]
"""All terms."""


@dataclass(frozen=True)
class Comparison:
    """Objects, each judged under the policy in force and under the new one, in this order."""

    objects: Sequence[BatchResult]

    @cached_property
    def totals(self) -> Row:
        """Of all objects."""
        return self._count(lambda *_: "").get("") or _row()

    @cached_property
    def rules(self) -> Mapping[str, Row]:
        """By what says how long, under each: a policy rule, a field, an annotation; empty where nothing does."""
        return self._count(lambda _, decision: source_of(decision))

    @cached_property
    def kinds(self) -> Mapping[str, Row]:
        """By kind: `jobs.batch`."""
        return self._count(lambda one, _: one.rule.name)

    @cached_property
    def namespaces(self) -> Mapping[str, Row]:
        """By namespace; an empty name for objects that are in none."""
        return self._count(lambda one, _: one.ref.namespace)

    @cached_property
    def unanswered(self) -> Mapping[str, Count]:
        """Objects that stay because a policy rule has no answer for them, by rule, the most first."""
        counts: defaultdict[str, Count] = defaultdict(Count)
        for one in self.objects:
            in_force, new = (decision.facts.unanswered for decision in one.decisions)
            if in_force:
                counts[in_force].in_force += 1
            if new:
                counts[new].new += 1
        return dict(sorted(counts.items(), key=lambda item: (-item[1].new, item[0])))

    @cached_property
    def changed(self) -> Sequence[BatchResult]:
        """Those with another fate, what is due first under the new policy first."""
        found = [one for one in self.objects if fate_of(one.decisions[0]) != fate_of(one.decisions[1])]
        return sorted(found, key=lambda one: (_due(one), one.ref.namespace, one.ref.kind, one.ref.name))

    def due_within(self, window: timedelta) -> Sequence[BatchResult]:
        """Those that are due under the new policy once so much time has passed."""
        return [one for one in self.objects if not _stays(one) and _due(one) - one.now <= window]

    def _count(self, key_of: Callable[[BatchResult, Decision], str]) -> Mapping[str, Row]:
        """Rows by key: the most that is due at once first, then by name."""
        rows: defaultdict[str, dict[Term, Count]] = defaultdict(_row)
        for one in self.objects:
            in_force, new = one.decisions
            rows[key_of(one, in_force)][term_of(in_force, one.now)].in_force += 1
            rows[key_of(one, new)][term_of(new, one.now)].new += 1
        return dict(sorted(rows.items(), key=lambda item: (*(-item[1][term].new for term in Term), item[0])))


def _row() -> dict[Term, Count]:
    return {term: Count() for term in Term}


def _due(one: BatchResult) -> datetime:
    """When it is due under the new policy; the last instant there is where it stays."""
    match one.decisions[1]:
        case Expire():
            return one.now
        case Wait(until):
            return until
        case Ignore():
            return datetime.max.replace(tzinfo=one.now.tzinfo)


def _stays(one: BatchResult) -> bool:
    return isinstance(one.decisions[1], Ignore)


def term_of(decision: Decision, now: datetime) -> Term:
    """When an object is due, roughly."""
    match decision:
        case Ignore():
            return Term.STAYS
        case Expire():
            return Term.NOW
        case Wait(until):
            return next((term for within, term in _TERMS if until - now <= within), Term.LATER)


def fate_of(decision: Decision) -> tuple[str, datetime | None]:
    """What becomes of an object, whoever says so: two policies of which one can say the same."""
    return type(decision).__name__, decision.until if isinstance(decision, Wait) else None


def source_of(decision: Decision) -> str:
    """Who says how long; empty where nobody does, or it cannot be read."""
    return decision.facts.ttl.source if decision.facts.ttl else ""
