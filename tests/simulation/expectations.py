"""When an object must be deleted, by policies and namespaces: the reference that the system is compared with.

Nothing here is shared with `decide`. `decide` computes with spans of time; this module tests one instant after another
and takes the first at which the object may be deleted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from tests.builders import not_none
from tests.simulation.rules import UNREADABLE, Rule
from tests.simulation.sim_object import MALFORMED, NEVER, UNKNOWN_OWNER, SimObject

_OWNED = "its owner has not finished"


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
        limiter: The rule that lets only so many stay, if it counts the object; and the group for that.
        limited: The same, if the object is beyond that number.
        presser: The rule that makes room in a quota, if it may let the object go.
        pressed: The same, if the object has to go for that.
        spread: What another rule, by which it may go as well, may spread it over.
    """

    why: str = ""
    due_at: datetime | None = None
    rule: Rule | None = None
    keeper: Rule | None = None
    group: Any = None
    limiter: Rule | None = None
    limiter_group: Any = None
    limited: "Expectation | None" = None
    presser: Rule | None = None
    pressed: "Expectation | None" = None
    spread: timedelta = timedelta(0)

    @property
    def jitter(self) -> timedelta:
        return max(self.rule.jitter if self.rule else timedelta(0), self.spread)

    def sooner(self, limited: "Expectation") -> "Expectation":
        """What a limit makes of it; if it may go without that as well, the rule that says so may spread it."""
        may_go = not self.why and self.due_at is not None
        return replace(limited, spread=self.jitter) if may_go else limited


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
    return _with_limits(case, expectation, owner_works)


def _with_limits(case: "_Case", expectation: Expectation, owner_works: bool) -> Expectation:
    presser = next((rule for rule in case.rules if rule.room is not None), None)
    if presser and expectation.due_at is not None and expectation.why != _OWNED:
        expectation.presser = presser
        expectation.pressed = _sooner(case, expectation, presser, presser.not_before, owner_works)
    limiter = next((rule for rule in case.rules if rule.most is not None), None)
    return _limit(case, expectation, limiter, owner_works) if limiter else expectation


def _limit(case: "_Case", expectation: Expectation, limiter: Rule, owner_works: bool) -> Expectation:
    expectation.limiter, expectation.limiter_group = limiter, (limiter.name, limiter.most_group(case.obj))
    if expectation.limiter_group[-1] == UNREADABLE:
        return Expectation("its group cannot be read")
    if expectation.why != _OWNED:  # what its owner keeps already, no limit lets go
        expectation.limited = _sooner(case, expectation, limiter, timedelta(0), owner_works)
    return expectation


def _sooner(case: "_Case", expectation: Expectation, rule: Rule, after: timedelta, owner_works: bool) -> Expectation:
    """The same, if the rule lets it go that long after its finish."""
    first = case.first(rule, after)
    sooner = replace(expectation, due_at=first.due_at, rule=first.rule)
    own = None if sooner.rule is rule else case.own
    sooner.why = _why(case.obj, case.place, sooner, own, owner_works)
    return sooner


def is_pressed(obj: SimObject, live: int, expectation: Expectation, older: Iterable[Expectation]) -> bool:
    """Return whether it has to go to make room in a quota.

    Args:
        obj: The object.
        live: How many of its kind its namespace has that are not going.
        expectation: About it.
        older: About those of its kind and namespace that finished earlier, and that keepLast does not keep.
    """
    presser = expectation.presser
    if presser is None:
        return False
    going = (one for one in older if one.presser and one.presser.room == presser.room and one.pressed)
    return sum(not not_none(one.pressed).why for one in going) < live - not_none(presser.room)


def newer_than(obj: SimObject, expectation: Expectation, others: Iterable[tuple[SimObject, Expectation]]) -> int:
    """How many of its group finished later, however often each of them is named."""
    return _newer(
        obj,
        (one for one, said in others if said.keeper is not None and said.group == expectation.group),
    )


def _newer(obj: SimObject, others: Iterable[SimObject]) -> int:
    mine = obj.finished_at, obj.uid
    return len(
        {
            other.uid
            for other in others
            if other.uid != obj.uid
            and (other.kind, other.namespace) == (obj.kind, obj.namespace)
            and (other.finished_at, other.uid) > mine
        }
    )


def is_beyond(obj: SimObject, expectation: Expectation, others: Iterable[tuple[SimObject, Expectation]]) -> bool:
    """Return whether so many of its group finished later that it may not stay."""
    limiter = expectation.limiter
    if limiter is None:
        return False
    alike = (
        one for one, said in others if said.limiter is not None and said.limiter_group == expectation.limiter_group
    )
    return _newer(obj, alike) >= not_none(limiter.most)


def is_kept_by_rank(obj: SimObject, expectation: Expectation, others: Iterable[tuple[SimObject, Expectation]]) -> bool:
    return expectation.keeper is not None and newer_than(obj, expectation, others) < expectation.keeper.kept[obj.failed]


def _about(obj: SimObject, declared: Declared, settled: bool) -> Iterable[Rule | None]:
    """The rules that match an object and set a TTL; None for a rule whose match is unknown."""
    counted = False
    for rule in declared.rules:
        speaks = not settled and obj.failed in rule.ttls
        counts = not counted and obj.failed in rule.kept
        is_needed = speaks or counts or rule.min_age is not None or rule.most is not None or rule.room is not None
        if obj.kind not in rule.kinds or not is_needed:
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

    def first(self, limiter: Rule | None = None, after: timedelta = timedelta(0)) -> Expectation:
        """The first instant at which what is then in force says that it may go, or that only so many stay."""
        for at in sorted(self._instants() | {not_none(self.obj.finished_at) + after}):
            due_at, rule = self._due_at(at, limiter, after)
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

    def _due_at(self, at: datetime, limiter: Rule | None, after: timedelta) -> tuple[datetime | None, Rule | None]:
        """When it may go by what is in force at an instant."""
        finished_at = not_none(self.obj.finished_at)
        now = [rule for rule in self.rules if rule.age is None or self.obj.created_at + rule.age <= at]
        rule = next((rule for rule in now if self.own is None and self.obj.failed in rule.ttls), None)
        ttl = self.own
        if ttl is None:
            ttl = rule.ttls[self.obj.failed] if rule else self.place.default
        if ttl is None and limiter is not None:
            ttl, rule = after, limiter
        if ttl is None or ttl == NEVER:
            return None, rule
        due_at = max(ttl, finished_at) if isinstance(ttl, datetime) else finished_at + ttl
        if limiter is not None and finished_at + after < due_at:
            due_at, rule = finished_at + after, limiter
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
    if owner_works and not obj.owner_ignored and _is_left_to_owner(obj, expectation, own):
        return _OWNED
    return ""


def _is_left_to_owner(obj: SimObject, expectation: Expectation, own: Any) -> bool:
    """Whether an owner that works keeps it: a Pod in any case, unless a rule says so of Pods of an unknown owner."""
    if obj.kind == "Pod" and (obj.owner != UNKNOWN_OWNER or own is not None):
        return True
    return _is_asked_by_others(obj, expectation, own)


def _is_asked_by_others(obj: SimObject, expectation: Expectation, own: Any) -> bool:
    """Whether it is not the object itself that wants to go now, nor a rule that says so of owned ones, too."""
    if own is None:
        return expectation.rule is None or not expectation.rule.deletes_owned
    finished_at = not_none(obj.finished_at)
    wanted = own if isinstance(own, datetime) else finished_at + own
    return not_none(expectation.due_at) < max(wanted, finished_at)
