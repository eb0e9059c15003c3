"""The tables of `plan`: how many objects are due, or are stopped, and when, for each group; then a legend."""

import sys
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from shared.cli.output.plural import plural
from shared.cli.output.tables import make_table, output_console
from shared.cli.output.width import echo
from shared.cli.planning.due_names import print_names
from shared.cli.planning.due_rows import NAMELESS, TITLES, DueRow, count_rows, describe_roughly
from shared.cli.planning.forecast import print_forecast
from shared.cli.planning.plan_view import PlanView
from shared.cli.policies.comparison import Term
from shared.core.deadlines.decide_stop import Stop
from shared.core.decide import Expire, Ignore, Reason, Wait, find_fate
from shared.evaluation.batch import BatchResult

_COUNTS = ("DUE NOW", "1H", "1H-24H", "LATER", "STAYS", "NEXT DUE")
_STOP_COUNTS = ("STOP NOW", "1H", "1H-24H", "LATER", "STAYS", "NEXT STOP")
_LEGEND = "1H: within 1h. 1H-24H: in 1h to 24h. LATER: after that. STAYS: kept for now."
_WITHOUT_DEADLINE = (Reason.NO_DEADLINE, Reason.FINISHED, Reason.ALREADY_STOPPED, Reason.NEVER)
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
        print_names(output_console(), objects, top=view.top)


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
