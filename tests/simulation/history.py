"""All objects of a simulation, what operators declared about them, and the state of both at any time."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from tests.builders import not_none
from tests.simulation.expectations import (
    Declared,
    Expectation,
    Place,
    expectation_of,
    is_beyond,
    is_kept_by_rank,
    is_pressed,
)
from tests.simulation.rules import Rule
from tests.simulation.sim_object import REPLICA_SET, SimObject

Pair = tuple[SimObject, Expectation]
_One = TypeVar("_One")


class History:
    """All objects that ever were.

    Attributes:
        declared: The newest valid policy, even if no process has read it, and the annotations of the namespaces.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.all: dict[str, SimObject] = {}
        self.declared = Declared()
        self._now = now
        self._changed: dict[str, None] = {}
        self._were: defaultdict[str, list[tuple[float, SimObject]]] = defaultdict(list)
        self._places_were: list[tuple[float, dict[str, Place]]] = [(now(), {})]

    def alive(self) -> list[SimObject]:
        return [obj for obj in self.all.values() if not obj.gone]

    def find(self, kind: str, namespace: str, name: str) -> SimObject | None:
        return next((obj for obj in self.alive() if obj.key == (kind, namespace, name)), None)

    # Now.

    def due_at(self, obj: SimObject) -> datetime | None:
        """When it should go by all that is said now; None while it should not."""
        expectation = self.expectation(obj)
        return None if expectation.why or self._is_kept_by_rank(obj, expectation) else expectation.due_at

    def expectation(self, obj: SimObject) -> Expectation:
        expectation = self._expectation(obj, self.declared)
        alike = self._alike(obj) if expectation.limited or expectation.pressed else []
        if _is_sooner(expectation, expectation.limited) and is_beyond(obj, expectation, alike):
            return expectation.sooner(not_none(expectation.limited))
        if _is_sooner(expectation, expectation.pressed) and self._is_pressed(obj, expectation, alike):
            return expectation.sooner(not_none(expectation.pressed))
        return expectation

    def _is_pressed(self, obj: SimObject, expectation: Expectation, alike: list[Pair]) -> bool:
        here = [(one, said) for one, said in alike if one.namespace == obj.namespace]
        older = [
            said
            for one, said in here
            if said.pressed
            and (not_none(one.finished_at), one.uid) < (not_none(obj.finished_at), obj.uid)
            and not is_kept_by_rank(one, said, here)
        ]
        return is_pressed(obj, sum(not one.dying for one, _ in here), expectation, older)

    def _is_kept_by_rank(self, obj: SimObject, expectation: Expectation) -> bool:
        return expectation.keeper is not None and is_kept_by_rank(obj, expectation, self._alike(obj))

    def _alike(self, obj: SimObject) -> list[Pair]:
        return [(one, self._expectation(one, self.declared)) for one in self.alive() if one.kind == obj.kind]

    # At some time.

    def changed(self, uid: str) -> None:
        """An object was written; what that means is known once its writer is ready."""
        self._changed[uid] = None

    def settle(self) -> None:
        """Write down how what was changed is now."""
        for uid in self._changed:
            if obj := self.all.get(uid):
                copy = replace(obj, ttls=dict(obj.ttls), labels=dict(obj.labels))
                self._were[uid].append((self._now(), copy))
        self._changed.clear()

    def say(self, name: str, place: Place) -> None:
        """A namespace says something else from now on."""
        places = {**self.declared.places, name: place}
        self.declared = replace(self.declared, places=places)
        self._places_were.append((self._now(), places))

    def why_not(
        self,
        obj: SimObject,
        now: datetime,
        *,
        policies: Iterable[tuple[Rule, ...]],
        places_read: tuple[float, float],
        others_read: tuple[float, float],
    ) -> tuple[str, str]:
        """Why an object as it is may not go, by whatever was known within a span of time.

        Args:
            obj: As it is: the preconditions of the DELETE prove that this is what was read.
            now: By the API server's clock.
            policies: One of which was in force.
            places_read: When its namespace was read.
            others_read: When the others of its group were.

        Returns:
            Which rule would be broken, and how; empty where it may go.
        """
        problems = []
        for rules in policies:
            for places in _within(self._places_were, *places_read):
                declared = Declared(rules, places)
                expectation = self._expectation(obj, declared)
                limited = expectation.limited
                if limited and is_beyond(obj, expectation, self._pairs(obj, declared, others_read)):
                    is_sooner = expectation.why or expectation.due_at is None or expectation.due_at > now
                    expectation = limited if is_sooner else expectation
                pressed = expectation.pressed
                if pressed and (expectation.why or not_none(expectation.due_at) > now):
                    pairs = list(self._pairs(obj, declared, others_read))
                    expectation = pressed if self._may_be_pressed(obj, expectation, pairs) else expectation
                if expectation.why:
                    problems.append(("S3", expectation.why))
                elif expectation.due_at is not None and expectation.due_at > now:
                    problems.append(("S1", f"it is due in {expectation.due_at - now}"))
                elif is_kept_by_rank(obj, expectation, self._pairs(obj, declared, others_read)):
                    problems.append(("S3", f"it is one of the newest that {not_none(expectation.keeper).name} keeps"))
                else:
                    return "", ""
        return max(problems, key=lambda one: one[0] == "S1")

    def _may_be_pressed(self, obj: SimObject, expectation: Expectation, pairs: list[Pair]) -> bool:
        """Whether it had to go at some instant of the span of the pairs, as far as the others can tell."""
        states: defaultdict[str, list[Pair]] = defaultdict(list)
        for one, said in pairs:
            states[one.uid].append((one, said))
        older = [
            were[0][1]
            for were in states.values()
            if all(
                said.pressed
                and not said.pressed.why
                and (not_none(one.finished_at), one.uid) < (not_none(obj.finished_at), obj.uid)
                and not is_kept_by_rank(one, said, pairs)
                for one, said in were
            )
        ]
        live = sum(any(not one.gone and not one.dying for one, _ in were) for were in states.values())
        return is_pressed(obj, live, expectation, older)

    def _pairs(self, obj: SimObject, declared: Declared, span: tuple[float, float]) -> Iterator[Pair]:
        for uid, other in self.all.items():
            if (other.kind, other.namespace) == (obj.kind, obj.namespace):
                yield from ((was, self._expectation(was, declared)) for was in _within(self._were[uid], *span))

    def _expectation(self, obj: SimObject, declared: Declared) -> Expectation:
        return expectation_of(obj, declared, owner_works=bool(obj.owner) and self._works(obj))

    def _works(self, obj: SimObject) -> bool:
        if obj.kind == "Pod" and obj.owner == REPLICA_SET:
            return obj.finished_at is None
        owner = self.all.get(obj.owner)
        return owner is None or (not owner.gone and owner.finished_at is None)

    def ancestry(self, obj: SimObject) -> Iterator[str]:
        """Its uid, its owner's, and so on."""
        yield obj.uid
        if owner := self.all.get(obj.owner):
            yield from self.ancestry(owner)


def _is_sooner(expectation: Expectation, limited: Expectation | None) -> bool:
    """Return whether a limit that takes effect makes an object due sooner."""
    if limited is None or limited.why or limited.due_at is None:
        return False
    return bool(expectation.why) or expectation.due_at is None or limited.due_at < expectation.due_at


def _within(were: list[tuple[float, _One]], since: float, until: float) -> Iterator[_One]:
    """How something was at some instant from one to another, the newest first."""
    for at, one in reversed(were):
        if at <= until:
            yield one
        if at < since:
            return
