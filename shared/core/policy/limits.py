"""Read the limits of deletions from a policy: the rates, the breaker, and the recreation check.

Without a policy file there is no rate and no breaker, because any default would be a guess about an unknown cluster: a
low limit stops a healthy cluster, and a high limit protects nothing. Only the recreation check is on by default:
a parent that recreates each deleted object causes endless work in a cluster of any size. Its default does not affect
intended use: it does not stop a Job that is created again under the same name every few minutes. It stops a Job that is
back at once five times in ten minutes.
"""

import dataclasses
from dataclasses import field
from datetime import timedelta
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass

from shared.core.kinds.predicates import Narrowing
from shared.core.policy.matching import Duration
from shared.core.values.objects import quote
from shared.core.values.timing import format_duration

_CONFIG = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)
_SHARE = "expected a share such as 50%"


def _read_share(value: Any) -> Any:
    if isinstance(value, float) and 0 < value <= 1:
        return value
    if not isinstance(value, str) or not value.endswith("%"):
        raise ValueError(f"{_SHARE}, got {quote(value)}")
    try:
        share = float(value[:-1]) / 100
    except ValueError:
        raise ValueError(f"{_SHARE}, got {quote(value)}") from None
    if not 0 < share <= 1:
        raise ValueError(f"{_SHARE}, above 0% and up to 100%, got {quote(value)}")
    return share


Share = Annotated[
    float,
    BeforeValidator(_read_share),
    WithJsonSchema({"type": "string", "pattern": "^[0-9.]+%$", "description": "A share, for instance 50%."}),
]
"""A fraction above 0, up to 1."""


PER_SECOND_MIN = 1e-6
"""One deletion in twelve days; for a far lower rate the interval would overflow."""


@dataclass(frozen=True, slots=True, config=_CONFIG)
class Rate:
    """A token bucket for the deletions of one process."""

    per_second: Annotated[
        float,
        Field(ge=PER_SECOND_MIN, le=100_000, description="Deletions a second in the long run, for each process."),
    ]
    burst: Annotated[int, Field(ge=1, le=1_000_000, description="Deletions at once after a pause.")] = 1


def _check_window(value: timedelta) -> timedelta:
    if value < timedelta(seconds=1):
        raise ValueError(f"expected at least 1s, got {format_duration(value)}: no deletion counts in a shorter window")
    return value


Window = Annotated[Duration, AfterValidator(_check_window)]
"""How long a deletion counts; at least 1s."""


@dataclass(frozen=True, slots=True, config=_CONFIG)
class BreakerLimits:
    """When the breaker trips: at a number of deletions by all processes within a window, or at a share of one kind."""

    count: Annotated[
        int | None,
        Field(ge=1, description="Deletions of all kinds within the window. Without it there is no such limit."),
    ] = None
    share: Annotated[
        Share | None,
        Field(
            description="The share of one kind's objects that is deleted within the window, such as 50%. Without it "
            "there is no such limit."
        ),
    ] = None
    at_least: Annotated[
        int, Field(ge=0, description="Up to so many deletions of a kind within the window, the share is ignored.")
    ] = 100
    window: Annotated[Window, Field(description="How long a deletion counts, at least 1s.")] = timedelta(minutes=10)

    @model_validator(mode="before")
    @classmethod
    def _nothing_is_null(cls, value: Any) -> Any:
        """Reject a limit without a value, as every RuleModel does: it is a mistake, and does not mean "no limit"."""
        given = value if isinstance(value, dict) else {}
        empty = [name for name in ("count", "share") if name in given and given[name] is None]
        if empty:
            raise ValueError(f"expected a value for {', '.join(empty)}, or no such field")
        return value


@dataclass(frozen=True, slots=True, config=_CONFIG)
class RecreationLimits:
    """A recreate loop: a name is deleted so often within the window, by all processes, and exists again."""

    times: Annotated[
        int, Field(ge=0, le=100, description="Deletions of one name within the window. 0 turns the detection off.")
    ] = 5
    window: Annotated[
        Window, Field(description="How long a deletion counts, and how long the name is kept then. At least 1s.")
    ] = timedelta(minutes=10)


class BudgetLimits(Narrowing):
    """How much may be deleted, and how fast. A field that is not set sets no limit."""

    global_: Rate | None = Field(default=None, alias="global", description="The rate of all deletions of a process.")
    per_namespace: Rate | None = Field(default=None, description="The rate of a process in each namespace.")
    breaker: BreakerLimits = Field(
        default=BreakerLimits(), description="When all deletions stop until a person releases the breaker."
    )

    @model_validator(mode="after")
    def _breaker_has_limit(self) -> Self:
        if "breaker" in self.model_fields_set and self.breaker.count is None and self.breaker.share is None:
            raise ValueError("breaker: expected count or share, got neither: the breaker would never trip")
        return self


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """All limits of a policy.

    Attributes:
        everywhere: The rate of all deletions of a process; None for no limit.
        per_namespace: The rate of a process in each namespace; None for no limit.
        breaker: The limits that trip the breaker.
        recreation: When the deletions of one name count as a recreate loop.
    """

    everywhere: Rate | None = None
    per_namespace: Rate | None = None
    breaker: BreakerLimits = field(default=BreakerLimits())
    recreation: RecreationLimits = field(default=RecreationLimits())
