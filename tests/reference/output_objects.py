"""The JSON of one object, as `plan`, `explain`, `references` and `unused` print it, as pydantic models."""

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from shared.core.decision.reasons import Reason
from shared.core.usage.unused_reasons import UnusedReason


def _camel(name: str) -> str:
    """`due_within24h` becomes `dueWithin24h`; pydantic's own generator writes `24H`."""
    return re.sub("_(.)", lambda found: found[1].upper(), name)


class Output(BaseModel):
    """A JSON object; instants are RFC 3339 in UTC."""

    model_config = ConfigDict(extra="forbid", alias_generator=_camel, populate_by_name=True)


class Identity(Output):
    """Which object it is."""

    api_version: str
    kind: str
    namespace: Annotated[str | None, Field(description="Null if the kind is cluster-scoped.")]
    name: str


class KeepLastReport(Output):
    """The policy rule that keeps the newest objects of a group."""

    rule: str
    keeps: int
    outcome: Annotated[str | None, Field(description="The outcome that is counted; null if all are counted together.")]
    newer: Annotated[int | None, Field(description="Objects of the group that finished later; null if unknown.")]


class MaxCountReport(Output):
    """The policy rule that limits the finished objects of a group."""

    rule: str
    limit: int
    position: int | None
    of: int | None


class QuotaUse(Output):
    """A ResourceQuota, and how much of it is used."""

    name: str
    resource: str
    used: int
    hard: int


class QuotaReport(Output):
    """The policy rule that has objects deleted because of a quota."""

    rule: str
    above_percent: int
    quotas: list[QuotaUse]
    excess: int | None
    older: int | None


class ArchiveReport(Output):
    """The archive that must acknowledge the object before it is deleted."""

    name: str
    source: Annotated[str, Field(alias="from")]
    grace_seconds: int
    acknowledged: Annotated[bool | None, Field(description="Null if it is unknown.")]
    acknowledged_at: datetime | None
    grace_ends_at: datetime | None
    location: str | None


class DeadlineReport(Output):
    """The deadline of the object that applies now."""

    seconds: int | None
    source: Annotated[str | None, Field(alias="from")]
    stage: Annotated[
        Literal["pending", "active"] | None,
        Field(description="What the deadline limits: the wait for the start, or the run. Null without a deadline."),
    ]
    started_at: datetime | None
    waits_since: Annotated[
        datetime | None, Field(description="When the clock of the pending deadline started; null for an active one.")
    ]
    due_at: datetime | None
    decision: Literal["ignore", "wait", "stop"]
    reason: Reason


class UnfinishedReport(Output):
    """Why an object has not finished."""

    why: str
    expected: list[str]
    found: list[str]


class OwnerReport(Output):
    """The controller owner."""

    kind: str
    name: str
    state: str


class DeletingOwnerReport(Output):
    """An owner whose deletion deletes the object too."""

    kind: str
    name: str
    message: str
    fix: str | None


class Named(Output):
    """A controller or a finalizer, and what it does."""

    name: str
    does: str


class PolicyName(Output):
    """The policy that was applied."""

    name: str | None
    known: bool
    why: str | None
    differs: str | None


class ObstacleReport(Output):
    """What prevents the deletion of the object."""

    reason: str
    message: str
    since: datetime | None
    until: datetime | None
    fix: str


class ObjectReport(Identity):
    """The decision about one object. `explain` also has the fields that may be absent."""

    finished: Annotated[bool | None, Field(description="Null if the shape of the status is unknown.")]
    finished_at: datetime | None
    outcome: str | None
    ttl_seconds: int | None
    ttl_from: Annotated[str | None, Field(description="The source of the TTL.")]
    due_at: datetime | None
    moved_by: str | None
    policy_rule: str | None
    audit: Annotated[bool, Field(description="Whether the policy rule only reports it.")]
    keep_last: KeepLastReport | None
    max_count: MaxCountReport | None
    quota: QuotaReport | None
    archive: ArchiveReport | None
    decision: Annotated[
        Literal["ignore", "wait", "expire"], Field(description="ignore: kept; wait: due later; expire: due now.")
    ]
    reason: Reason
    deadline: DeadlineReport
    problem: str = ""
    unfinished: UnfinishedReport | None = None
    hold: str | None = None
    saved_ttl: str | None = None
    overridden_by: str | None = None
    unknown_annotations: list[str] = []
    never_finishes: str | None = None
    opt_in: str | None = None
    deleted_with: list[DeletingOwnerReport] = []
    owner: OwnerReport | None = None
    cleaners: list[Named] = []
    finalizers: list[Named] = []
    policy: PolicyName | None = None
    obstacles: list[ObstacleReport] = []
    guard: str | None = None


class ReferenceReport(Identity):
    """An object that refers to a Secret or a ConfigMap, by a field."""

    path: str


class LookedAt(Output):
    """The pass that found the references."""

    kinds: int
    started_at: datetime | None
    completed_at: datetime | None


class UsageReport(Identity):
    """What refers to a Secret or a ConfigMap, and the decision about it."""

    used: bool | None
    references: list[ReferenceReport]
    never_used: bool
    used_at: datetime | None
    used_newer: str | None
    unused_since: datetime | None
    due_at: datetime | None
    decision: str
    reason: UnusedReason
    policy_rule: str | None
    keys: int | None
    metadata_bytes: int
    created_at: datetime | None
    looked_at: LookedAt
    problem: str = ""


class StoredOther(Output):
    """Another stored version of the object."""

    uid: str
    acknowledged_at: datetime


class StoredObject(Output):
    """The stored version of a deleted object."""

    name: str
    rule: str | None
    acknowledged_at: datetime
    location: str
    uid: str
    resource_version: str
    digest: str
    children: list[str]
    logs: list[str]
    log_problems: Any
    redacted: Any
    others: list[StoredOther]


class GoneReport(Identity):
    """An object that no longer exists, as its archive has it."""

    finished: Literal[True] | None
    finished_at: datetime | None
    outcome: str | None
    ttl_from: str | None
    due_at: datetime | None
    decision: Literal["gone"]
    reason: Literal["archived"]
    archive: StoredObject
