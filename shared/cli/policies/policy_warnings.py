"""Warnings about a new policy: how much it deletes at once, and which of its limits that exceeds."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from shared.cli.objects.archive_report import describe_archived_first
from shared.cli.policies.comparison import Comparison, Term
from shared.core.policy.limits import BreakerLimits, Limits, Rate
from shared.core.policy.policy import Policy
from shared.core.ttl.durations import format_duration

LIMIT = 1_000
"""The limit of objects due at once, unless the policy's own breaker sets a count."""

_RELEASE = "the rest is kept until you release the breaker"


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
