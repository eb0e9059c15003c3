"""Finished objects that still exist, by group, for `top`."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.table import Table

from shared.cli.output.tables import make_table
from shared.cli.output.time_text import instant_as_json
from shared.cli.planning.due_rows import NAMELESS, TITLES, By, describe_roughly, names_as_json, names_of
from shared.cli.policies.comparison import Term, plain_term
from shared.core.decision.decide import find_fate
from shared.evaluation.batch import BatchResult

VERSION = 1
"""The version of the JSON; a field that is added does not change it."""

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
    return {"version": VERSION, "by": by, "rows": [_as_json(pile, by) for pile in piles]}


def _as_json(pile: Pile, by: By | None) -> dict[str, Any]:
    return {
        **names_as_json(pile.names, by),
        "finished": pile.finished,
        "forever": pile.forever,
        "dueWithin24h": pile.due_within_day,
        "oldestFinishedAt": instant_as_json(pile.oldest_at),
    }
