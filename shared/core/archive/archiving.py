"""What is wanted of an archive for one object, and what is known about its acknowledgement and its children."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from shared.core.decision.reasons import Reason
from shared.core.values.objects import get_text


@dataclass(frozen=True, slots=True)
class Archiving:
    """How an object is archived before it is deleted.

    Attributes:
        to: The name of the archive in the policy.
        source: The policy rule or the annotation that has the object archived.
        rule: The name of that policy rule, or of the one whose grace applies; empty if there is none.
        grace: The time from the acknowledgement to the deletion.
        logs: Whether the logs of Pods are archived.
        children: Whether the objects that it owns are archived.
        native: Whether another archiver marks the objects itself, so that nothing has to be stored.
        audit: Whether the rule has `audit: true`, so that nothing is stored, and the object is kept.
    """

    to: str
    source: str
    rule: str = ""
    grace: timedelta = timedelta(0)
    logs: bool = False
    children: bool = True
    native: bool = False
    audit: bool = False

    def is_met_by(self, *, children: bool, logs: bool) -> bool:
        """Return whether an object that was stored with children or logs, or without, is stored as it is wanted."""
        return (children or not self.children) and (logs or not self.logs)


@dataclass(frozen=True, slots=True)
class ArchiveFact:
    """Whether one resource version of one object is in an archive.

    Attributes:
        to: The name of the archive.
        uid: The uid of the object.
        resource_version: The resource version for which this is known.
        acknowledged_at: When the archive acknowledged it; None if it has not.
        is_read_back: Whether the stored bytes were read and compared. A caller that deletes must have done so.
        location: Where it is stored, also if what is stored there lacks something; empty if nothing is stored.
        digest: The SHA-256 of what is stored, in hexadecimal digits.
        problem: Why it is not known, or why the acknowledgement does not count.
        children: Whether its children were stored with it.
        logs: Whether the logs of Pods were stored with it.
        archive_id: The id of the archive that the stored document names; empty if it names none, or is not stored.
    """

    to: str
    uid: str
    resource_version: str
    acknowledged_at: datetime | None = None
    is_read_back: bool = False
    location: str = ""
    digest: str = ""
    problem: str = ""
    children: bool = False
    logs: bool = False
    archive_id: str = ""

    def is_about(self, obj: Any, archiving: Archiving) -> bool:
        """Return whether it is about exactly this version of the object, stored in the way that is wanted now."""
        version = get_text(obj, "metadata.resourceVersion")
        if not version or (self.uid, self.resource_version) != (get_text(obj, "metadata.uid"), version):
            return False
        is_met = archiving.is_met_by(children=self.children, logs=self.logs)
        return self.to == archiving.to and (is_met or self.acknowledged_at is None)


@dataclass(frozen=True, slots=True)
class ChildrenFact:
    """What the children of one object wait for, which its deletion takes along.

    Attributes:
        uid: The uid of the object; the fact counts for no other.
        reason: Why they keep the object; None if none does.
        problem: Which child that is, and why; or why they were not read.
        ready_at: When the grace of the last archived child is over; None if no archive is wanted for any.
        moved_by: The child and the archive of that grace.
        is_cut_off: Whether the object is kept since its children could not all be checked in one attempt: the next
            attempts go on.
    """

    uid: str
    reason: Reason | None = Reason.CHILDREN_UNREAD
    problem: str = ""
    ready_at: datetime | None = None
    moved_by: str = ""
    is_cut_off: bool = False
