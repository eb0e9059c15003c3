"""The rows of `plan` and `top`: when the objects of a group are due, and how many finished ones still exist."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from rich.table import Table

from shared.cli.output.printing import instant_as_json
from shared.cli.output.tables import make_table
from shared.cli.planning.comparison import AnyDecision, Term, plain_term, source_of
from shared.core.decision.decide import Wait, find_fate
from shared.core.values.objects import printable
from shared.core.values.timing import format_duration
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


_TOP_VERSION = 1
"""The version of the JSON of `top`; a field that is added does not change it."""

_DAY = (Term.NOW, Term.HOUR, Term.DAY)
_COUNTS = ("FINISHED", "FOREVER", "DUE 24H", "OLDEST")
_CHANGE = "CHANGE"


@dataclass(frozen=True, slots=True)
class Pile:
    """The finished objects of one group.

    Attributes:
        names: The names of the group, one for each name column.
        finished: Their number.
        forever: How many of them are kept as long as nothing changes.
        due_within_day: How many of them are due now or within a day.
        oldest_at: When the first of them finished; None if no finish time is known.
        now: When they were read, by the API server's clock.
    """

    names: tuple[str, ...]
    finished: int
    forever: int
    due_within_day: int
    oldest_at: datetime | None
    now: datetime


First = Mapping[tuple[str, ...], int]
"""The number of finished objects of each group at the first read."""


def count_piles(objects: Sequence[BatchResult], by: By | None) -> list[Pile]:
    """Count the finished objects of each group; the group with the most comes first."""
    groups: defaultdict[tuple[str, ...], list[BatchResult]] = defaultdict(list)
    for one in objects:
        if one.decisions[0].facts.finish.finished:
            groups[names_of(one, by, one.decisions[0])].append(one)
    piles = [_pile(names, group) for names, group in groups.items()]
    return sorted(piles, key=lambda pile: (-pile.finished, pile.names))


def _pile(names: tuple[str, ...], group: Sequence[BatchResult]) -> Pile:
    terms = [plain_term(find_fate(one.decisions[0]), one.now) for one in group]
    ends = [at for one in group if (at := one.decisions[0].facts.finish.at)]
    due = sum(term in _DAY for term in terms)
    return Pile(names, len(group), terms.count(Term.KEPT), due, min(ends, default=None), group[0].now)


def pile_table(piles: Sequence[Pile], by: By | None, first: First | None, *, width: int) -> Table:
    """Make the table of `top`.

    Args:
        piles: The rows.
        by: What the objects of one row share.
        first: The number of finished objects of each group at the first read; None if there was one read.
        width: The most columns of a line.
    """
    names = TITLES[by]
    titles = (*names, *_COUNTS, *([_CHANGE] if first is not None else ()))
    rows = [
        (
            *pile.names,
            *(str(count) for count in (pile.finished, pile.forever, pile.due_within_day)),
            describe_roughly(pile.now - pile.oldest_at) if pile.oldest_at else NAMELESS,
            *([f"{pile.finished - first.get(pile.names, 0):+}"] if first is not None else ()),
        )
        for pile in piles
    ]
    return make_table(titles, rows, width=width, names=len(names), gap=2)


def piles_as_json(piles: Sequence[Pile], by: By | None) -> dict[str, Any]:
    """Return the documented JSON of `top`."""
    return {"version": _TOP_VERSION, "by": by, "rows": [_as_json(pile, by) for pile in piles]}


def _as_json(pile: Pile, by: By | None) -> dict[str, Any]:
    return {
        **names_as_json(pile.names, by),
        "finished": pile.finished,
        "forever": pile.forever,
        "dueWithin24h": pile.due_within_day,
        "oldestFinishedAt": instant_as_json(pile.oldest_at),
    }
