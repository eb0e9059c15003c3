"""The rows of `plan`: how many objects of a group are due in each term, in a chosen order."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from shared.cli.policies.comparison import AnyDecision, Term, plain_term, source_of
from shared.core.decision.decide import Wait, find_fate
from shared.core.ttl.durations import format_duration
from shared.core.values.objects import printable
from shared.evaluation.batch import BatchResult

NAMELESS = "-"
"""The name of a group without one: no namespace, no source of a TTL, no controller owner."""


class By(StrEnum):
    """What the objects of one row share; each value is one of `plan --by`."""

    NAMESPACE = "namespace"
    KIND = "kind"
    RULE = "rule"
    OWNER = "owner"


class Order(StrEnum):
    """The order of rows; each value is one of `plan --sort`."""

    NAME = "name"
    DUE = "due"
    NEXT = "next"
    STAYS = "stays"
    TOTAL = "total"


@dataclass(frozen=True, slots=True)
class DueRow:
    """The objects of one group.

    Attributes:
        names: The names of the group, one for each name column.
        counts: The number of objects in each term.
        next_at: When the next object is due; None if none is due later.
    """

    names: tuple[str, ...]
    counts: Mapping[Term, int]
    next_at: datetime | None

    @property
    def total(self) -> int:
        """The number of objects."""
        return sum(self.counts.values())


TITLES: Mapping[By | None, tuple[str, ...]] = {
    None: ("NAMESPACE", "KIND"),
    By.NAMESPACE: ("NAMESPACE",),
    By.KIND: ("KIND",),
    By.RULE: ("TTL FROM",),
    By.OWNER: ("NAMESPACE", "OWNER"),
}
"""The titles of the name columns, for each grouping; None is by namespace and kind."""


_FIELDS: Mapping[By | None, tuple[str, ...]] = {
    None: ("namespace", "kind"),
    By.NAMESPACE: ("namespace",),
    By.KIND: ("kind",),
    By.RULE: ("ttlFrom",),
    By.OWNER: ("namespace", "owner"),
}
"""The JSON fields of the names, in the same order."""

_UNIT = re.compile(r"\d+[a-z]+")


def names_as_json(names: tuple[str, ...], by: By | None) -> dict[str, str | None]:
    """Return the names of a group as JSON; a group without a name has null."""
    return dict(zip(_FIELDS[by], (None if name == NAMELESS else name for name in names), strict=True))


def describe_roughly(distance: timedelta) -> str:
    """Return the two largest units, as in `23h59m`, so that a table fits 80 columns."""
    return "".join(_UNIT.findall(format_duration(distance))[:2])


def names_of(one: BatchResult, by: By | None, decision: AnyDecision) -> tuple[str, ...]:
    """Return the names of the group of an object; the decision has the source of its TTL or deadline."""
    namespace = one.ref.namespace or NAMELESS
    match by:
        case None:
            return namespace, one.ref.kind
        case By.NAMESPACE:
            return (namespace,)
        case By.KIND:
            return (one.rule.name,)
        case By.RULE:
            return (printable(source_of(decision)) or NAMELESS,)
        case By.OWNER:
            return namespace, f"{one.owner.kind} {one.owner.name}" if one.owner else NAMELESS


def count_rows(
    objects: Iterable[BatchResult],
    by: By | None,
    decision_of: Callable[[BatchResult], AnyDecision] = lambda one: one.decisions[0],
) -> list[DueRow]:
    """Count the objects of each group by the term in which they are due.

    Args:
        objects: The objects.
        by: What the objects of one row share; None for namespace and kind.
        decision_of: Returns the decision that counts: that about the TTL, or that about the deadline.
    """
    counts: defaultdict[tuple[str, ...], Counter[Term]] = defaultdict(Counter)
    next_at: dict[tuple[str, ...], datetime] = {}
    for one in objects:
        decision = find_fate(decision_of(one))
        names = names_of(one, by, decision)
        counts[names][plain_term(decision, one.now)] += 1
        if isinstance(decision, Wait):
            next_at[names] = min(next_at.get(names, decision.until), decision.until)
    return [DueRow(names, terms, next_at.get(names)) for names, terms in counts.items()]


def sort_rows(rows: Sequence[DueRow], order: Order) -> list[DueRow]:
    """Sort rows; rows that are equal in this order are sorted by name."""
    return sorted(rows, key=lambda row: (*_KEYS[order](row), row.names))


def _next(row: DueRow) -> tuple[float, ...]:
    return (-row.counts[Term.NOW], row.next_at.timestamp() if row.next_at else float("inf"))


_KEYS: Mapping[Order, Callable[[DueRow], tuple[float, ...]]] = {
    Order.NAME: lambda _: (),
    Order.DUE: lambda row: tuple(-row.counts[term] for term in Term),
    Order.NEXT: _next,
    Order.STAYS: lambda row: (-row.counts[Term.KEPT],),
    Order.TOTAL: lambda row: (-row.total,),
}
