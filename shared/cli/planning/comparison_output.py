"""The output of `plan --policy`: the comparison of two policies as tables and as JSON, and warnings about it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from shared.cli.objects.archive_report import describe_archived_first, if_archived, is_archived_first
from shared.cli.objects.object_report import PAST, as_json
from shared.cli.output.printing import describe_time
from shared.cli.output.tables import make_table
from shared.cli.planning.comparison import Comparison, Count, Row, Term, source_of
from shared.core.deadlines.deadline import Stage
from shared.core.deadlines.decide_stop import Stop, StopDecision
from shared.core.decision.decide import Decision, Expire, Ignore, Reason, Wait, find_fate
from shared.core.decision.facts import find_propagation
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.policy.limits import BreakerLimits, Limits, Rate
from shared.core.policy.policy import Policy
from shared.core.values.objects import printable
from shared.core.values.timing import format_duration
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


@dataclass(frozen=True, slots=True)
class PolicyWarning:
    """How many objects a policy would delete or stop at once.

    Attributes:
        due_now: The number of objects that it would delete, the unused Secrets and ConfigMaps included.
        limit: The number above which the warning is raised.
        by: Their number for each rule, field or annotation, the highest first; then the same for stops.
        stopped_now: The number of objects that it would stop.
        archived_first: How many of the deleted objects wait only for their archive, by its name.
    """

    due_now: int
    limit: int
    by: tuple[tuple[str, int], ...]
    stopped_now: int = 0
    archived_first: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_raised(self) -> bool:
        """Return whether the number exceeds the limit."""
        return self.due_now + self.stopped_now > self.limit

    def __str__(self) -> str:
        parts = ", ".join(f"{count:,} by {name}" for name, count in self.by)
        stopped = f" and {self.stopped_now:,} stopped" if self.stopped_now else ""
        number = "object" if self.due_now == 1 else "objects"
        text = f"{self.due_now:,} {number} would be deleted{stopped} at once, more than {self.limit:,}: {parts}"
        return "; ".join((text, *(describe_archived_first(*one) for one in sorted(self.archived_first.items()))))


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


LIMIT = 1_000
"""The limit of objects due at once, unless the policy's own breaker sets a count."""

_RELEASE = "the rest is kept until you release the breaker"


def check_limit(
    comparison: Comparison, limits: Limits, limit: int | None, unused: Mapping[str, int] | None = None
) -> PolicyWarning:
    """Compare the number of objects that a new policy deletes or stops at once with the limit.

    Args:
        comparison: Of the policy in force and the new one.
        limits: The new policy's budget and breaker.
        limit: The operator's limit; None for the breaker's count, else LIMIT.
        unused: The unused Secrets and ConfigMaps that are due at once, by rule; see `PlannedUsage.at_once`.
    """
    most = limit if limit is not None else limits.breaker.count or LIMIT
    counts = [(name, row[Term.NOW].new) for name, row in comparison.rules.items()]
    unused = unused or {}
    by = (*(one for one in counts if one[1]), *unused.items(), *comparison.stops_now.items())
    due_now = comparison.totals[Term.NOW].new + sum(unused.values())
    stopped_now = comparison.stops[Term.NOW].new
    return PolicyWarning(due_now, most, by, stopped_now, comparison.archived_first)


def find_unused(comparison: Comparison, policy: Policy) -> Iterator[str]:
    """Find the rules of the new policy that set the TTL of no object, which is often a mistake."""
    used = {name for name, row in comparison.rules.items() if any(count.new for count in row.values())}
    by_rule = {source.rpartition(" of ")[2] for source in used}  # `maxCount of policy rule ci`, too
    yield from (rule.source for rule in policy.rules if rule.ttl and rule.source not in by_rule)


def describe_budgets(comparison: Comparison, limits: Limits) -> Iterator[str]:
    """Say how long the policy's own budgets delay the objects."""
    due = comparison.due_within(timedelta())
    if limits.everywhere and (delay := _describe_rate(len(due), limits.everywhere)):
        yield f"the policy's budget: {delay}"
    if limits.per_namespace and due:
        (name, count), *_ = Counter(one.ref.namespace for one in due).most_common(1)
        if delay := _describe_rate(count, limits.per_namespace):
            yield f"the policy's budget in namespace {name or '-'}: {delay}"


