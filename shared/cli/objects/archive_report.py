"""The archive of one object that still exists, as JSON and as lines of text."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from shared.cli.objects.if_archived import if_archived
from shared.cli.output.time_text import describe_instant, instant_as_json
from shared.core.archive.archiving import ArchiveFact, Archiving
from shared.core.decision.decide import Expire
from shared.core.decision.facts import Facts, Reason
from shared.core.ttl.durations import format_duration
from shared.evaluation.batch import BatchResult

_PROBLEMS_SHOWN = 3
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
    if fact is None or fact.problem:
        yield f"{wanted}; whether it is acknowledged is unknown"
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


def describe_unarchived(objects: Sequence[BatchResult]) -> Iterator[str]:
    """Say how many objects wait for their archive, for each archive, and how many of them are overdue.

    Args:
        objects: The decisions about each object; the last one counts.
    """
    waiting: dict[str, list[BatchResult]] = {}
    for one in objects:
        if one.decisions[-1].reason is Reason.NOT_ARCHIVED and (archiving := one.decisions[-1].facts.archiving):
            waiting.setdefault(archiving.to, []).append(one)
    for name, of_archive in sorted(waiting.items()):
        overdue = [one for one in of_archive if _is_overdue(one)]
        at_once = sum(isinstance(if_archived(one.decisions[-1], one.now), Expire) for one in overdue)
        yield f"{len(of_archive):,} kept until archive {name} has acknowledged {_them(len(of_archive))}"
        if at_once:
            yield describe_archived_first(name, at_once)
        if later := len(overdue) - at_once:
            fate = "and deleted when the grace after that ends"
            yield f"the TTL of {later:,} is over: {_they_are(later)} archived first, {fate}"
        problems = sorted({one.decisions[-1].facts.problem for one in of_archive} - {""})
        yield from (f"they may be acknowledged already: {problem}" for problem in problems[:_PROBLEMS_SHOWN])


def describe_archived_first(archive: str, count: int) -> str:
    """`2 are archived first, and deleted as soon as archive main has them`."""
    verb = "is" if count == 1 else "are"
    return f"{count:,} {verb} archived first, and deleted as soon as archive {archive} has {_them(count)}"


def _is_overdue(one: BatchResult) -> bool:
    due_at = one.decisions[-1].facts.due_at
    return due_at is not None and due_at <= one.now


def _them(count: int) -> str:
    return "it" if count == 1 else "them"


def _they_are(count: int) -> str:
    return "it is" if count == 1 else "they are"
