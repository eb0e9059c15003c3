"""The entries of the journal: what a deletion, a stop, an archive, a refusal or a report says about itself."""

from datetime import datetime

from shared.core.ttl.durations import format_duration
from shared.core.values.objects import format_instant
from shared.messages import ObjectArchived, ObjectDeleted, ObjectStopped
from shared.ports import EventLevel, EventReason, JournalAction, JournalEntry, Refusal, Report

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