def describe_breaker(comparison: Comparison, breaker: BreakerLimits) -> Iterator[str]:
    """Say by which of its limits the policy's own breaker would trip."""
    due = comparison.due_within(breaker.window)
    window = format_duration(breaker.window)
    if breaker.count is not None and len(due) > breaker.count:
        counts = f"{len(due):,} are due within {window}, and {breaker.count:,} are allowed"
        yield f"the policy's breaker would trip: {counts}; {_RELEASE}"
    if breaker.share is None:
        return
    totals = Counter(one.rule.name for one in comparison.objects)
    for name, count in Counter(one.rule.name for one in due).items():
        if count > max(breaker.at_least, breaker.share * totals[name]):
            share = f"{count:,} of {totals[name]:,} {name} are due within {window}, and {breaker.share:.0%} are allowed"
            yield f"the policy's breaker would trip: {share}; {_RELEASE}"


def _describe_rate(count: int, rate: Rate) -> str:
    """Say how long a budget delays the last of these objects; an empty text if the burst allows all at once."""
    if count <= rate.burst:
        return ""
    seconds = round((count - rate.burst) / rate.per_second)
    takes = format_duration(timedelta(seconds=max(1, seconds)))
    return f"{rate.per_second:g} a second after the first {rate.burst:,}, so {count:,} take {takes}"


def describe_deadlines(comparison: Comparison, policy: Policy) -> Iterator[str]:
    """Say which rules of the new policy set a deadline that has no effect, or not the effect that the rule names."""
    yield from _describe_unstoppable(comparison)
    yield from _describe_opt_in(comparison, policy)
    yield from _describe_shortened(comparison)
    used = {
        (active.deadline.source, active.stage)
        for active in (one.stops[1].facts.active for one in comparison.objects)
        if active.deadline
    }
    for rule in policy.rules:
        if Stage.ACTIVE in rule.deadlines and (rule.source, Stage.ACTIVE) not in used:
            yield f"no running object gets its deadline from {rule.source}"


def _describe_unstoppable(comparison: Comparison) -> Iterator[str]:
    """The kinds that have no way to stop an object, by the rule that sets a deadline for them."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for one in comparison.objects:
        stop = one.stops[1]
        deadline = stop.facts.active.deadline
        if stop.reason is Reason.CANNOT_STOP and deadline and deadline.origin == "policy":
            counts[deadline.source, one.rule.name, stop.facts.problem] += 1
    for (source, kind, problem), count in counts.items():
        yield f"{source} sets a deadline for {count:,} {kind}, which are not stopped: {problem}"


def _describe_opt_in(comparison: Comparison, policy: Policy) -> Iterator[str]:
    """The opt-in kinds for which a rule sets no deadline because it matches them by a glob."""
    kinds: dict[str, KindRule] = {one.rule.name: one.rule for one in comparison.objects if one.rule.opt_in}
    for kind in kinds.values():
        for one in policy.candidates(kind):
            if one.rule.sets_deadline and not one.rule.match.names(kind):
                yield f"{one.rule.source} sets no deadline for {kind.name}, an opt-in kind: name it in match.kinds"


def _describe_shortened(comparison: Comparison) -> Iterator[str]:
    """The namespaces whose maximum shortens the deadline of a rule."""
    counts: Counter[tuple[str, str]] = Counter()
    for one in comparison.objects:
        active = one.stops[1].facts.active
        if active.moved_by and active.deadline and active.deadline.origin == "policy":
            counts[active.deadline.source, one.ref.namespace] += 1
    for (source, namespace), count in counts.items():
        shortened = f"max-active-deadline of namespace {namespace} shortens the deadline"
        yield f"{shortened} of {source} for {count:,} {'object' if count == 1 else 'objects'}"


def describe_owners(objects: Sequence[BatchResult], policy: Policy, kinds: Catalogue) -> Iterator[str]:
    """Say how many objects may be deleted later than shown: a rule has their children archived, which go with them.

    `plan` does not read the children of each object.

    Args:
        objects: The decisions about each object; the last one counts.
        policy: The policy of these decisions.
        kinds: All known kinds.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for one in objects:
        if _takes_children(one):
            for child in _archived_children(one.rule, kinds, policy):
                counts[one.rule.name, child.name] += 1
    for (owner, name), count in counts.items():
        yield (
            f"{count:,} {owner} may be deleted later than shown: not before their {name} are archived, and the grace of"
            " that archive is over; `kubectl ttl explain` shows it for one of them"
        )


def _takes_children(one: BatchResult) -> bool:
    """Return whether an object is deleted now or later, by its TTL or at its deadline, and its children with it."""
    decision, stop = one.decisions[-1], one.stops[-1]
    ends = decision if not isinstance(decision, Ignore) else stop
    is_deleted = not isinstance(ends, Ignore) and (ends is decision or stop.facts.active.deletes)
    return is_deleted and find_propagation(ends.facts, one.rule) != "Orphan"


def _archived_children(rule: KindRule, kinds: Catalogue, policy: Policy) -> Iterator[KindRule]:
    for child in rule.children:
        yield from (one for one in kinds.of(child.group, child.kind)[:1] if policy.archives_kind(one))
