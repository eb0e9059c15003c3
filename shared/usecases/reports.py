"""What the functions report about one object: its deletion or stop, an entry of the journal, an Event about a decision.

For a stop, also the patch that makes it.
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from shared.core.archive.gate import AWAITS_ARCHIVE, AWAITS_CHILDREN
from shared.core.deadlines.deadline import DEADLINE_EXCEEDED, STOPS_MAX, Mark, mark_annotations
from shared.core.deadlines.decide_stop import Stop, StopDecision
from shared.core.decision.decide import Decision, Expire, Reason
from shared.core.decision.facts import Facts
from shared.core.kinds.rule import KindRule
from shared.core.kinds.ttl_and_deadline import Action, StopRule
from shared.core.ttl.ttl import advise_overridden, describe_overridden
from shared.core.values.objects import ANNOTATION_DOMAIN, ObjectRef, format_instant, get_annotations, get_in, ref_of
from shared.core.values.timing import format_duration
from shared.messages import ObjectArchived, ObjectDeleted, ObjectStopped
from shared.ports import EventLevel, EventReason, JournalAction, JournalEntry, Refusal, Report

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

OVERDUE = timedelta(minutes=1)
"""If an object is due for longer than this and not archived, an Event on the object says so."""


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


def find_unarchived_event(obj: Mapping[str, Any], decision: Decision, *, now: datetime) -> ObjectEvent | None:
    """The Event about a due object that is not archived, or a child of which is not; None if it is only just due.

    It is a Warning only if there is a problem. Else `archive` has yet to store the object, for example if it was due
    before `archive` started.
    """
    facts, is_for_child = decision.facts, decision.reason in AWAITS_CHILDREN
    is_for_itself = decision.reason in AWAITS_ARCHIVE and facts.archiving is not None
    if not (is_for_itself or is_for_child) or facts.due_at is None or now < facts.due_at:
        return None
    if now - facts.due_at < OVERDUE and (is_for_child or not facts.problem):
        return None
    due_at = format_instant(facts.due_at.replace(microsecond=0))
    waits_for = f"archive {facts.archiving.to} has acknowledged this version of it" if facts.archiving else ""
    message = f"due {due_at}, and kept until {'its children are archived' if is_for_child else waits_for}"
    if not facts.problem:
        return ObjectEvent(ref_of(obj), EventReason.NOT_ARCHIVED, message, "Normal")
    return ObjectEvent(ref_of(obj), EventReason.NOT_ARCHIVED, f"{message}: {facts.problem}")


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


_NOT_ENFORCED = {
    Reason.INVALID_DEADLINE: EventReason.INVALID_DEADLINE,
    Reason.INVALID_POLICY: EventReason.INVALID_POLICY,
    Reason.CANNOT_STOP: EventReason.CANNOT_STOP,
    **dict.fromkeys(AWAITS_CHILDREN, EventReason.NOT_ARCHIVED),
}
"""Reasons of Events about a deadline that is not enforced."""


def patch_of(stop: StopRule, obj: Mapping[str, Any], *, at: datetime, before: Mark | None) -> dict[str, Any]:
    """The JSON merge patch that stops an object and marks it.

    Args:
        stop: How objects of the kind are stopped.
        obj: The object as it was read.
        at: The time of the stop, by the API server's clock.
        before: The mark of the last stop, if there was one.
    """
    metadata = stop.patch.get("metadata", {})
    mark = mark_annotations(obj, at, before, of_spec="spec" in stop.patch)
    annotations = {**metadata.get("annotations", {}), **mark}
    return {**stop.patch, "metadata": {**metadata, "annotations": annotations}}


def stop_of(ref: ObjectRef, decision: Stop, *, stopped_at: datetime, policy: str) -> ObjectStopped:
    """The message about an object whose stop was accepted."""
    active = decision.facts.active
    return ObjectStopped(
        ref=ref,
        started_at=active.started_at,
        deadline_from=active.deadline.source if active.deadline else "",
        due_at=decision.since,
        stopped_at=stopped_at,
        lateness_seconds=(stopped_at - decision.since).total_seconds(),
        stops=active.mark.stops + 1 if active.mark else 1,
        policy=policy,
    )


def find_stop_event(rule: KindRule, obj: Mapping[str, Any], decision: Decision | StopDecision) -> ObjectEvent | None:
    """The Event about a deadline that cannot be read or enforced, or a stop that was undone; None for the rest.

    A policy or a namespace may set a deadline for many kinds, so a kind that cannot be stopped is only reported if the
    object's own annotation sets the deadline.
    """
    facts, ref = decision.facts, ref_of(obj)
    deadline, mark = facts.active.deadline, facts.active.mark
    is_own = deadline is None or deadline.origin == "object"
    if decision.reason is Reason.STOP_UNDONE and mark:
        return ObjectEvent(
            ref, EventReason.STOP_UNDONE, f"not stopped again: {_describe_undone(rule, obj, mark, facts.active.action)}"
        )
    if decision.reason in _NOT_ENFORCED and facts.problem and is_own:
        left = "not stopped" if facts.problem_of is None else "nothing in it is stopped"
        return ObjectEvent(facts.problem_of or ref, _NOT_ENFORCED[decision.reason], f"{left}: {facts.problem}")
    return None


def is_reported_at_once(decision: Decision | StopDecision, obj: Mapping[str, Any], rule: KindRule) -> bool:
    """Return whether an Event on the object reports the decision at once; the others are left to the sweep.

    These are a problem of its namespace, and of an object that waits for its start: a new one is soon in another state.
    """
    is_about_object = decision.reason in (Reason.INVALID_DEADLINE, Reason.CANNOT_STOP, Reason.STOP_UNDONE)
    if decision.reason is Reason.CANNOT_STOP and decision.facts.active.is_pending:
        return False
    return is_about_object and find_stop_event(rule, obj, decision) is not None


def _describe_undone(rule: KindRule, obj: Mapping[str, Any], mark: Mark, action: Action) -> str:
    """What happened to a stop, and what to do."""
    at = format_instant(mark.at.replace(microsecond=0))
    if DEADLINE_EXCEEDED not in get_annotations(obj):
        undone = f"it was stopped {mark.stops} times, the last time at {at}, and its mark was removed each time"
        return (
            f"{undone}. Find the client that writes it without the annotation {ANNOTATION_DOMAIN}/{DEADLINE_EXCEEDED}"
        )
    if mark.stops < STOPS_MAX:
        undone = f"it was stopped at {at}, and runs on without a new start"
        fix = f"Find the controller or client that undoes the patch {describe_patch(rule, action)}"
    else:
        undone = f"it was stopped {mark.stops} times, the last time at {at}, and was resumed each time"
        fix = "Find the controller or client that resumes it"
    return f"{undone}. {fix}. To let it be stopped again, remove its annotation {ANNOTATION_DOMAIN}/{DEADLINE_EXCEEDED}"


def describe_stop(rule: KindRule, facts: Facts) -> str:
    """`ran for longer than 1h, its deadline by policy rule ci; stopped by the patch {"spec": {"shutdown": "Stop"}}`."""
    return f"{describe_excess(facts)}; stopped by the patch {describe_patch(rule, facts.active.action)}"


def describe_excess(facts: Facts) -> str:
    """`ran for longer than 1h, its deadline by policy rule ci`, or `waited for its start for 1h, its pending …`."""
    active = facts.active
    deadline = active.deadline
    if deadline is None or deadline.after is None:
        return "ran for longer than its deadline"
    if active.is_pending:
        return f"waited for its start for {format_duration(deadline.after)}, its pending deadline by {deadline.source}"
    set_by = f"{format_duration(deadline.after)}, its deadline by {deadline.source}"
    if not active.moved_by or facts.due_at is None or active.started_at is None:
        return f"ran for longer than {set_by}"
    shortened = format_duration(facts.due_at - active.started_at)
    return f"ran for longer than {shortened}; {active.moved_by} shortens {set_by}"


def describe_patch(rule: KindRule, action: Action) -> str:
    """`{"spec": {"suspend": true}}`: the patch by which objects of a kind are stopped.

    Args:
        rule: The rule of the kind.
        action: What is done at the deadline.
    """
    stop = rule.deadline.find_stop(action) if rule.deadline else None
    return json.dumps(stop.patch) if stop else "nothing"


_LATE_SECONDS = 1.0
"""From this lateness on, a note names it."""

_REASONS: dict[str, tuple[EventReason, EventLevel]] = {
    "deadline-exceeded": (EventReason.DEADLINE_EXCEEDED, "Warning"),
    "unused": (EventReason.UNUSED_DELETED, "Normal"),
}
"""The reason and the level of the Event about a deletion, if the object was not due by a TTL."""


def entry_of_deletion(deleted: ObjectDeleted, *, by: str) -> JournalEntry:
    """The entry about an object whose DELETE was accepted."""
    reason, level = _REASONS.get(deleted.reason, (EventReason.EXPIRED, "Normal"))
    return JournalEntry(
        ref=deleted.ref,
        action=JournalAction.DELETE,
        reason=reason,
        at=deleted.deleted_at,
        note=f"deleted: {describe_deletion(deleted)}",
        by=by,
        message=deleted,
        source=deleted.ttl_from,
        policy=deleted.policy,
        level=level,
    )


def entry_of_stop(stopped: ObjectStopped, detail: str, *, by: str) -> JournalEntry:
    """The entry about an object whose stop was accepted; `detail` names the deadline and the patch."""
    due = f"; due at {_whole(stopped.due_at)}"
    return JournalEntry(
        ref=stopped.ref,
        action=JournalAction.STOP,
        reason=EventReason.DEADLINE_EXCEEDED,
        at=stopped.stopped_at,
        note=f"{detail or f'stopped: its deadline by {stopped.deadline_from} was over'}{due}{_by(stopped.policy)}",
        by=by,
        message=stopped,
        source=stopped.deadline_from,
        policy=stopped.policy,
        level="Warning",
    )


def entry_of_archive(archived: ObjectArchived, *, by: str) -> JournalEntry:
    """The entry about an object that an archive acknowledged."""
    version = f"resource version {archived.resource_version}"
    return JournalEntry(
        ref=archived.ref,
        action=JournalAction.ARCHIVE,
        reason=EventReason.ARCHIVED,
        at=archived.archived_at,
        note=f"archived: {version} is in archive {archived.archive}: {archived.location}",
        by=by,
        message=archived,
        source=f"archive {archived.archive}",
    )


def entry_of_refusal(refusal: Refusal, *, by: str) -> JournalEntry:
    """The entry about what the API server or an archive refused for good."""
    return JournalEntry(
        ref=refusal.ref,
        action=JournalAction.REFUSE,
        reason=refusal.reason,
        at=refusal.refused_at,
        note=f"refused: {refusal.message}",
        by=by,
        message=refusal,
        source=refusal.error,
        level="Warning",
    )


def entry_of_report(report: Report, *, by: str, level: EventLevel = "Warning") -> JournalEntry:
    """The entry about a decision that a person has to know."""
    return JournalEntry(
        ref=report.ref,
        action=JournalAction.REPORT,
        reason=report.reason,
        at=report.reported_at,
        note=report.message,
        by=by,
        message=report,
        level=level,
    )


def describe_deletion(deleted: ObjectDeleted) -> str:
    """Why an object was deleted: `failed at 2026-01-02T03:04:05Z, due at 2026-01-02T04:04:05Z by policy rule ci`."""
    due = f"{_cause(deleted)} at {_whole(deleted.due_at)} by {deleted.ttl_from or 'an unknown source'}"
    moved = f", moved by {deleted.moved_by}" if deleted.moved_by else ""
    late = ""
    if deleted.lateness_seconds >= _LATE_SECONDS:
        late = f", deleted {format_duration(deleted.deleted_at - deleted.due_at)} later"
    waits = f"; it exists until its finalizers are removed: {', '.join(deleted.finalizers)}" * bool(deleted.finalizers)
    return f"{due}{moved}{late}{_by(deleted.policy)}{waits}"


def _cause(deleted: ObjectDeleted) -> str:
    if deleted.reason == "unused":
        return "nothing referred to it; due"
    if deleted.reason == "deadline-exceeded":
        return "its deadline was over"
    finished = f"{deleted.outcome or 'finished'} at {_whole(deleted.finished_at)}" if deleted.finished_at else ""
    early = {"over-count": ", beyond the count of its group", "over-quota": ", beyond a quota"}.get(deleted.reason, "")
    return f"{finished or 'finished at an unknown time'}{early}, due"


def _by(policy: str) -> str:
    return f" (policy {policy})" if policy else ""


def _whole(instant: datetime) -> str:
    return format_instant(instant.replace(microsecond=0))
