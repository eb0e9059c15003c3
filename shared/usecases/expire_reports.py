"""What the functions report about one object: its deletion, and a Kubernetes Event about a decision on its TTL."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from shared.core.deadlines.decide_stop import Stop
from shared.core.decision.decide import Decision, Expire, Facts, Reason
from shared.core.kinds.rule import KindRule
from shared.core.ttl.ttl import advise_overridden, describe_overridden
from shared.core.values.objects import ObjectRef, get_in, ref_of
from shared.messages import ObjectDeleted
from shared.ports import EventLevel, EventReason

_INVALID = {
    Reason.INVALID_TTL: EventReason.INVALID_TTL,
    Reason.INVALID_POLICY: EventReason.INVALID_POLICY,
    Reason.INVALID_ARCHIVE: EventReason.INVALID_ARCHIVE,
}
"""Reasons of Events about values that cannot be read."""

_CLOCK_AHEAD = (
    "waits until it is due by the clock of ttl-after-finished as well: the Date of the API server is too far ahead; "
    "ttl-after-finished doctor says more"
)


class ObjectEvent(NamedTuple):
    """A Kubernetes Event to write.

    Attributes:
        about: The object, or its Namespace.
        reason: The reason.
        message: What was decided and why.
        level: Warning if an operator has to act on it.
    """

    about: ObjectRef
    reason: EventReason
    message: str
    level: EventLevel = "Warning"


def find_event(rule: KindRule, obj: Mapping[str, Any], decision: Decision) -> ObjectEvent | None:
    """The Event about a value that cannot be read, a TTL that has no effect, or a wrong clock; None for the rest."""
    facts, ref = decision.facts, ref_of(obj)
    if decision.reason in _INVALID and facts.problem:
        kept = "kept" if facts.problem_of is None else "everything in it is kept"
        return ObjectEvent(facts.problem_of or ref, _INVALID[decision.reason], f"{kept}: {facts.problem}")
    if decision.reason is Reason.SERVER_CLOCK_AHEAD:
        return ObjectEvent(ref, EventReason.SERVER_CLOCK_AHEAD, _CLOCK_AHEAD)
    if facts.overridden and not isinstance(decision, Expire) and decision.reason is not Reason.TERMINATING:
        message = f"{describe_overridden(obj, rule, facts.overridden)}; {advise_overridden(facts.overridden)}"
        return ObjectEvent(ref, EventReason.OVERRIDDEN_TTL, message)
    return None


def deletion_of(
    ref: ObjectRef, decision: Expire | Stop, *, deleted_at: datetime, policy: str, finalizers: tuple[str, ...]
) -> ObjectDeleted:
    """The message about an object whose DELETE was accepted; its other fields are those of the message."""
    facts, since = decision.facts, wanted_since(decision.since, decision.facts)
    source = facts.ttl or facts.active.deadline
    return ObjectDeleted(
        ref=ref,
        outcome=facts.finish.outcome,
        finished_at=facts.finish.at,
        ttl_from=source.source if source else "",
        due_at=since,
        deleted_at=deleted_at,
        lateness_seconds=(deleted_at - since).total_seconds(),
        reason=str(decision.reason),
        moved_by=facts.moved_by or facts.active.moved_by,
        policy=policy,
        finalizers=finalizers,
    )


def wanted_since(since: datetime, facts: Facts) -> datetime:
    """Since when an object could be deleted: a limit takes effect later than its TTL of 0 says.

    An object is beyond maxCount since a newer object pushed it there. A quota shows no instant, so the instant of its
    read counts.
    """
    limited_at = None
    if facts.early is Reason.OVER_COUNT and facts.counted is not None:
        limited_at = facts.counted.since
    elif facts.early is Reason.OVER_QUOTA and facts.pressure is not None:
        limited_at = facts.pressure.read_at
    return max(since, limited_at or since)


def list_finalizers(obj: Mapping[str, Any]) -> tuple[str, ...]:
    """The finalizers that the API server waits for after it accepted a DELETE."""
    finalizers = get_in(obj, "metadata.finalizers")
    return tuple(map(str, finalizers)) if isinstance(finalizers, list) else ()
