"""What `archive`, `expire` and `sweep` report about the archive of one object: a message, and a Kubernetes Event."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from shared.core.archive.archiving import ArchiveFact
from shared.core.archive.gate import AWAITS_ARCHIVE, AWAITS_CHILDREN
from shared.core.decision.decide import Decision
from shared.core.ttl.durations import format_duration
from shared.core.values.objects import ObjectRef, format_instant, ref_of
from shared.messages import ObjectArchived, Timer
from shared.ports import EventReason
from shared.usecases.archives.lookup import AcknowledgedCopy
from shared.usecases.archives.pauses import PAUSE_MAX, Pause
from shared.usecases.expire_reports import ObjectEvent

OVERDUE = timedelta(minutes=1)
"""If an object is due for longer than this and not archived, an Event on the object says so."""


def archived_of(ref: ObjectRef, archive: str, written: AcknowledgedCopy, *, timer: Timer | None) -> ObjectArchived:
    """The message about an object that an archive has acknowledged."""
    return ObjectArchived(
        ref=ref,
        archive=archive,
        resource_version=written.copied.key.resource_version,
        digest=written.copied.key.digest,
        location=written.location,
        archived_at=written.at,
        children=written.children,
        logs=written.logs,
        timer=timer,
    )


def archived_before(fact: ArchiveFact, ref: ObjectRef, timer: Timer | None) -> ObjectArchived | None:
    """The message about an object that an archive had acknowledged before; its children and logs are not counted."""
    if fact.acknowledged_at is None:
        return None
    return ObjectArchived(
        ref=ref,
        archive=fact.to,
        resource_version=fact.resource_version,
        digest=fact.digest,
        location=fact.location,
        archived_at=fact.acknowledged_at,
        timer=timer,
    )


def describe_pause(pause: Pause) -> tuple[EventReason, str]:
    """The Event about an object that a client keeps writing; its message is another one only after a version more."""
    sent = f"{pause.versions} versions of the object were sent to its archive, since a client keeps writing it"
    waits = f"the next version is sent after a pause of up to {format_duration(PAUSE_MAX)}"
    return EventReason.ARCHIVED_OFTEN, f"{sent}; {waits}, and the object is not deleted before"


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
