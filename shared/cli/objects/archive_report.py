"""The archive of one object that still exists, as JSON and as text; and the decision as if it stored the object now.

The controller of its kind may delete an object by its TTL field before an archive has it, whatever ttl-after-finished
decides.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from shared.cli.output.printing import describe_instant, instant_as_json
from shared.core.archive.archiving import ArchiveFact, Archiving
from shared.core.archive.gate import AWAITS_ARCHIVE, CHILD_REASONS
from shared.core.decision.decide import NOT_AHEAD, Decision, Expire, Ignore, Reason, find_wait
from shared.core.decision.facts import Facts
from shared.core.kinds.rule import KindRule
from shared.core.ttl.ttl import advise_overridden, describe_overridden, native_ttl
from shared.core.values.objects import ObjectRef, format_instant, get_in, quote
from shared.core.values.timing import add, format_duration
from shared.evaluation.batch import BatchResult

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


_WAITS = (*AWAITS_ARCHIVE, *CHILD_REASONS)

_MOVE_TTL = "set `ttl` in the policy rule"


def with_own_deletion(decision: Decision, rule: KindRule) -> Decision:
    """Set `overridden` if the kind's own controller deletes an object by its TTL field before the archive has it."""
    ttl = decision.facts.ttl
    is_own = ttl is not None and ttl.origin == "native" and rule.ttl is not None and rule.ttl.honoured_by is not None
    if not isinstance(decision, Ignore) or decision.reason not in _WAITS or ttl is None or not is_own:
        return decision
    return replace(decision, facts=replace(decision.facts, overridden=ttl.source))


def describe_own_deletion(obj: Mapping[str, Any], rule: KindRule, facts: Facts) -> str:
    """Say which controller deletes an object by which field, and when; an empty text if none deletes it earlier."""
    field = facts.overridden
    if not field:
        return ""
    native = native_ttl(obj, rule.ttl)
    due_at = native.due_at(facts.finish.at) if native and facts.finish.finished else None
    if due_at and _is_unarchived(facts) and not field.startswith("status."):
        deleted = f"{_controller(rule)} deletes it at {format_instant(due_at)}, archived or not"
        return f"{deleted}, by {field}: {quote(get_in(obj, field))}; remove the field, and {_MOVE_TTL}"
    when = f"; by that field it is due at {format_instant(due_at)}" if due_at else ""
    return f"{describe_overridden(obj, rule, field)}{when}; {advise_overridden(field)}"


def find_unarchived_deletions(objects: Sequence[BatchResult]) -> Iterator[tuple[str, Sequence[ObjectRef]]]:
    """Find the objects that the controller of their kind may delete before they are archived.

    Args:
        objects: The decisions about each object; the last one counts.

    Yields:
        What happens, for each controller and field, and the objects.
    """
    found: dict[tuple[str, str], list[ObjectRef]] = {}
    for one in objects:
        facts = one.decisions[-1].facts
        if facts.overridden and _is_unarchived(facts):
            found.setdefault((_controller(one.rule), facts.overridden), []).append(one.ref)
    for (controller, field), refs in found.items():
        yield f"{controller} deletes them by {field}, archived or not; remove the field, and {_MOVE_TTL}", refs


def _is_unarchived(facts: Facts) -> bool:
    is_acknowledged = facts.archived is not None and facts.archived.acknowledged_at is not None
    return facts.archiving is not None and not is_acknowledged


def _controller(rule: KindRule) -> str:
    return (rule.ttl and rule.ttl.honoured_by) or "another controller"
