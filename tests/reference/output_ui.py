"""The JSON of `ui`, as pydantic models."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from tests.reference.output_objects import Identity, Output
from tests.reference.output_plans import Terms


class UiScope(Output):
    """What the document is about."""

    namespace: Annotated[str | None, Field(description="The only namespace; null for all.")]
    kind: Annotated[str | None, Field(description="The only kind; null for all.")]
    restricted: Annotated[bool, Field(description="Whether it holds only what the reader may list.")]
    unchecked: Annotated[
        int,
        Field(description="Kinds and namespaces that are left out, since too many had to be checked: ask for one."),
    ]


class UiTotals(Terms):
    """The sums of all objects."""

    objects: int
    finished: int


class UiForecastKind(Output):
    """The forecast of one kind."""

    kind: str
    counts: list[int]


class UiForecastRow(UiForecastKind):
    """The forecast of one kind in one namespace."""

    namespace: str | None
    next_due_at: datetime | None


class UiForecast(Output):
    """How many objects are due in each window; each list of counts is in the order of the windows."""

    windows: list[str]
    counts: list[int]
    by_kind: list[UiForecastKind]
    rows: list[UiForecastRow]
    more_rows: int


class UiPile(Output):
    """The finished objects of one kind in one namespace."""

    namespace: str | None
    kind: str
    finished: int
    forever: int
    due_within24h: int
    oldest_finished_at: datetime | None


class UiPiles(Output):
    """Which namespaces and kinds have the most finished objects."""

    rows: list[UiPile]
    more_rows: int


class UiKept(Output):
    """The objects that one reason keeps."""

    reason: str
    meaning: str
    count: int
    examples: list[Identity]


class UiDeletion(Identity):
    """One deletion, as a Kubernetes Event shows it."""

    deleted_at: datetime
    reason: str
    ttl_from: str
    lateness_seconds: Annotated[float | None, Field(description="Seconds from the due time to the deletion.")]
    why: str


class UiCounted(Output):
    """Deletions of a minute that one Kubernetes Event only counts."""

    api_version: str
    kind: str
    namespace: str | None
    count: int
    last_at: datetime
    reason: str
    source: str


class UiDeletions(Output):
    """The deletions of the last day of which the Kubernetes Events say something."""

    total: int
    max_lateness_seconds: float | None
    rows: list[UiDeletion]
    more_rows: int
    counted: list[UiCounted]
    note: str


class UiInstalled(Output):
    """The installation."""

    namespace: str
    dry_run: bool
    kinds: Annotated[list[str], Field(description="TTL_KINDS; empty for all kinds.")]


class UiLeader(Output):
    """The holder of a Lease."""

    namespace: str
    holder: str | None
    leads: bool
    renewed_at: datetime | None
    handles: str | None


class UiObstacle(Output):
    """What prevents every deletion."""

    reason: str
    message: str
    since: datetime | None
    until: datetime | None
    fix: str


class UiBreakerLimits(Output):
    """When the breaker trips."""

    count: int | None
    share: float | None
    at_least: int
    window_seconds: float


class UiBreaker(Output):
    """The breaker."""

    open: bool
    limits: UiBreakerLimits | None
    deletions_in_window: Annotated[int | None, Field(description="Of all processes; null if that is unknown.")]


class UiRate(Output):
    """A rate of deletions of one process."""

    per_second: float
    burst: int


class UiBudget(Output):
    """The rates of the policy; null for no limit."""

    global_: Annotated[UiRate | None, Field(alias="global")]
    per_namespace: UiRate | None


class UiLoop(Output):
    """A name in a recreate loop."""

    name: str
    until: datetime


class UiSweep(Output):
    """The last sweep."""

    at: datetime
    complete: bool
    message: str


class UiStatus(Output):
    """The state of the deleters."""

    policy: str
    installed: UiInstalled | None
    leaders: list[UiLeader]
    obstacles: list[UiObstacle]
    breaker: UiBreaker
    stopped: bool
    budget: UiBudget
    recreate_loops: list[UiLoop]
    last_sweep: UiSweep | None


class UiProblem(Output):
    """What could not be read, and why."""

    about: str
    problem: str


class UiOverview(Output):
    """`ui -o json`, and the answer of `GET /api/v1/overview`."""

    version: Literal[1]
    server: str
    read_at: datetime
    refresh_seconds: float
    scope: UiScope
    totals: UiTotals
    namespaces: list[str]
    kinds: list[str]
    forecast: UiForecast
    piles: UiPiles
    kept: list[UiKept]
    deletions: UiDeletions
    status: Annotated[UiStatus | None, Field(description="Null if the reader may not see it.")]
    problems: list[UiProblem]
