"""The tables of `plan`: how many objects are due, or are stopped, and when, for each namespace and kind."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from shared.cli.output.tables import make_table, output_console
from shared.cli.output.width import echo
from shared.core.deadlines.decide_stop import Stop
from shared.core.decide import Expire, Ignore, Reason, Wait
from shared.core.ttl.durations import format_duration
from shared.evaluation.batch import BatchResult

_TITLES = ("NAMESPACE", "KIND", "DUE NOW", "WITHIN 1H", "LATER", "NEXT DUE", "HELD BACK", "OTHERS")
_STOP_TITLES = ("NAMESPACE", "KIND", "STOP NOW", "WITHIN 1H", "LATER", "NEXT STOP", "NOT STOPPED")
_UNIT = re.compile(r"\d+[a-z]+")
_SOON = timedelta(hours=1)
_HELD_BACK = (
    Reason.HELD,
    Reason.EXEMPT,
    Reason.INVALID_POLICY,
    Reason.INVALID_TTL,
    Reason.OWNER_UNFINISHED,
    Reason.DISPATCHED,
    Reason.AGGREGATED_API,
    Reason.FINISH_TIME_UNKNOWN,
    Reason.NAMESPACE_UNREAD,
    Reason.INHERITED_UNREAD,
    Reason.KEPT_LAST,
    Reason.NOT_ARCHIVED,
    Reason.INVALID_ARCHIVE,
)
_WITHOUT_DEADLINE = (Reason.NO_DEADLINE, Reason.FINISHED, Reason.ALREADY_STOPPED, Reason.NEVER)


def print_table(objects: Sequence[BatchResult]) -> None:
    """Print how many objects of each namespace and kind are due, and when; then the same for stops at deadlines."""
    groups: defaultdict[tuple[str, str], list[BatchResult]] = defaultdict(list)
    for one in objects:
        groups[one.ref.namespace, one.ref.kind].append(one)
    by_name = sorted(groups.items())
    _print_rows(_TITLES, [(namespace or "-", kind, *_summary(group)) for (namespace, kind), group in by_name])
    counts = Counter(type(one.decisions[0]) for one in objects)
    echo(f"{counts[Expire]} due now, {counts[Wait]} due later, {counts[Ignore]} kept, of {len(objects)} objects")
    stopping = [(names, [one for one in group if _has_deadline(one)]) for names, group in by_name]
    rows = [(namespace or "-", kind, *_stop_summary(group)) for (namespace, kind), group in stopping if group]
    if rows:
        _print_rows(_STOP_TITLES, rows)
        stops = Counter(type(one.stops[0]) for one in objects if _has_deadline(one))
        sums = f"{stops[Stop]} stopped now, {stops[Wait]} stopped later, {stops[Ignore]} not stopped"
        echo(f"{sums}, of {stops.total()} objects with a deadline")


def _print_rows(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if rows:
        console = output_console()
        console.print(make_table(titles, rows, width=console.width, names=2, gap=2))


def _has_deadline(one: BatchResult) -> bool:
    """Return whether a source sets a deadline for an object that still runs, or a value that sets one is invalid."""
    stop = one.stops[0]
    is_set = stop.facts.active.deadline is not None or stop.reason is Reason.INVALID_DEADLINE
    return is_set and stop.reason not in _WITHOUT_DEADLINE and stop.facts.finish.finished is False


def _describe_roughly(time_left: timedelta) -> str:
    """Return the two largest units, as in `in 23h59m`, so that the table fits 80 columns."""
    return f"in {''.join(_UNIT.findall(format_duration(time_left))[:2])}"


def _summary(group: Sequence[BatchResult]) -> tuple[str, ...]:
    now: datetime = group[0].now
    decisions = [one.decisions[0] for one in group]
    due_now = sum(isinstance(one, Expire) for one in decisions)
    dues = sorted(one.until for one in decisions if isinstance(one, Wait))
    soon = sum(due <= now + _SOON for due in dues)
    held_back = sum(one.reason in _HELD_BACK for one in decisions)
    rest = len(group) - due_now - len(dues) - held_back
    next_due = _describe_roughly(dues[0] - now) if dues else "-"
    return (str(due_now), str(soon), str(len(dues) - soon), next_due, str(held_back), str(rest))


def _stop_summary(group: Sequence[BatchResult]) -> tuple[str, ...]:
    now: datetime = group[0].now
    stops = [one.stops[0] for one in group]
    stopped_now = sum(isinstance(one, Stop) for one in stops)
    dues = sorted(one.until for one in stops if isinstance(one, Wait))
    soon = sum(due <= now + _SOON for due in dues)
    next_due = _describe_roughly(dues[0] - now) if dues else "-"
    rest = len(group) - stopped_now - len(dues)
    return (str(stopped_now), str(soon), str(len(dues) - soon), next_due, str(rest))
