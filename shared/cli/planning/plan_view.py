"""What `plan` shows of the objects, as its options choose it: tables with a legend, names, or JSON.

A row of a table says how many objects of a group are due, or are stopped, and when. The JSON has the same rows, in
their order.
"""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import click
from rich.bar import Bar
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shared.cli.output.printing import describe_time, echo, instant_as_json, plural
from shared.cli.output.tables import make_table, output_console
from shared.cli.planning.comparison import Term
from shared.cli.planning.due_rows import (
    NAMELESS,
    TITLES,
    By,
    DueRow,
    Order,
    count_rows,
    describe_roughly,
    names_as_json,
    sort_rows,
)
from shared.core.deadlines.decide_stop import Stop
from shared.core.decision.decide import Expire, Ignore, Reason, Wait, find_fate
from shared.core.decision.forecast import FORECAST_HOURS, find_window
from shared.core.values.objects import format_instant, printable
from shared.evaluation.batch import BatchResult

CallableT = TypeVar("CallableT", bound=Callable[..., Any])

_JSON_VERSION = 1
"""The version of the form of the JSON; a field that is added does not change it."""

_COUNTS = ("DUE NOW", "1H", "1H-24H", "LATER", "STAYS", "NEXT DUE")
_STOP_COUNTS = ("STOP NOW", "1H", "1H-24H", "LATER", "STAYS", "NEXT STOP")
_LEGEND = "1H: within 1h. 1H-24H: in 1h to 24h. LATER: after that. STAYS: kept for now."
_WITHOUT_DEADLINE = (Reason.NO_DEADLINE, Reason.FINISHED, Reason.ALREADY_STOPPED, Reason.NEVER)
_TITLES_OF_NAMES = ("OBJECT", "DUE AT", "DUE")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    """The values of the options.

    Attributes:
        by: What the objects of one row share; None for namespace and kind.
        sort: The order of rows; None for the default.
        top: The most rows and names; None for all.
        names: Whether each due object is listed.
        forecast: Whether the plot is printed; None for only on a terminal.
    """

    by: By | None = None
    sort: Order | None = None
    top: int | None = None
    names: bool = False
    forecast: bool | None = None

    @property
    def is_default(self) -> bool:
        """Return whether no option is set."""
        return self == PlanView()

    def choose(self, rows: Sequence[DueRow]) -> list[DueRow]:
        """Return the rows that are shown, in their order; with `top` alone, those with the most due objects."""
        order = self.sort or (Order.NAME if self.top is None else Order.DUE)
        return sort_rows(rows, order)[: self.top]


