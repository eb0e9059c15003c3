"""The facts that were not read and may change a decision: for `plan`, `explain`, `top` and the page of `ui`."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shared.core.deadlines.decide_stop import StopDecision
from shared.core.decision.decide import Decision
from shared.core.decision.facts import Fact
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ObjectRef
from shared.evaluation.batch import BatchResult
from shared.evaluation.decision_loop import find_lacking


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
    decision: Decision, stop: StopDecision | None, rule: KindRule, owner: ObjectRef | None
) -> Iterator[UnreadFact]:
    """Find the facts that were not read, and without which the decisions about an object are not certain.

    Args:
        decision: The decision about its TTL.
        stop: The decision about its deadline; None if its kind has no rule.
        rule: The rule of its kind.
        owner: Its controller owner; None if it has none.
    """
    lacking = {*find_lacking(decision), *(find_lacking(stop) if stop else ())}
    if Fact.NAMESPACE in lacking:
        yield UnreadFact("its namespace", "`get` on namespaces")
    if Fact.INHERITED in lacking:
        yield UnreadFact("the object from which it inherits its TTL", "`get` on the kind of that object")
    if Fact.OWNER in lacking and owner is not None:
        of_group = f" of {owner.group}" if owner.group else ""
        yield UnreadFact("the state of its owner", f"`get` on {owner.kind}{of_group}")
    if Fact.RANK in lacking:
        yield UnreadFact("its rank for keepLast", f"`list` on {rule.name}")
    if Fact.PLACE in lacking:
        yield UnreadFact("its place for maxCount", f"`list` on {rule.name}")
    if Fact.QUOTAS in lacking:
        yield UnreadFact("the quotas of its namespace", f"`list` on resourcequotas and {rule.name}")


def describe_unread(objects: Sequence[BatchResult]) -> Iterator[str]:
    """Say for each unread fact how many objects need it under the last policy, and which right is missing."""
    found = Counter(
        fact for one in objects for fact in find_unread(one.decisions[-1], one.stops[-1], one.rule, one.owner)
    )
    for fact, count in found.items():
        yield (
            f"unknown whether {count} {'object is' if count == 1 else 'objects are'} deleted or stopped, and when: "
            f"{fact.what} could not be read; the right {fact.right} is missing"
        )
