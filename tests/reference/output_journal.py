"""The JSON about deletions in the journal, as `deleted` and `explain` print it, as pydantic models."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from tests.reference.output_objects import GoneReport, Identity, Output


class DeletedObject(Identity):
    """The object that was deleted, stopped, archived or refused."""

    uid: str


class Deletion(Output):
    """One deletion: the fields of the CloudEvent `object.deleted`, and what the Kubernetes Event adds."""

    ref: DeletedObject
    outcome: str | None
    finished_at: datetime | None
    ttl_from: str
    due_at: datetime
    deleted_at: datetime
    lateness_seconds: float
    reason: str
    moved_by: str
    policy: Annotated[str, Field(description="The hash of the policy; empty without a policy.")]
    finalizers: list[str]
    event: Annotated[str, Field(description="The reason of the Kubernetes Event.")]
    note: str


class CountedDeletions(Output):
    """Deletions, or other entries, of a minute that one Kubernetes Event only counts."""

    api_version: str
    kind: str
    namespace: Annotated[str | None, Field(description="Null if the kind is cluster-scoped.")]
    count: int
    first_at: datetime | None
    last_at: datetime
    reason: str
    source: str | None
    policy: str | None
    note: str


class Refused(Output):
    """One refusal."""

    ref: DeletedObject
    reason: str
    error: Annotated[str, Field(description="The class of the error, such as ForbiddenError.")]
    message: Annotated[str, Field(description="The answer of the API server or of the archive.")]
    refused_at: datetime
    event: Annotated[str, Field(description="The reason of the Kubernetes Event.")]
    note: str


class Stop(Output):
    """One stop: the fields of the CloudEvent `object.stopped`, and what the Kubernetes Event adds."""

    ref: DeletedObject
    started_at: datetime | None
    deadline_from: str
    due_at: datetime
    stopped_at: datetime
    lateness_seconds: float
    stops: Annotated[int, Field(description="How often the object was stopped so far.")]
    policy: Annotated[str, Field(description="The hash of the policy; empty without a policy.")]
    event: Annotated[str, Field(description="The reason of the Kubernetes Event.")]
    note: str


class Stops(Output):
    """`deleted --stopped`: the stops of which the Kubernetes Events say something."""

    stops: list[Stop]
    counted: list[CountedDeletions]


class ArchivedVersion(Output):
    """One archived version: the fields of the CloudEvent `object.archived`, and what the Kubernetes Event adds."""

    ref: DeletedObject
    archive: str
    resource_version: str
    digest: str
    location: str
    archived_at: datetime
    children: int
    logs: int
    timer: Annotated[dict[str, Any] | None, Field(description="The timer of the deletion, as in `timers ls`.")]
    event: Annotated[str, Field(description="The reason of the Kubernetes Event.")]
    note: str


class Archived(Output):
    """`deleted --archived`: the archived versions of which the Kubernetes Events say something."""

    archived: list[ArchivedVersion]
    counted: list[CountedDeletions]


class Refusals(Output):
    """`deleted --refused`: the refusals of which the Kubernetes Events say something."""

    refusals: list[Refused]
    counted: list[CountedDeletions]


class Deletions(Output):
    """`deleted`: the deletions of which the Kubernetes Events say something."""

    deletions: list[Deletion]
    counted: list[CountedDeletions]


class DeletedReport(Identity):
    """An object that does not exist any more, as the journal has it."""

    finished: Literal[True] | None
    finished_at: datetime | None
    outcome: str | None
    ttl_from: str | None
    due_at: datetime | None
    decision: Literal["gone"]
    reason: Literal["deleted"]
    deleted_at: datetime
    deletion: Deletion


class ArchivedDeletedReport(GoneReport):
    """An object that does not exist any more, as its archive and the journal have it."""

    deletion: Deletion
