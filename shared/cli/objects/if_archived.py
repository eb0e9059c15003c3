"""The decision about an object that is kept only until its archive has it, as if the archive stored it now."""

from datetime import datetime

from shared.core.decision.decide import NOT_AHEAD, Decision, Expire, Ignore, Reason, find_wait
from shared.core.policy.ruling import add


def if_archived(decision: Decision, now: datetime) -> Decision:
    """Return when an object that waits for its archive is deleted, if the archive acknowledges it now.

    Args:
        decision: The decision about the object; each decision without the reason `not-archived` is returned as it is.
        now: The time of the decision.
    """
    facts = decision.facts
    if decision.reason is not Reason.NOT_ARCHIVED or not isinstance(decision, Ignore) or facts.archiving is None:
        return decision
    is_early = Reason.NOT_ARCHIVED in facts.unread  # a limit by count or quota makes it due as soon as it is archived
    due_at = now if is_early or facts.due_at is None else facts.due_at
    due_at = max(due_at, add(now, facts.archiving.grace))
    return find_wait(due_at, facts, now, NOT_AHEAD) or Expire(due_at, Reason.EXPIRED, facts)


def is_archived_first(decision: Decision) -> bool:
    """Return whether an archive has to acknowledge the object before it is deleted, and has not."""
    return decision.reason is Reason.NOT_ARCHIVED
