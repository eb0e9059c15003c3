"""What `archive`, `expire` and `sweep` report about the archive of one object: a message, and a Kubernetes Event."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from shared.core.archive.archiving import ArchiveFact
from shared.core.decide import Decision, Reason
from shared.core.objects import ObjectRef, format_instant, ref_of
from shared.messages import ObjectArchived, Timer
from shared.ports import EventReason
from shared.usecases.archive_lookup import AcknowledgedCopy
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


def find_unarchived_event(obj: Mapping[str, Any], decision: Decision, *, now: datetime) -> ObjectEvent | None:
    """The Event about an object that is due and not archived; None if it is not due, or only just.

    It is a Warning only if there is a problem. Else `archive` has yet to store the object, for example if it was due
    before `archive` started.
    """
    facts = decision.facts
    if decision.reason is not Reason.NOT_ARCHIVED or facts.archiving is None or facts.due_at is None:
        return None
    if now < facts.due_at or (not facts.problem and now - facts.due_at < OVERDUE):
        return None
    due_at = format_instant(facts.due_at.replace(microsecond=0))
    message = f"due {due_at}, and kept until archive {facts.archiving.to} has acknowledged this version of it"
    if not facts.problem:
        return ObjectEvent(ref_of(obj), EventReason.NOT_ARCHIVED, message, "Normal")
    return ObjectEvent(ref_of(obj), EventReason.NOT_ARCHIVED, f"{message}: {facts.problem}")
