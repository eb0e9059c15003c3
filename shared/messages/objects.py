"""The messages about what happened to an object, and about archives."""

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints

from shared.core.kinds.rule import Outcome
from shared.core.values.objects import ObjectRef
from shared.messages.message import IdentifiedRef, Instant, Message, Name, Timer


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
    def occurred_at(self) -> datetime:
        """When the patch was accepted."""
        return self.stopped_at


class ObjectArchived(Message):
    """An archive holds exactly this version of an object durably.

    `timers` sets the timer of the deletion. Before the deletion, the document is read back from the archive.

    Published by: archive.

    Attributes:
        ref: The identity of the object.
        archive: The name of the archive in the policy.
        resource_version: The archived resource version.
        digest: The SHA-256 of the stored JSON, in hexadecimal digits.
        location: Where it is stored.
        archived_at: When the archive acknowledged it. The grace counts from then.
        children: How many children were stored with it; 0 if it was stored before.
        logs: How many logs were stored with it; 0 if it was stored before.
        timer: The timer of its deletion; null if no TTL is set for it.
    """

    type: ClassVar[str] = "dev.ttlafterfinished.object.archived"
    ref: IdentifiedRef
    archive: Name
    resource_version: Name
    digest: str
    location: str
    archived_at: Instant
    children: int = 0
    logs: int = 0
    timer: Timer | None = None

    @property
    def id(self) -> str:
        """The uid, the archive and the resource version: a version is archived once in each archive."""
        return f"{self.ref.uid}/archived/{self.archive}/{self.resource_version}"

    @property
    def occurred_at(self) -> datetime:
        """When the archive acknowledged it."""
        return self.archived_at


class ArchiveRequest(Message):
    """Store this version of an object durably, and answer with `archive.done`; sent to the webhook of an archive.

    The answer to a request for a version that is stored already is `archive.done`, too.

    Published by: archive, expire and sweep, to the webhook only.

    Attributes:
        ref: The identity of the object.
        archive: The name of the archive in the policy.
        cluster: The cluster, as in the keys of an archive: its name, and the first eight digits of its id.
        resource_version: The resource version.
        digest: The SHA-256 of the canonical JSON of `object`, in hexadecimal digits.
        object: The object; null only asks whether this version is stored.
        parent: The uid of the object with which a child is archived; empty for the object itself.
    """

    type: ClassVar[str] = "dev.ttlafterfinished.archive.request"
    ref: ObjectRef
    archive: str
    cluster: str
    resource_version: str
    digest: str
    object: dict[str, Any] | None = None
    parent: str = ""

    @property
    def id(self) -> str:
        """The uid, the resource version, and whether the object is sent."""
        return f"{self.ref.uid}/archive/{self.resource_version}/{'asks' if self.object is None else 'stores'}"


class ArchiveDone(Message):
    """A foreign archiver holds this version of an object durably.

    It is the answer to `archive.request`, in the reply or later to the Broker. In the Broker it is a hint: `archive`
    then asks the webhook again, and only the reply of the webhook counts.

    Published by: a foreign archiver.

    Attributes:
        ref: The identity of the object.
        resource_version: The resource version that is stored.
        digest: The digest of the request.
        location: Where it is stored.
        archived_at: When it was stored; the same in each answer about this version. The grace counts from then. An
            instant before the finish of the object or in the future is an error; clocks may differ by five minutes.
    """

    type: ClassVar[str] = "dev.ttlafterfinished.archive.done"
    ref: IdentifiedRef
    resource_version: Name
    digest: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    archived_at: Instant
    location: str = Field(default="", max_length=4_096)

    @property
    def id(self) -> str:
        """The uid and the resource version."""
        return f"{self.ref.uid}/done/{self.resource_version}"

    @property
    def occurred_at(self) -> datetime:
        """When the archive acknowledged it."""
        return self.archived_at
