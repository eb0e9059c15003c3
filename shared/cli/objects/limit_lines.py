"""The lines of `explain` about limits by count and by quota."""

from collections.abc import Iterator

from shared.core.capacity import Counted, QuotaUsage
from shared.core.facts import Facts
from shared.core.policy.conditions import Grouping
from shared.core.policy.policy_rule import NOT_BEFORE, PolicyRule
from shared.core.ttl.durations import format_duration


def limit_lines(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield a line for each limit of a policy rule that applies to the object."""
    if facts.count_rule is not None:
        yield "maxCount", _max_count(facts.count_rule, facts.counted)
    if facts.quota_rule is not None and facts.ttl is not None:
        yield from (("quota", text) for text in _quota(facts, facts.quota_rule))


def _max_count(rule: PolicyRule, counted: Counted | None) -> str:
    """`7th oldest of 57 finished objects of its kind in this namespace; limit 50, by policy rule ci`."""
    limit = f"limit {rule.max_count}, by {rule.source}"
    if counted is None:
        return f"not counted; {limit}"
    place = _ordinal(counted.total - counted.newer)
    of_group = f"finished objects of its kind in this namespace{describe_grouping(rule.count_by)}"
    return f"{place} oldest of {counted.total} {of_group}; {limit}"


def _quota(facts: Facts, rule: PolicyRule) -> Iterator[str]:
    """`count/jobs.batch of ResourceQuota objects: 47 of 50, 94 %; limit 90 %, by policy rule ci`."""
    percent, pressure = rule.when_quota_above or 0, facts.pressure
    if pressure is None:
        yield f"not read; limit {percent} %, by {rule.source}"
        return
    if not pressure.quotas:
        what = "no ResourceQuota of this namespace limits the number of objects of its kind"
        yield f"{what}; limit {percent} %, by {rule.source}"
        return
    usages = "; ".join(map(_usage, pressure.quotas))
    yield f"{usages}; limit {percent} %, by {rule.source}"
    if excess := pressure.excess(percent):
        after = format_duration(NOT_BEFORE if rule.not_before is None else rule.not_before)
        what = (
            "this object may not be deleted before its TTL is over"
            if pressure.older is None
            else f"{pressure.older} that have to be deleted finished earlier"
        )
        yield f"{excess} must be deleted, the oldest first, and each not sooner than {after} after its finish; {what}"


def _usage(usage: QuotaUsage) -> str:
    share = usage.used * 100 // usage.hard
    return f"{usage.resource} of ResourceQuota {usage.name}: {usage.used} of {usage.hard}, {share} %"


def _ordinal(number: int) -> str:
    """`1st`, `2nd`, `11th`."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def describe_grouping(by: Grouping) -> str:
    """`, by label app`; empty for the groups of a namespace."""
    if by.by == "namespace":
        return ""
    return f", by label {by.label}" if by.label else ", by a CEL expression" if by.by == "cel" else f", by {by.by}"
