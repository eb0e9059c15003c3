"""The journal: what was done to single objects, refused or decided, as a record that people can ask for afterwards."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from shared.core.objects import ObjectRef
from shared.messages import Message
from shared.ports.cluster import EventLevel
from shared.ports.reasons import EventReason
from shared.ports.refusal import Refusal
from shared.ports.report import Report


class JournalAction(StrEnum):
    """What was done, as the field `action` of a Kubernetes Event."""

    DELETE = "Delete"
    STOP = "Stop"
    ARCHIVE = "Archive"
    REFUSE = "Refuse"
    """Nothing was done: the API server or an archive refused it for good."""
    REPORT = "Report"
    """Nothing was done: a person has to know of a decision, such as that a malformed TTL keeps the object."""


class JournalResult(StrEnum):
    """What became of an entry of the journal."""

    RECORDED = "recorded"
    """An Event of its own has the entry."""
    COUNTED = "counted"
    """An Event that sums up a minute counts the entry."""
    DROPPED = "dropped"
    """No Event has the entry: the API server was away or refused, or too many entries waited."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One thing that was done to one object, refused, or decided about it.

    Attributes:
        ref: The object.
        action: What was done.
        reason: The reason of the Event.
        at: When it was done.
        note: What was done and why, in plain words.
        by: The function that did it.
        message: The message of the CloudEvent about it, the refusal, or the report.
        source: What set the TTL or the deadline: an annotation, a field, a policy rule, or the archive; the class of
            the error of a refusal; empty for a report.
        policy: The hash of the policy in force; empty without a policy.
        level: The type of the Event.
    """

    ref: ObjectRef
    action: JournalAction
    reason: EventReason
    at: datetime
    note: str
    by: str
    message: Message | Refusal | Report
    source: str = ""
    policy: str = ""
    level: EventLevel = "Normal"


class Journal(Protocol):
    """Records what was done to objects."""

    def note(self, entry: JournalEntry) -> None:
        """Take an entry; it never waits and never fails, since what it is about does not depend on it."""
        ...

    async def flush(self) -> None:
        """Write what waits, in a few seconds; what is not written then is dropped. Call it when the process ends."""
        ...
