"""When an object must be deleted, by policies and namespaces: the reference that the system is compared with.

Nothing here is shared with `decide`. `decide` computes with spans of time; this module tests one instant after another
and takes the first at which the object may be deleted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tests.builders import not_none
from tests.simulation.rules import UNREADABLE, Rule
from tests.simulation.sim_object import MALFORMED, NEVER, SimObject


@dataclass(frozen=True)
class Place:
    """What the annotations of a namespace declare."""

    exempt: bool = False
    max_ttl: timedelta | None = None
    default: timedelta | None = None
    malformed: bool = False


@dataclass(frozen=True)
class Declared:
    """What operators declared: the rules of the policy, and the annotations of namespaces."""

    rules: tuple[Rule, ...] = ()
    places: Mapping[str, Place] = field(default_factory=dict)

    def place_of(self, obj: SimObject) -> Place:
        return self.places.get(obj.namespace, Place())


@dataclass
class Expectation:
    """When one object must be deleted, or why it is kept.

    Attributes:
        why: What keeps it whatever the time, its rank aside; empty where nothing does.
        due_at: When it may go, if nothing keeps it.
        rule: Which rule says so.
        keeper: The rule that keeps the newest, if it counts the object; and the group in which it is counted.
    """

    why: str = ""
    due_at: datetime | None = None
    rule: Rule | None = None
    keeper: Rule | None = None
    group: Any = None

    @property
    def jitter(self) -> timedelta:
        return self.rule.jitter if self.rule else timedelta(0)


def expectation_of(obj: SimObject, declared: Declared, *, owner_works: bool) -> Expectation:
    """Return when an object must be deleted, or why it is kept.

    Args:
        obj: As it was at some time.
        declared: The policy and the annotations at that time.
        owner_works: Whether it is controlled by something that has not finished, or may not have.
    """
    place, own = declared.place_of(obj), obj.own_ttl()
    if obj.gone or obj.dying:
        return Expectation("it is going already")
    if obj.finished_at is None:
        return Expectation("it has not finished")
    if own == MALFORMED:
        return Expectation("what it says cannot be read")
    if place.malformed:
        return Expectation("what its namespace says cannot be read")
    rules = list(_about(obj, declared, own is not None))
    if None in rules:
        return Expectation("a rule cannot be read for it")
    case = _Case(obj, own, place, [rule for rule in rules if rule])
    expectation = case.first()
    keeper = next((rule for rule in case.rules if obj.failed in rule.kept), None)
    if keeper is not None:
        expectation.keeper, expectation.group = (
            keeper,
            (keeper.name, keeper.apart and obj.failed, keeper.group(obj)),
        )
        if expectation.group[-1] == UNREADABLE:
            return Expectation("its group cannot be read")
    expectation.why = _why(obj, place, expectation, own, owner_works)
    return expectation


def newer_than(obj: SimObject, expectation: Expectation, others: Iterable[tuple[SimObject, Expectation]]) -> int:
    """How many of its group finished later, however often each of them is named."""
    mine = obj.finished_at, obj.uid
    return len(
        {
            other.uid
            for other, said in others
            if other.uid != obj.uid
            and said.keeper is not None
            and (other.kind, other.namespace, said.group) == (obj.kind, obj.namespace, expectation.group)
            and (other.finished_at, other.uid) > mine
        }
    )


def is_kept_by_rank(obj: SimObject, expectation: Expectation, others: Iterable[tuple[SimObject, Expectation]]) -> bool:
    return expectation.keeper is not None and newer_than(obj, expectation, others) < expectation.keeper.kept[obj.failed]


def _about(obj: SimObject, declared: Declared, settled: bool) -> Iterable[Rule | None]:
    """The rules that match an object and set a TTL; None for a rule whose match is unknown."""
    counted = False
    for rule in declared.rules:
        speaks = not settled and obj.failed in rule.ttls
        counts = not counted and obj.failed in rule.kept
        if obj.kind not in rule.kinds or not (speaks or counts or rule.min_age is not None):
            continue
        answers = [test(obj) for test in rule.tests]
        if False in answers:
            continue
        yield None if None in answers else rule
        counted = counted or counts
        settled = settled or (speaks and rule.age is None)


@dataclass
class _Case:
    obj: SimObject
    own: Any
    place: Place
    rules: list[Rule]

    def first(self) -> Expectation:
        """The first instant at which what is then in force says that it may go."""
        for at in sorted(self._instants()):
            due_at, rule = self._due_at(at)
            if due_at is not None and due_at <= at:
                return Expectation("", at, rule)
        return Expectation()

    def _instants(self) -> set[datetime]:
        """All at which something may begin to say so."""
        finished_at = not_none(self.obj.finished_at)
        spans: list[Any] = [self.place.max_ttl, self.place.default, *(rule.min_age for rule in self.rules)]
        spans += [rule.ttls.get(self.obj.failed) for rule in self.rules] + [self.own]
        instants = {finished_at + span for span in spans if isinstance(span, timedelta)} | {finished_at}
        instants |= {self.obj.created_at + rule.age for rule in self.rules if rule.age is not None}
        return instants | ({self.own} if isinstance(self.own, datetime) else set())

    def _due_at(self, at: datetime) -> tuple[datetime | None, Rule | None]:
        """When it may go by what is in force at an instant."""
        finished_at = not_none(self.obj.finished_at)
        now = [rule for rule in self.rules if rule.age is None or self.obj.created_at + rule.age <= at]
        rule = next((rule for rule in now if self.own is None and self.obj.failed in rule.ttls), None)
        ttl = self.own
        if ttl is None:
            ttl = rule.ttls[self.obj.failed] if rule else self.place.default
        if ttl is None or ttl == NEVER:
            return None, rule
        due_at = max(ttl, finished_at) if isinstance(ttl, datetime) else finished_at + ttl
        if self.place.max_ttl is not None:
            due_at = min(due_at, finished_at + self.place.max_ttl)
        floors = [one.min_age for one in now if one.min_age is not None]
        return max([due_at, *(finished_at + floor for floor in floors)]), rule


def _why(obj: SimObject, place: Place, expectation: Expectation, own: Any, owner_works: bool) -> str:
    if obj.held:
        return "it is held"
    if place.exempt:
        return "its namespace is exempt"
    if expectation.due_at is None:
        return "nothing sets a TTL for it"
    if owner_works and not obj.owner_ignored and (obj.kind == "Pod" or _is_asked_by_others(obj, expectation, own)):
        return "its owner has not finished"
    return ""


def _is_asked_by_others(obj: SimObject, expectation: Expectation, own: Any) -> bool:
    """Whether it is not the object itself that wants to go now, nor a rule that says so of owned ones, too."""
    if own is None:
        return expectation.rule is None or not expectation.rule.deletes_owned
    finished_at = not_none(obj.finished_at)
    wanted = own if isinstance(own, datetime) else finished_at + own
    return not_none(expectation.due_at) < max(wanted, finished_at)
