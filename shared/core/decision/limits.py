"""Find the limits by count and by quota that make an object due before its time."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from shared.core.decision.facts import Context, Reason
from shared.core.decision.missing import Fact
from shared.core.decision.ranks import is_kept
from shared.core.policy.policy_rule import PolicyRule
from shared.core.policy.ruling import Ruling
from shared.core.ttl.ttl import Ttl


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that takes effect, or that needs a fact that was not read.

    Attributes:
        reason: The limit.
        fact: What shows whether it takes effect.
        rule: The policy rule that sets it.
        ttl: The TTL that it sets; None if that fact was not read.
    """

    reason: Literal[Reason.OVER_COUNT, Reason.OVER_QUOTA]
    fact: Literal[Fact.PLACE, Fact.QUOTAS]
    rule: PolicyRule
    ttl: Ttl | None


def find_limits(
    ruling: Ruling, context: Context, finished_at: datetime | None, *, is_due_later: bool
) -> Iterator[Limit]:
    """Yield the limits of the rules that match an object, that by count first.

    Args:
        ruling: What the rules set.
        context: The facts beside the object.
        finished_at: The finish time; without one, an object has no place in the order of its group.
        is_due_later: Whether the object is due at some time without a limit: a quota applies to no other objects.
    """
    if finished_at is None:
        return
    if (rule := ruling.count_rule) is not None:
        counted = context.counted
        if counted is None:
            yield Limit(Reason.OVER_COUNT, Fact.PLACE, rule, None)
        elif not is_kept(counted.newer, rule.max_count):
            yield Limit(Reason.OVER_COUNT, Fact.PLACE, rule, rule.count_ttl)
    if (rule := ruling.quota_rule) is not None and is_due_later:
        pressure = context.pressure
        if pressure is None:
            yield Limit(Reason.OVER_QUOTA, Fact.QUOTAS, rule, None)
        elif pressure.is_over(rule.when_quota_above or 0):
            yield Limit(Reason.OVER_QUOTA, Fact.QUOTAS, rule, rule.quota_ttl)
