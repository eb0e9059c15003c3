"""Decide which objects of a group `keepLast` keeps, and which objects `maxCount` and a quota make due.

This module is the only place of the order: the group of an object, its place, its rank, and which objects fall out.
`Ranks` applies it to the objects of a LIST, and the batch evaluator to the objects that were added. `evaluate` calls it
to find what a rank means. `keepLast` keeps the newest objects of a group. `maxCount` makes all objects due except the
newest. A quota makes the oldest objects due.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Literal

from shared.core.decision.capacity import Counted, QuotaPressure
from shared.core.decision.facts import Facts, Reason
from shared.core.kinds.rule import Outcome
from shared.core.values.objects import ObjectRef

Place = tuple[datetime, str]
"""The order of a group: by finish time, then by uid."""

RankedBy = Literal["keepLast", "maxCount", "whenQuotaAbove"]
"""The field of a policy rule for which objects are ranked."""

RankGroup = tuple[RankedBy, str, str, str, str, Outcome | None, str]
"""Which objects are counted together: field, apiVersion, kind, namespace, rule, outcome (None for all), and key. For
whenQuotaAbove, the objects of all rules are counted together: what one rule lets go makes room for all."""


@dataclass(frozen=True, slots=True)
class RankedObject:
    """A finished object that a policy rule counts.

    Attributes:
        kept: How many of the newest objects of its group the rule keeps, or lets stay; 0 for whenQuotaAbove.
        finished_at: When it finished.
        due_at: When it is due if its rank does not keep it, or makes it due; None if another reason keeps it.
        owner: The controller owner that keeps it if unfinished.
        percent: For whenQuotaAbove: the percentage.
    """

    ref: ObjectRef
    group: RankGroup
    kept: int
    finished_at: datetime
    due_at: datetime | None
    owner: ObjectRef | None = None
    percent: int = 0

    @property
    def place(self) -> Place:
        """Its place in the order of its group."""
        return self.finished_at, self.ref.uid


_MAY_GO = (None, Reason.NOT_ARCHIVED, Reason.ARCHIVE_UNREAD, Reason.AUDIT_ONLY)
"""What does not keep an object for ever: an object that is not archived may go once it is."""


def find_ranked(ref: ObjectRef, reason: Reason | None, facts: Facts) -> RankedObject | None:
    """Return how keepLast counts an object; None if no rule does, its finish time is unknown, or it is terminating."""
    rule, outcome, finished_at = facts.keep_last_rule, facts.finish.outcome, facts.finish.at
    if rule is None or finished_at is None or reason is Reason.TERMINATING:
        return None
    return RankedObject(
        ref,
        group=("keepLast", *_place_of(ref), rule.name, rule.counted_as(outcome), facts.group),
        kept=rule.kept_of(outcome) or 0,
        finished_at=finished_at,
        due_at=facts.due_at if reason is Reason.RANK_UNREAD else None,
    )


def find_counted(ref: ObjectRef, reason: Reason | None, facts: Facts) -> RankedObject | None:
    """Return how maxCount counts an object; None if no rule does, its finish time is unknown, or it is terminating.

    Args:
        ref: The object.
        reason: The reason that keeps it, if it is beyond the limit.
        facts: The facts, if it is beyond the limit.
    """
    rule, finished_at = facts.count_rule, facts.finish.at
    if rule is None or finished_at is None or reason is Reason.TERMINATING:
        return None
    return RankedObject(
        ref,
        group=("maxCount", *_place_of(ref), rule.name, None, facts.count_group),
        kept=rule.max_count or 0,
        finished_at=finished_at,
        due_at=facts.due_at if reason in _MAY_GO else None,
    )


def find_pressed(
    ref: ObjectRef, reason: Reason | None, facts: Facts, *, owner: ObjectRef | None
) -> RankedObject | None:
    """Return how whenQuotaAbove counts an object; None if it may not go before its time.

    Args:
        ref: The object.
        reason: The reason that keeps it, if it has to go.
        facts: The facts, if it has to go.
        owner: The controller owner that keeps it if unfinished.
    """
    rule, finished_at = facts.quota_rule, facts.finish.at
    if rule is None or finished_at is None or reason not in _MAY_GO:
        return None
    percent = rule.when_quota_above or 0
    group: RankGroup = ("whenQuotaAbove", *_place_of(ref), "", None, "")
    return RankedObject(ref, group, 0, finished_at, facts.due_at, owner=owner, percent=percent)


def _place_of(ref: ObjectRef) -> tuple[str, str, str]:
    return ref.api_version, ref.kind, ref.namespace


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

    def count(self, ranked: RankedObject, listed: RankedObject | None = None) -> Counted:
        """Count the group of an object; see `count_newer`."""
        places, newer = self._places.get(ranked.group, []), self.count_newer(ranked, listed)
        is_listed = listed is not None and listed.group == ranked.group
        since = None
        if not is_kept(newer, ranked.kept):
            since = places[bisect_right(places, ranked.place) + ranked.kept - 1][0]
        return Counted(newer, len(places) + (not is_listed), since)

    def list_fallen(self, ranked: RankedObject) -> Iterator[str]:
        """If the rule keeps `ranked`, yield the uids of the other objects that it does not keep, the newest first."""
        uids = (uid for _, uid in reversed(self._places.get(ranked.group, [])))
        return islice((uid for uid in uids if uid != ranked.ref.uid), ranked.kept - 1, None)


@dataclass(slots=True)
class Leaving:
    """The objects of a group that have to go because of a quota, the oldest first.

    Attributes:
        pressure: The quotas, and how many objects there are.
        objects: These objects, also those that stay because it is unknown whether their owners keep them: no other
            object goes in their place.
        going: Those of them that can go.
    """

    pressure: QuotaPressure
    objects: list[RankedObject] = field(default_factory=list)
    going: list[RankedObject] = field(default_factory=list)

    def must_include(self, ranked: RankedObject) -> bool:
        """Return whether the next object has to go, too: the objects before it do not make enough room."""
        return len(self.objects) < self.pressure.excess(ranked.percent)

    def count_older(self, ranked: RankedObject) -> int:
        """Count the objects that have to go and finished earlier than an object."""
        return bisect_left(self.objects, ranked.place, key=lambda one: one.place)
