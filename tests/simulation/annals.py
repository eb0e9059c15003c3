"""Everything that is or was: the objects, what the law said of them, and how both stood at any time."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from tests.builders import not_none
from tests.simulation.law import Law, Place, Word, is_kept_by_rank, word_of
from tests.simulation.rules import Rule
from tests.simulation.things import Thing

Pair = tuple[Thing, Word]
_One = TypeVar("_One")


class Things:
    """All objects that ever were.

    Attributes:
        law: What holds now: the newest good policy, even if no process has read it, and the namespaces' annotations.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.all: dict[str, Thing] = {}
        self.law = Law()
        self._now = now
        self._changed: dict[str, None] = {}
        self._were: defaultdict[str, list[tuple[float, Thing]]] = defaultdict(list)
        self._places_were: list[tuple[float, dict[str, Place]]] = [(now(), {})]

    def alive(self) -> list[Thing]:
        return [thing for thing in self.all.values() if not thing.gone]

    def find(self, kind: str, namespace: str, name: str) -> Thing | None:
        return next((thing for thing in self.alive() if thing.key == (kind, namespace, name)), None)

    # Now.

    def due_at(self, thing: Thing) -> datetime | None:
        """When it should go by all that is said now; None while it should not."""
        word = self.word(thing)
        return None if word.why or self._is_kept_by_rank(thing, word) else word.due_at

    def word(self, thing: Thing) -> Word:
        return self._word(thing, self.law)

    def _is_kept_by_rank(self, thing: Thing, word: Word) -> bool:
        return word.keeper is not None and is_kept_by_rank(
            thing, word, [(other, self.word(other)) for other in self.alive() if other.kind == thing.kind]
        )

    # At some time.

    def changed(self, uid: str) -> None:
        """An object was written; what that means is known once its writer is ready."""
        self._changed[uid] = None

    def settle(self) -> None:
        """Write down how what was changed is now."""
        for uid in self._changed:
            if thing := self.all.get(uid):
                copy = replace(thing, wishes=dict(thing.wishes), labels=dict(thing.labels))
                self._were[uid].append((self._now(), copy))
        self._changed.clear()

    def say(self, name: str, place: Place) -> None:
        """A namespace says something else from now on."""
        places = {**self.law.places, name: place}
        self.law = replace(self.law, places=places)
        self._places_were.append((self._now(), places))

    def why_not(
        self,
        thing: Thing,
        now: datetime,
        *,
        policies: Iterable[tuple[Rule, ...]],
        places_read: tuple[float, float],
        others_read: tuple[float, float],
    ) -> tuple[str, str]:
        """Why an object as it is may not go, by whatever was known within a span of time.

        Args:
            thing: As it is: the preconditions of the DELETE prove that this is what was read.
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
                law = Law(rules, places)
                word = self._word(thing, law)
                if word.why:
                    problems.append(("S3", word.why))
                elif word.due_at is not None and word.due_at > now:
                    problems.append(("S1", f"it is due in {word.due_at - now}"))
                elif is_kept_by_rank(thing, word, self._pairs(thing, law, others_read)):
                    problems.append(("S3", f"it is one of the newest that {not_none(word.keeper).name} keeps"))
                else:
                    return "", ""
        return max(problems, key=lambda one: one[0] == "S1")

    def _pairs(self, thing: Thing, law: Law, span: tuple[float, float]) -> Iterator[Pair]:
        for uid, other in self.all.items():
            if (other.kind, other.namespace) == (thing.kind, thing.namespace):
                yield from ((was, self._word(was, law)) for was in _within(self._were[uid], *span))

    def _word(self, thing: Thing, law: Law) -> Word:
        return word_of(thing, law, owner_works=bool(thing.owner) and self._works(thing.owner))

    def _works(self, uid: str) -> bool:
        owner = self.all.get(uid)
        return owner is None or (not owner.gone and owner.finished_at is None)

    def ancestry(self, thing: Thing) -> Iterator[str]:
        """Its uid, its owner's, and so on."""
        yield thing.uid
        if owner := self.all.get(thing.owner):
            yield from self.ancestry(owner)


def _within(were: list[tuple[float, _One]], since: float, until: float) -> Iterator[_One]:
    """How something was at some instant from one to another, the newest first."""
    for at, one in reversed(were):
        if at <= until:
            yield one
        if at < since:
            return
