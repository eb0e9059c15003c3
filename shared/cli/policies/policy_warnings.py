"""What must not go unsaid of a policy: that it deletes much at once, and what would stop it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from shared.cli.policies.comparison import Comparison, Term
from shared.core.policy.limits import BreakerLimits, Limits, Rate
from shared.core.policy.policy import Policy
from shared.core.ttl.durations import format_duration

LIMIT = 1_000
"""Objects due at once, unless the policy's own breaker says another number."""

_RELEASE = "the rest stays until somebody releases it"


@dataclass(frozen=True, slots=True)
class PolicyWarning:
    """How much a policy would delete at once.

    Attributes:
        due_now: Objects.
        limit: How many of them are worth an alarm.
        by: Of each rule, field or annotation, the most first.
    """

    due_now: int
    limit: int
    by: tuple[tuple[str, int], ...]

    @property
    def is_raised(self) -> bool:
        """Whether there are more than the limit."""
        return self.due_now > self.limit

    def __str__(self) -> str:
        parts = ", ".join(f"{count:,} by {name}" for name, count in self.by)
        return f"{self.due_now:,} objects would go at once, more than {self.limit:,}: {parts}"


def sound(comparison: Comparison, limits: Limits, limit: int | None) -> PolicyWarning:
    """The alarm for a new policy.

    Args:
        comparison: With the policy in force.
        limits: The new policy's own.
        limit: In place of what is usual.
    """
    most = limit if limit is not None else limits.breaker.count or LIMIT
    counts = [(name, row[Term.NOW].new) for name, row in comparison.rules.items()]
    return PolicyWarning(comparison.totals[Term.NOW].new, most, tuple(one for one in counts if one[1]))


def find_unused(comparison: Comparison, policy: Policy) -> Iterator[str]:
    """The rules of the new policy that say for none of the objects how long it stays: a slip, often enough."""
    speaking = {name for name, row in comparison.rules.items() if any(count.new for count in row.values())}
    yield from (rule.source for rule in policy.rules if rule.ttl and rule.source not in speaking)


def describe_safeguards(comparison: Comparison, limits: Limits) -> Iterator[str]:
    """What the policy's own breaker and budget would make of it, a sentence each."""
    yield from _describe_breaker(comparison, limits.breaker)
    due = comparison.due_within(timedelta())
    if limits.everywhere and (told := _describe_rate(len(due), limits.everywhere)):
        yield f"the policy's budget: {told}"
    if limits.per_namespace and due:
        (name, count), *_ = Counter(one.ref.namespace for one in due).most_common(1)
        if told := _describe_rate(count, limits.per_namespace):
            yield f"the policy's budget in namespace {name or '-'}: {told}"


def _describe_breaker(comparison: Comparison, breaker: BreakerLimits) -> Iterator[str]:
    due = comparison.due_within(breaker.window)
    window = format_duration(breaker.window)
    if breaker.count is not None and len(due) > breaker.count:
        yield f"the policy's breaker would trip: {len(due):,} go within {window}, and {breaker.count:,} may; {_RELEASE}"
    if breaker.share is None:
        return
    there = Counter(one.rule.name for one in comparison.objects)
    for name, count in Counter(one.rule.name for one in due).items():
        if count > max(breaker.at_least, breaker.share * there[name]):
            share = f"{count:,} of {there[name]:,} {name} go within {window}, and {breaker.share:.0%} may"
            yield f"the policy's breaker would trip: {share}; {_RELEASE}"


def _describe_rate(count: int, rate: Rate) -> str:
    """Empty where all go at once."""
    if count <= rate.burst:
        return ""
    seconds = round((count - rate.burst) / rate.per_second)
    takes = format_duration(timedelta(seconds=max(1, seconds)))
    return f"{rate.per_second:g} a second after the first {rate.burst:,}, so {count:,} take {takes}"
