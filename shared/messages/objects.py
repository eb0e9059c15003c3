"""The messages about what happened to an object."""

from datetime import datetime
from typing import ClassVar, Literal

from shared.core.kinds.rule import Outcome
from shared.core.values.objects import ObjectRef
from shared.messages.message import Instant, Message


class ObjectDeleted(Message):
    """The API server accepted the DELETE of a due object.

    Published by: expire, sweep, usage, and enforce for objects with on-deadline: delete.

    Attributes:
        ref: The identity of the object.
        outcome: How the object ended; null for an unused object.
        finished_at: When the object finished; null if that is unknown, for an object deleted at its deadline, and for
            an unused object.
        ttl_from: The annotation, field, policy rule or namespace default that sets the TTL or the deadline.
        due_at: When the object was due.
        deleted_at: When the DELETE was accepted, by this process's clock.
        lateness_seconds: `deletedAt` - `dueAt`, in seconds.
        reason: Why the object was due: `expired`, `over-count`, `over-quota`, `deadline-exceeded` or `unused`.
        moved_by: The setting that moved `dueAt`: a `minAge`, a maximum of the namespace, or the grace of an archive.
            Empty if none did.
        policy: The hash of the policy in force: the first 12 hexadecimal digits of the SHA-256 of its text. Empty
            without a policy.
        finalizers: The finalizers that the object still had: it exists until they are removed.
    """

    type: ClassVar[str] = "dev.ttlafterfinished.object.deleted"
    ref: ObjectRef
    outcome: Outcome | None
    finished_at: Instant | None
    ttl_from: str
    due_at: Instant
    deleted_at: Instant
    lateness_seconds: float
    reason: Literal["expired", "over-count", "over-quota", "deadline-exceeded", "unused"] = "expired"
    moved_by: str = ""
    policy: str = ""
    finalizers: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The uid, which is deleted once."""
        return f"{self.ref.uid}/deleted"

    @property
    def subject(self) -> str:
        """The object's uid."""
        return self.ref.uid

    @property
    def occurred_at(self) -> datetime:
        """When the DELETE was accepted."""
        return self.deleted_at


class ObjectWarned(Message):
    """A finished object is deleted soon: its policy rule has `warn`.

    It is sent at least once before the object is due. A repetition for the same due time has the same id.

    Published by: expire.

    Attributes:
        ref: The identity of the object.
        outcome: How the object ended.
        finished_at: When the object finished.
        ttl_from: The policy rule that sets the TTL.
        due_at: When the object is due, as far as this is known now.
    """

    type: ClassVar[str] = "dev.ttlafterfinished.object.warned"
    ref: ObjectRef
    outcome: Outcome | None
    finished_at: Instant | None
    ttl_from: str
    due_at: Instant

    @property
    def id(self) -> str:
        """The uid, and when it is due: a later due time is another warning."""
        return f"{self.ref.uid}/warned/{self.due_at.isoformat()}"

    @property
    def subject(self) -> str:
        """The object's uid."""
        return self.ref.uid


class ObjectStopped(Message):
    """The API server accepted the patch that stops an object at its active deadline.

    Published by: enforce.

    Attributes:
        ref: The identity of the object.
        started_at: When the object started, or was resumed the last time; None if it had never started.
        deadline_from: The annotation, policy rule or namespace default that sets the deadline.
        due_at: When the deadline was over.
        stopped_at: When the patch was accepted, by this process's clock.
        lateness_seconds: `stoppedAt` - `dueAt`, in seconds.
        stops: How often the object was stopped so far.
        policy: The hash of the policy in force, as in `object.deleted`.
    """

    type: ClassVar[str] = "dev.ttlafterfinished.object.stopped"
    ref: ObjectRef
    started_at: Instant | None
    deadline_from: str
    due_at: Instant
    stopped_at: Instant
    lateness_seconds: float
    stops: int
    policy: str = ""

    @property
    def id(self) -> str:
        """The uid, and the number of the stop."""
        return f"{self.ref.uid}/stopped/{self.stops}"

    @property
    def subject(self) -> str:
        """The object's uid."""
        return self.ref.uid

    @property
    def occurred_at(self) -> datetime:
        """When the patch was accepted."""
        return self.stopped_at
