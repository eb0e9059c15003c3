"""Decide which objects `keepLast` keeps: the group of an object, its place, its rank, and which objects fall out.

This module is the only place of the rule. `Ranks` applies it to the objects of a LIST, and the batch evaluator to the
objects that were added. `evaluate` calls it to find whether a rank keeps an object.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice

from shared.core.facts import Facts, Reason
from shared.core.objects import ObjectRef

Place = tuple[datetime, str]
"""The order of a group: by finish time, then by uid."""


RankGroup = tuple[str, str, str, str, bool, str]
"""Which objects are counted together: apiVersion, kind, namespace, rule, whether failed objects have a separate group,
and key."""


@dataclass(frozen=True, slots=True)
class RankedObject:
    """A finished object that a policy rule counts.

    Attributes:
        kept: How many objects of its group the rule keeps.
        finished_at: When it finished.
        due_at: When it is due if its rank does not keep it; None if another reason keeps it.
    """

    ref: ObjectRef
    group: RankGroup
    kept: int
    finished_at: datetime
    due_at: datetime | None

    @property
    def place(self) -> Place:
        """Its place in the order of its group."""
        return self.finished_at, self.ref.uid


def find_ranked(ref: ObjectRef, reason: Reason | None, facts: Facts) -> RankedObject | None:
    """Return how a rule counts an object; None if no rule does, its finish time is unknown, or it is terminating."""
    rule, outcome, finished_at = facts.keep_last_rule, facts.finish.outcome, facts.finish.at
    if rule is None or finished_at is None or reason is Reason.TERMINATING:
        return None
    return RankedObject(
        ref,
        group=(ref.api_version, ref.kind, ref.namespace, rule.name, rule.counts_apart(outcome), facts.group),
        kept=rule.kept_of(outcome) or 0,
        finished_at=finished_at,
        due_at=facts.due_at if reason is Reason.KEPT_LAST else None,
    )


def is_kept(newer: int | None, kept: int | None) -> bool:
    """Return whether fewer than `kept` objects of the group finished later, or their number is unknown."""
    return newer is None or newer < (kept or 0)


@dataclass(slots=True)
class RankGroups:
    """The places of all objects that the rules of one policy count."""

    _places: defaultdict[RankGroup, list[Place]] = field(default_factory=lambda: defaultdict(list))

    def add(self, ranked: RankedObject) -> None:
        """Add an object; call `sort` after the last one."""
        self._places[ranked.group].append(ranked.place)

    def sort(self) -> None:
        """Put the objects of each group in order."""
        for places in self._places.values():
            places.sort()

    def count_newer(self, ranked: RankedObject, listed: RankedObject | None = None) -> int:
        """Count the objects of the group of an object that finished later.

        Args:
            ranked: The object.
            listed: The entry of the same object, if it was added. It was read at another time, so its finish time may
                differ.
        """
        places = self._places.get(ranked.group, [])
        is_itself = listed is not None and listed.group == ranked.group and listed.place > ranked.place
        return len(places) - bisect_right(places, ranked.place) - is_itself

    def list_fallen(self, ranked: RankedObject) -> Iterator[str]:
        """If the rule keeps `ranked`, yield the uids of the other objects that it does not keep, the newest first."""
        uids = (uid for _, uid in reversed(self._places.get(ranked.group, [])))
        return islice((uid for uid in uids if uid != ranked.ref.uid), ranked.kept - 1, None)