def view_options(command: CallableT) -> CallableT:
    """Add the options of `PlanView` to a command, which gets them in the argument `view`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = (
    click.option(
        "--by",
        type=click.Choice([one.value for one in By]),
        help="One row for each namespace, kind, source of the TTL, or owner. Default: for each namespace and kind.",
    ),
    click.option(
        "--sort",
        type=click.Choice([one.value for one in Order]),
        help="The order of the rows: by name, by what is due first or next, by what stays, or by the number of "
        "objects. Default: name; due if --top is set.",
    ),
    click.option("--top", type=click.IntRange(min=1), metavar="N", help="Only the first N rows, and N names."),
    click.option("--names", is_flag=True, help="Also list each object that is due, with its due time."),
    click.option(
        "--forecast/--no-forecast",
        default=None,
        help="Print a plot of what is due in the next 24 hours. Default: only on a terminal.",
    ),
)


def view_of(*, by: str | None, sort: str | None, top: int | None, names: bool, forecast: bool | None) -> PlanView:
    """Make a view of the values that click gives."""
    return PlanView(
        by=By(by) if by else None, sort=Order(sort) if sort else None, top=top, names=names, forecast=forecast
    )


_DEFAULT = PlanView()


def print_plan(objects: Sequence[BatchResult], view: PlanView = _DEFAULT) -> None:
    """Print how many objects of each group are due, and when; then the same for stops at deadlines.

    Args:
        objects: The objects, with one decision each.
        view: What is shown of them.
    """
    if objects:
        _print_rows(_COUNTS, count_rows(objects, view.by), view, objects[0].now)
    counts = Counter(type(find_fate(one.decisions[0])) for one in objects)
    echo(f"{counts[Expire]} due now, {counts[Wait]} due later, {counts[Ignore]} kept, of {len(objects)} objects")
    if objects:
        _print_reasons(objects)
        _print_audited(objects)
        echo(_LEGEND)
    _print_stops([one for one in objects if _has_deadline(one)], view)
    if view.forecast or (view.forecast is None and sys.stdout.isatty()):
        print_forecast(output_console(), objects)
    if view.names:
        _print_names(output_console(), objects, top=view.top)


def _print_reasons(objects: Sequence[BatchResult]) -> None:
    fates = [find_fate(one.decisions[0]) for one in objects]
    reasons = Counter(str(one.reason) for one in fates if isinstance(one, Ignore))
    if reasons:
        kept = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        echo(f"kept, by reason: {kept}")


def _print_audited(objects: Sequence[BatchResult]) -> None:
    """Print how many objects the rules with audit only report."""
    facts = [decision.facts for one in objects for decision in (one.decisions[0], one.stops[0])]
    by_rule = Counter(one.audited_by for one in facts if one.audited_by)
    if by_rule:
        rules = ", ".join(f"{name} ({count})" for name, count in sorted(by_rule.items()))
        echo(f"only reported, now or once they are due, by policy rules with audit: {rules}")


def _print_stops(objects: Sequence[BatchResult], view: PlanView) -> None:
    if not objects:
        return
    rows = count_rows(objects, view.by, lambda one: one.stops[0])
    _print_rows(_STOP_COUNTS, rows, view, objects[0].now)
    stops = Counter(type(find_fate(one.stops[0])) for one in objects)
    sums = f"{stops[Stop]} stopped now, {stops[Wait]} stopped later, {stops[Ignore]} not stopped"
    echo(f"{sums}, of {stops.total()} objects with a deadline")


def _print_rows(titles: Sequence[str], rows: Sequence[DueRow], view: PlanView, now: datetime) -> None:
    shown = view.choose(rows)
    if not shown:
        return
    cells = [(*row.names, *(str(row.counts[term]) for term in Term), _next(row, now)) for row in shown]
    names = TITLES[view.by]
    console = output_console()
    console.print(make_table((*names, *titles), cells, width=console.width, names=len(names), gap=2))
    if len(shown) < len(rows):
        echo(f"... and {plural(len(rows) - len(shown), 'more row')}")


def _has_deadline(one: BatchResult) -> bool:
    """Return whether a source sets a deadline for an object that still runs, or a value that sets one is invalid."""
    stop = one.stops[0]
    is_set = stop.facts.active.deadline is not None or stop.reason is Reason.INVALID_DEADLINE
    return is_set and stop.reason not in _WITHOUT_DEADLINE and stop.facts.finish.finished is False


def _next(row: DueRow, now: datetime) -> str:
    return f"in {describe_roughly(row.next_at - now)}" if row.next_at else NAMELESS


def _find_due(objects: Sequence[BatchResult]) -> list[tuple[datetime, BatchResult]]:
    """Return the objects that are due, now or later, with their due times; the first due comes first."""
    found = [(at, one) for one in objects if (at := _due_at(one)) is not None]
    return sorted(found, key=lambda item: (item[0], str(item[1].ref)))


def _due_at(one: BatchResult) -> datetime | None:
    """Return when an object is due; None if it is kept."""
    match find_fate(one.decisions[0]):
        case Expire(since):
            return since
        case Wait(until):
            return until
        case _:
            return None


def _print_names(console: Console, objects: Sequence[BatchResult], *, top: int | None) -> None:
    """Print a line for each due object.

    Args:
        console: The console to print to.
        objects: The objects.
        top: The most lines; None for all.
    """
    found = _find_due(objects)
    if not found:
        return
    rows = [
        (printable(str(one.ref)), format_instant(at.replace(microsecond=0)), _describe_due(at, one))
        for at, one in found[:top]
    ]
    console.print(make_table(_TITLES_OF_NAMES, rows, width=console.width, gap=2))
    if len(found) > len(rows):
        console.print(f"... and {plural(len(found) - len(rows), 'more object')}")


def _describe_due(at: datetime, one: BatchResult) -> str:
    return "now" if at <= one.now else describe_time(at.replace(microsecond=0), one.now.replace(microsecond=0))


def rows_as_json(objects: Sequence[BatchResult], view: PlanView) -> dict[str, Any]:
    """Return the documented JSON of the rows.

    Args:
        objects: The objects, with one decision each.
        view: What is shown of them; `by` is set.
    """
    rows = count_rows(objects, view.by)
    fates = [find_fate(one.decisions[0]) for one in objects]
    kept = Counter(str(one.reason) for one in fates if isinstance(one, Ignore))
    return {
        "version": _JSON_VERSION,
        "by": view.by,
        "objects": len(objects),
        "rows": [_row_as_json(row, view.by) for row in view.choose(rows)],
        "totals": {term: sum(row.counts[term] for row in rows) for term in Term},
        "keptByReason": dict(kept.most_common()),
        "forecast": [{"window": bar.label, "count": bar.count} for bar in forecast(objects)],
    }


def _row_as_json(row: DueRow, by: By | None) -> dict[str, Any]:
    counts = {str(term): row.counts[term] for term in Term}
    return {**names_as_json(row.names, by), **counts, "nextDueAt": instant_as_json(row.next_at)}


STEP_HOURS = 3
BAR_WIDTH_MAX = 56
"""Columns of the longest bar."""

_BESIDE = 24
"""Columns for the label and the count of a bar."""


@dataclass(frozen=True, slots=True)
class ForecastBar:
    """The objects that are due in one window of time.

    Attributes:
        label: The window: `now`, `0-3h`, `later`.
        count: The number of objects.
    """

    label: str
    count: int


def forecast(objects: Sequence[BatchResult], step_hours: int = STEP_HOURS) -> list[ForecastBar]:
    """Count the objects that are due, by windows of equal length between the first and the last bar.

    Args:
        objects: The objects.
        step_hours: The hours of a window, a divisor of FORECAST_HOURS.
    """
    counts = Counter(window for one in objects if (window := _window(one, step_hours)) is not None)
    starts = range(0, FORECAST_HOURS, step_hours)
    labels = ["now", *(f"{start}-{start + step_hours}h" for start in starts), "later"]
    return [ForecastBar(label, counts[number]) for number, label in enumerate(labels)]


def _window(one: BatchResult, step_hours: int) -> int | None:
    """Return the number of the bar that counts an object; None if it is kept."""
    match find_fate(one.decisions[0]):
        case Expire():
            return 0
        case Wait(until):
            return max(find_window(until, one.now, hours=step_hours), 1)
        case _:
            return None


def print_forecast(console: Console, objects: Sequence[BatchResult]) -> None:
    """Print one bar for each window, with its number; nothing if no object is due."""
    bars = forecast(objects)
    most = max(one.count for one in bars)
    if not most:
        return
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_column()
    width = max(min(BAR_WIDTH_MAX, console.width - _BESIDE), 1)
    for one in bars:
        table.add_row(Text(f"due {one.label}"), Text(f"{one.count:,}"), Bar(most, 0, one.count, width=width))
    console.print(table)
