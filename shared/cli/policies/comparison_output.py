"""The output of `plan --policy`: the comparison of two policies as tables and as JSON."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from shared.cli.objects.archive_report import if_archived, is_archived_first
from shared.cli.objects.deadline_report import PAST
from shared.cli.objects.object_report import as_json
from shared.cli.output.tables import make_table
from shared.cli.output.time_text import describe_time
from shared.cli.policies.comparison import Comparison, Count, Row, Term, source_of
from shared.cli.policies.policy_warnings import PolicyWarning
from shared.core.deadlines.decide_stop import Stop, StopDecision
from shared.core.decision.decide import Decision, Expire, Ignore, Reason, Wait, find_fate
from shared.core.values.objects import printable
from shared.evaluation.batch import BatchResult

SHOWN = 20
"""The most rows of a table, and the most objects, without --all."""

_TITLES = {
    Term.NOW: "DUE NOW",
    Term.HOUR: "WITHIN 1H",
    Term.DAY: "1H TO 24H",
    Term.LATER: "LATER",
    Term.KEPT: "KEPT",
}
_SUMS = {
    Term.NOW: "due now",
    Term.HOUR: "within 1h",
    Term.DAY: "in 1h to 24h",
    Term.LATER: "later",
    Term.KEPT: "kept",
}
_IDENTITY = ("apiVersion", "kind", "namespace", "name")
_DECISION = ("decision", "reason", "ttlSeconds", "ttlFrom", "dueAt", "deadline")


def show(console: Console, comparison: Comparison, *, everything: bool) -> None:
    """Print three tables, the objects that change, and the totals.

    Args:
        console: The console to print to.
        comparison: Of the policy in force and the new one.
        everything: Whether to print every row and object.
    """
    most = None if everything else SHOWN
    tables = (
        ("BY", "no source", comparison.rules),
        ("KIND", "-", comparison.kinds),
        ("NAMESPACE", "-", comparison.namespaces),
    )
    for title, nameless, rows in tables if comparison.objects else ():
        console.print(_table(title, nameless, islice(rows.items(), most), console.width))
        _print_rest(console, len(rows), most)
    for name, count in comparison.unanswered.items():
        console.print(f"{escape(printable(name))} has no TTL for {_cell(count)} objects, which are kept: see `explain`")
    recreated = comparison.recreated
    if recreated.in_force or recreated.new:
        how = "a policy rule with `onRecreated: delete` deletes them"
        console.print(f"kept, since a controller such as Argo CD or Flux creates them again: {_cell(recreated)}; {how}")
    changed = comparison.changed
    if changed:
        console.print(_changes(islice(changed, most), console.width))
        _print_rest(console, len(changed), most)
    sums = ", ".join(f"{_cell(comparison.totals[term])} {text}" for term, text in _SUMS.items())
    console.print(f"{sums}; {len(changed):,} of {len(comparison.objects):,} objects change")
    if any(count.in_force or count.new for term, count in comparison.stops.items() if term is not Term.KEPT):
        texts = {Term.NOW: "stopped now", **{term: _SUMS[term] for term in (Term.HOUR, Term.DAY, Term.LATER)}}
        stops = ", ".join(f"{_cell(comparison.stops[term])} {text}" for term, text in texts.items())
        console.print(f"at their deadline: {stops}")


def _print_rest(console: Console, count: int, most: int | None) -> None:
    if most is not None and count > most:
        console.print(f"... and {count - most:,} more: --all shows them\n")


def _table(title: str, nameless: str, rows: Iterable[tuple[str, Row]], width: int) -> Table:
    cells = [(printable(name) or nameless, *(_cell(row[term]) for term in Term)) for name, row in rows]
    return make_table([title, *_TITLES.values()], cells, width=width)


def _cell(count: Count) -> str:
    """Return the count under the new policy and the difference: `12 (+3)`."""
    return f"{count.new:,} ({count.more:+,})" if count.more else f"{count.new:,}"


def _changes(objects: Iterable[BatchResult], width: int) -> Table:
    cells = [
        (str(one.ref), *(describe(*both, one.now) for both in zip(one.decisions, one.stops, strict=True)))
        for one in objects
    ]
    return make_table(("OBJECT THAT CHANGES", "IN FORCE", "NEW"), cells, width=width, justify="left")


def describe(decision: Decision, stop: StopDecision, now: datetime) -> str:
    """Say both decisions in a few words: `due in 5m, by policy rule ci`, `kept (kept-last)`, `stopped in 2h, by …`."""
    by = f", by {source}" if (source := source_of(decision)) else ""
    moved = f", moved by {decision.facts.moved_by}" if decision.facts.moved_by else ""
    decision, stop = find_fate(decision), find_fate(stop)
    match decision:
        case Ignore() if not isinstance(stop, Ignore):
            return _describe_stop(stop, now)
        case Ignore(reason):
            rule = decision.facts.keep_last_rule
            by_rule = f" by {rule.source}" if rule and reason is Reason.KEPT_LAST else ""
            archived = _describe_if_archived(if_archived(decision, now), now) if is_archived_first(decision) else ""
            return f"kept ({reason}{by_rule}){archived}{by if archived else ''}"
        case Wait(until):
            return f"due {describe_time(until, now)}{by}{moved}"
        case Expire():
            return f"due now{by}{moved}"


def _describe_if_archived(decision: Decision, now: datetime) -> str:
    """Say when an object is due that is archived first."""
    if isinstance(decision, Wait):
        return f"; if archived now, due {describe_time(decision.until, now)}"
    return "; due as soon as it is archived" if isinstance(decision, Expire) else ""


def _describe_stop(stop: Wait | Stop, now: datetime) -> str:
    active = stop.facts.active
    moved = f", shortened by {active.moved_by}" if active.moved_by else ""
    when = describe_time(stop.until, now) if isinstance(stop, Wait) else "now"
    return f"{PAST[active.action]} {when}, by {source_of(stop)}{moved}"


def as_document(
    comparison: Comparison,
    names: Mapping[str, str],
    warning: PolicyWarning,
    safeguards: Sequence[str],
    deadlines: Sequence[str] = (),
    archives: Sequence[str] = (),
) -> Any:
    """Return the documented JSON; counts are {"inForce": 3, "new": 5}, instants are RFC 3339 in UTC.

    Args:
        comparison: Of the policy in force and the new one.
        names: The names of the two policies, by their JSON fields.
        warning: How many objects the new policy would delete at once.
        safeguards: The effect of the new policy's budget and breaker, in sentences.
        deadlines: Where a deadline of the new policy has no effect, in sentences.
        archives: Where an archive of the new policy has no effect, in sentences.
    """
    return {
        **names,
        "objects": len(comparison.objects),
        "totals": _counts(comparison.totals),
        "stops": _counts(comparison.stops),
        "rules": list(_rows("rule", comparison.rules)),
        "kinds": list(_rows("kind", comparison.kinds)),
        "namespaces": list(_rows("namespace", comparison.namespaces)),
        "unanswered": [{"rule": name, **_as_counts(count)} for name, count in comparison.unanswered.items()],
        "recreated": _as_counts(comparison.recreated),
        "changes": [_change(one) for one in comparison.changed],
        "limit": {
            "dueNow": warning.due_now,
            "stoppedNow": warning.stopped_now,
            "archivedFirst": sum(warning.archived_first.values()),
            "limit": warning.limit,
            "isExceeded": warning.is_raised,
        },
        "safeguards": list(safeguards),
        "deadlines": list(deadlines),
        "archives": list(archives),
    }


def _counts(row: Row) -> dict[str, dict[str, int]]:
    return {term: _as_counts(count) for term, count in row.items()}


def _as_counts(count: Count) -> dict[str, int]:
    return {"inForce": count.in_force, "new": count.new}


def _rows(field: str, rows: Mapping[str, Row]) -> Iterator[dict[str, Any]]:
    yield from ({field: name or None, **_counts(row)} for name, row in rows.items())


def _change(one: BatchResult) -> dict[str, Any]:
    in_force, new = (as_json(one.ref, *both) for both in zip(one.decisions, one.stops, strict=True))
    return {
        **{name: new[name] for name in _IDENTITY},
        "inForce": {name: in_force[name] for name in _DECISION},
        "new": {name: new[name] for name in _DECISION},
    }
