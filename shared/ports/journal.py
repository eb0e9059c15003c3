"""The journal: what was done to single objects, refused or decided, as a record that people can ask for afterwards.

A `Refusal` is what the API server or an archive refused for good, and a `Report` is what a person has to know about a
decision.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol, Self

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from shared.core.values.objects import ObjectRef
from shared.errors import PermanentError
from shared.messages import Message
from shared.ports.cluster import EventLevel
from shared.ports.verdicts import EventReason

_MESSAGE_CHARACTERS_MAX = 1_000
_TEXT_CHARACTERS_MAX = 1_000


class Report(BaseModel):
    """A decision that is reported by an Event, such as that an object is kept because its TTL is malformed.

    Attributes:
        ref: The object, or its Namespace.
        reason: The reason of the Event.
        message: What was decided and why; at most 1,000 characters.
        reported_at: When it was reported, by this process's clock.
    """

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)

    ref: ObjectRef
    reason: EventReason
    message: str
    reported_at: datetime

    @classmethod
    def of(cls, ref: ObjectRef, reason: EventReason, message: str, *, at: datetime) -> Self:
        """Describe a decision about an object."""
        return cls(ref=ref, reason=reason, message=message[:_TEXT_CHARACTERS_MAX], reported_at=at)

    @property
    def id(self) -> str:
        """The uid, and a hash of what is reported without the time: each sweep finds the same again."""
        digest = hashlib.sha256(f"{self.ref}/{self.message}".encode(errors="replace")).hexdigest()[:16]
        return f"{self.ref.uid}/reported/{self.reason}/{digest}"


class Refusal(BaseModel):
    """A permanent error about one object.

    Attributes:
        ref: The object.
        reason: The reason of the Event about it.
        error: The class of the error, such as `ForbiddenError`.
        message: The answer of the API server or of the archive; at most 1,000 characters.
        refused_at: When the answer came, by this process's clock.
    """

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)

    ref: ObjectRef
    reason: EventReason
    error: str
    message: str
    refused_at: datetime

    @classmethod
    def of(cls, ref: ObjectRef, reason: EventReason, error: PermanentError, *, at: datetime) -> Self:
        """Describe a permanent error about an object."""
        message = str(error)[:_MESSAGE_CHARACTERS_MAX]
        return cls(ref=ref, reason=reason, error=type(error).__name__, message=message, refused_at=at)

    @property
    def id(self) -> str:
        """The uid, and what was refused when: an object may be refused again."""
        return f"{self.ref.uid}/refused/{self.reason}/{self.refused_at.isoformat()}"


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
