"""What holds of one object, said plainly: the oracle for policies and namespaces.

It knows nothing of `decide`. Where that searches spans of time, this asks of one instant after another whether the
object may go then, and takes the first.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tests.builders import not_none
from tests.simulation.rules import UNREADABLE, Rule
from tests.simulation.things import MALFORMED, NEVER, Thing


@dataclass(frozen=True)
class Place:
    """What a namespace says."""

    exempt: bool = False
    max_ttl: timedelta | None = None
    default: timedelta | None = None
    malformed: bool = False


@dataclass(frozen=True)
class Law:
    """What is said of all objects."""

    rules: tuple[Rule, ...] = ()
    places: Mapping[str, Place] = field(default_factory=dict)

    def place_of(self, thing: Thing) -> Place:
        return self.places.get(thing.namespace, Place())


@dataclass
class Word:
    """What the law says of one object.

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


def word_of(thing: Thing, law: Law, *, owner_works: bool) -> Word:
    """What the law says of an object.

    Args:
        thing: As it was at some time.
        law: As it was.
        owner_works: Whether it is controlled by something that has not finished, or may not have.
    """
    place, own = law.place_of(thing), thing.own_wish()
    if thing.gone or thing.dying:
        return Word("it is going already")
    if thing.finished_at is None:
        return Word("it has not finished")
    if own == MALFORMED:
        return Word("what it says cannot be read")
    if place.malformed:
        return Word("what its namespace says cannot be read")
    rules = list(_about(thing, law, own is not None))
    if None in rules:
        return Word("a rule cannot be read for it")
    case = _Case(thing, own, place, [rule for rule in rules if rule])
    word = case.first()
    keeper = next((rule for rule in case.rules if thing.failed in rule.kept), None)
    if keeper is not None:
        word.keeper, word.group = keeper, (keeper.name, keeper.apart and thing.failed, keeper.group(thing))
        if word.group[-1] == UNREADABLE:
            return Word("its group cannot be read")
    word.why = _why(thing, place, word, own, owner_works)
    return word


def newer_than(thing: Thing, word: Word, others: Iterable[tuple[Thing, Word]]) -> int:
    """How many of its group finished later, however often each of them is named."""
    mine = thing.finished_at, thing.uid
    return len(
        {
            other.uid
            for other, said in others
            if other.uid != thing.uid
            and said.keeper is not None
            and (other.kind, other.namespace, said.group) == (thing.kind, thing.namespace, word.group)
            and (other.finished_at, other.uid) > mine
        }
    )


def is_kept_by_rank(thing: Thing, word: Word, others: Iterable[tuple[Thing, Word]]) -> bool:
    return word.keeper is not None and newer_than(thing, word, others) < word.keeper.kept[thing.failed]


def _about(thing: Thing, law: Law, settled: bool) -> Iterable[Rule | None]:
    """The rules that match an object and set a TTL; None for a rule whose match is unknown."""
    counted = False
    for rule in law.rules:
        speaks = not settled and thing.failed in rule.ttls
        counts = not counted and thing.failed in rule.kept
        if thing.kind not in rule.kinds or not (speaks or counts or rule.min_age is not None):
            continue
        answers = [test(thing) for test in rule.tests]
        if False in answers:
            continue
        yield None if None in answers else rule
        counted = counted or counts
        settled = settled or (speaks and rule.age is None)


@dataclass
class _Case:
    thing: Thing
    own: Any
    place: Place
    rules: list[Rule]

    def first(self) -> Word:
        """The first instant at which what is then in force says that it may go."""
        for at in sorted(self._instants()):
            due_at, rule = self._due_at(at)
            if due_at is not None and due_at <= at:
                return Word("", at, rule)
        return Word()

    def _instants(self) -> set[datetime]:
        """All at which something may begin to say so."""
        finished_at = not_none(self.thing.finished_at)
        spans: list[Any] = [self.place.max_ttl, self.place.default, *(rule.min_age for rule in self.rules)]
        spans += [rule.ttls.get(self.thing.failed) for rule in self.rules] + [self.own]
        instants = {finished_at + span for span in spans if isinstance(span, timedelta)} | {finished_at}
        instants |= {self.thing.created_at + rule.age for rule in self.rules if rule.age is not None}
        return instants | ({self.own} if isinstance(self.own, datetime) else set())

    def _due_at(self, at: datetime) -> tuple[datetime | None, Rule | None]:
        """When it may go by what is in force at an instant."""
        finished_at = not_none(self.thing.finished_at)
        now = [rule for rule in self.rules if rule.age is None or self.thing.created_at + rule.age <= at]
        rule = next((rule for rule in now if self.own is None and self.thing.failed in rule.ttls), None)
        wish = self.own
        if wish is None:
            wish = rule.ttls[self.thing.failed] if rule else self.place.default
        if wish is None or wish == NEVER:
            return None, rule
        due_at = max(wish, finished_at) if isinstance(wish, datetime) else finished_at + wish
        if self.place.max_ttl is not None:
            due_at = min(due_at, finished_at + self.place.max_ttl)
        floors = [one.min_age for one in now if one.min_age is not None]
        return max([due_at, *(finished_at + floor for floor in floors)]), rule


def _why(thing: Thing, place: Place, word: Word, own: Any, owner_works: bool) -> str:
    if thing.held:
        return "it is held"
    if place.exempt:
        return "its namespace is exempt"
    if word.due_at is None:
        return "nothing sets a TTL for it"
    if owner_works and not thing.owner_ignored and (thing.kind == "Pod" or _is_asked_by_others(thing, word, own)):
        return "its owner has not finished"
    return ""


def _is_asked_by_others(thing: Thing, word: Word, own: Any) -> bool:
    """Whether it is not the object itself that wants to go now, nor a rule that says so of owned ones, too."""
    if own is None:
        return word.rule is None or not word.rule.deletes_owned
    finished_at = not_none(thing.finished_at)
    wanted = own if isinstance(own, datetime) else finished_at + own
    return not_none(word.due_at) < max(wanted, finished_at)
