"""The facts that were not read and may change a decision: for `plan`, `explain`, `top` and the page of `ui`."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shared.core.deadlines.decide_stop import StopDecision
from shared.core.decision.decide import Decision, Expire, Reason
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ObjectRef
from shared.evaluation.batch import BatchResult


@dataclass(frozen=True, slots=True)
class UnreadFact:
    """A fact about an object that counts, and was not read.

    Attributes:
        what: The fact.
        right: The right that is missing.
    """

    what: str
    right: str


def find_unread(
    decision: Decision, stop: StopDecision | None, rule: KindRule, unread_owner: ObjectRef | None
) -> Iterator[UnreadFact]:
    """Find the facts that were not read, and without which the decisions about an object are not certain.

    Args:
        decision: The decision about its TTL.
        stop: The decision about its deadline; None if its kind has no rule.
        rule: The rule of its kind.
        unread_owner: Its controller owner, if that could not be read; else None.
    """
    facts, reasons = decision.facts, {decision.reason, stop and stop.reason}
    sooner = () if isinstance(decision, Expire) else facts.unread  # an object that is due needs no limit
    if Reason.NAMESPACE_UNREAD in reasons:
        yield UnreadFact("its namespace", "`get` on namespaces")
    if Reason.INHERITED_UNREAD in reasons:
        yield UnreadFact("the object from which it inherits its TTL", "`get` on the kind of that object")
    if unread_owner is not None and Reason.OWNER_UNFINISHED in (*reasons, *sooner):
        of_group = f" of {unread_owner.group}" if unread_owner.group else ""
        yield UnreadFact("the state of its owner", f"`get` on {unread_owner.kind}{of_group}")
    if facts.newer is None and Reason.KEPT_LAST in (*reasons, *sooner):
        yield UnreadFact("its rank for keepLast", f"`list` on {rule.name}")
    if Reason.OVER_COUNT in sooner:
        yield UnreadFact("its place for maxCount", f"`list` on {rule.name}")
    if Reason.OVER_QUOTA in sooner:
        yield UnreadFact("the quotas of its namespace", f"`list` on resourcequotas and {rule.name}")


def describe_unread(objects: Sequence[BatchResult]) -> Iterator[str]:
    """Say for each unread fact how many objects need it under the last policy, and which right is missing."""
    found = Counter(
        fact for one in objects for fact in find_unread(one.decisions[-1], one.stops[-1], one.rule, one.unread_owner)
    )
    for fact, count in found.items():
        yield (
            f"unknown whether {count} {'object is' if count == 1 else 'objects are'} deleted or stopped, and when: "
            f"{fact.what} could not be read; the right {fact.right} is missing"
        )
