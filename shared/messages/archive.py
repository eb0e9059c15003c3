"""The messages about archives."""

from datetime import datetime
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, StringConstraints

from shared.core.values.objects import ObjectRef
from shared.messages.message import Instant, Message, Name, identified_ref
from shared.messages.timers import Timer

_Ref = Annotated[ObjectRef, AfterValidator(identified_ref)]
_Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


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
    ref: _Ref
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
    def subject(self) -> str:
        """The object's uid."""
        return self.ref.uid

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

    @property
    def subject(self) -> str:
        """The object's uid."""
        return self.ref.uid


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
    ref: _Ref
    resource_version: Name
    digest: _Digest
    archived_at: Instant
    location: str = Field(default="", max_length=4_096)

    @property
    def id(self) -> str:
        """The uid and the resource version."""
        return f"{self.ref.uid}/done/{self.resource_version}"

    @property
    def subject(self) -> str:
        """The object's uid."""
        return self.ref.uid

    @property
    def occurred_at(self) -> datetime:
        """When the archive acknowledged it."""
        return self.archived_at
