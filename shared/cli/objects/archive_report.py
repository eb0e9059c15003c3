"""The archive of one object that still exists, as JSON and as text; and the decision as if it stored the object now."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from shared.cli.output.time_text import describe_instant, instant_as_json
from shared.core.archive.archiving import ArchiveFact, Archiving
from shared.core.archive.gate import AWAITS_ARCHIVE
from shared.core.decision.decide import NOT_AHEAD, Decision, Expire, Ignore, Reason, find_wait
from shared.core.decision.facts import Facts
from shared.core.policy.ruling import add
from shared.core.ttl.durations import format_duration

_TEKTON_RESULTS = "Tekton Results has not marked it as stored"


def archive_lines(facts: Facts, now: datetime) -> Iterator[str]:
    """Say what has the object archived, whether it is acknowledged, and when the grace ends.

    Args:
        facts: The facts about the object.
        now: The time of the decision.
    """
    archiving, fact = facts.archiving, facts.archived
    if archiving is None:
        return
    wanted = f"{archiving.to}, by {archiving.source}"
    grace = format_duration(archiving.grace)
    if fact is not None and fact.acknowledged_at is not None:
        where = f": {fact.location}" if fact.location else ""
        yield f"{wanted}; acknowledged {describe_instant(fact.acknowledged_at, now)}{where}"
        if archiving.grace:
            yield f"its grace of {grace} ends {describe_instant(fact.acknowledged_at + archiving.grace, now)}"
        return
    if fact is None:
        yield f"{wanted}; the archive was not read"
    elif fact.problem:
        yield f"{wanted}; what it has of the object does not count"
    else:
        yield f"{wanted}; not acknowledged: {_explain_missing(archiving, fact)}"
    if archiving.grace:
        yield f"its grace of {grace} begins with the acknowledgement"


def _explain_missing(archiving: Archiving, fact: ArchiveFact) -> str:
    """Say why an archive has not acknowledged an object: it is not stored, or not with everything that is wanted."""
    if archiving.native:
        return _TEKTON_RESULTS
    if not fact.location:
        return "this version of the object is not stored"
    wanted = {"children": archiving.children and not fact.children, "logs": archiving.logs and not fact.logs}
    if lacking := " and ".join(name for name, is_lacking in wanted.items() if is_lacking):
        return f"stored at {fact.location} without its {lacking}"
    if not fact.archive_id:
        return f"stored at {fact.location} before the archive had an id"
    return f"stored at {fact.location} by another archive, {fact.archive_id}"


def archive_as_json(facts: Facts) -> dict[str, Any] | None:
    """Return the documented JSON; null if no archive is wanted, or if another reason keeps the object."""
    archiving, fact = facts.archiving, facts.archived
    if archiving is None:
        return None
    acknowledged_at = fact.acknowledged_at if fact else None
    is_known = fact is not None and not fact.problem
    return {
        "name": archiving.to,
        "from": archiving.source,
        "graceSeconds": int(archiving.grace.total_seconds()),
        "acknowledged": acknowledged_at is not None if is_known else None,
        "acknowledgedAt": instant_as_json(acknowledged_at),
        "graceEndsAt": instant_as_json(acknowledged_at + archiving.grace if acknowledged_at else None),
        "location": (fact.location or None) if fact else None,
    }


def describe_archived_first(archive: str, count: int) -> str:
    """`2 are archived first, and deleted as soon as archive main has them`."""
    verb, them = ("is", "it") if count == 1 else ("are", "them")
    return f"{count:,} {verb} archived first, and deleted as soon as archive {archive} has {them}"


def if_archived(decision: Decision, now: datetime) -> Decision:
    """Return when an object that waits for its archive is deleted, if the archive acknowledges it now.

    Args:
        decision: The decision about the object; a decision that waits for no archive is returned as it is.
        now: The time of the decision.
    """
    facts = decision.facts
    if not is_archived_first(decision) or not isinstance(decision, Ignore) or facts.archiving is None:
        return decision
    due_at = max(facts.due_at or now, add(now, facts.archiving.grace))
    return find_wait(due_at, facts, now, NOT_AHEAD) or Expire(due_at, Reason.EXPIRED, facts)


def is_archived_first(decision: Decision) -> bool:
    """Return whether an archive has to acknowledge the object before it is deleted, and has not."""
    return decision.reason in AWAITS_ARCHIVE
