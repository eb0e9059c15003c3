"""The JSON of `plan --by`, `plan --policy` and `top`, as pydantic models."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from tests.reference.output_objects import Identity, Output, UsageReport


class Terms(Output):
    """The number of objects by when they are due; each object counts in one field."""

    due_now: int
    within1h: int
    from1h_to24h: int
    later: int
    kept: int


class PlanRow(Terms):
    """The objects of one group; of the names, a row has those of --by."""

    namespace: str | None = None
    kind: str | None = None
    ttl_from: str | None = None
    owner: str | None = None
    next_due_at: datetime | None


class ForecastWindow(Output):
    """The objects that are due in one window."""

    window: str
    count: int


class PlanRows(Output):
    """`plan --by`."""

    version: Literal[1]
    by: Literal["namespace", "kind", "rule", "owner"]
    objects: int
    rows: list[PlanRow]
    totals: Terms
    kept_by_reason: dict[str, int]
    forecast: list[ForecastWindow]
    unused: list[UsageReport]


class Both(Output):
    """A count under the policy in force, and under the new one."""

    in_force: int
    new: int


class BothTerms(Output):
    """The counts by when objects are due."""

    due_now: Both
    within1h: Both
    from1h_to24h: Both
    later: Both
    kept: Both


class ComparedRow(BothTerms):
    """The counts of one source of the TTL, one kind or one namespace; a row has one of the names."""

    rule: str | None = None
    kind: str | None = None
    namespace: str | None = None


class Unanswered(Both):
    """Objects for which a policy rule has no TTL."""

    rule: str


class Limit(Output):
    """How many objects the new policy deletes or stops at once."""

    due_now: Any
    stopped_now: Any
    archived_first: int
    limit: int
    is_exceeded: bool


class Change(Identity):
    """An object whose decision changes; both have fields of `plan`."""

    in_force: dict[str, Any]
    new: dict[str, Any]


class PolicyComparison(Output):
    """`plan --policy`."""

    policy: str
    in_force: str
    objects: int
    totals: BothTerms
    stops: BothTerms
    rules: list[ComparedRow]
    kinds: list[ComparedRow]
    namespaces: list[ComparedRow]
    unanswered: list[Unanswered]
    recreated: Both
    changes: list[Change]
    limit: Limit
    safeguards: list[str]
    deadlines: list[str]
    archives: list[str]
    unused: list[UsageReport]


class TopRow(Output):
    """The finished objects of one group; of the names, a row has those of --by."""

    namespace: str | None = None
    kind: str | None = None
    ttl_from: str | None = None
    owner: str | None = None
    finished: int
    forever: Annotated[int, Field(description="Of these, how many are kept as long as nothing changes.")]
    due_within24h: Annotated[int, Field(description="Those that are due now included.")]
    oldest_finished_at: datetime | None


class Top(Output):
    """`top`."""

    version: Literal[1]
    by: Literal["namespace", "kind", "rule", "owner"] | None
    rows: list[TopRow]
