"""How much may be deleted, and how often: the budget of a policy, and when a name is left alone."""

from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from shared.core.matching import Duration
from shared.core.objects import quote
from shared.core.predicates import RuleModel

_SHARE = "expected a share such as 50%"


def _read_share(value: Any) -> Any:
    if isinstance(value, float):
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
"""Above 0, up to 1."""


class Rate(RuleModel):
    """Deletions, per process.

    Attributes:
        per_second: In the long run.
        burst: At once, after a quiet time.
    """

    per_second: float = Field(gt=0, le=100_000)
    burst: int = Field(default=1, ge=1, le=1_000_000)


class Breaker(RuleModel):
    """When deleting stops until somebody releases it: too many deletions within a window.

    Attributes:
        count: So many; None for no such limit.
        share: Or so much of a kind's objects, once there were more deletions than `at_least`; None for no such limit.
        at_least: Below this many a share trips nothing.
        window: Over which they are counted.
    """

    count: int | None = Field(default=None, ge=1)
    share: Share | None = None
    at_least: int = Field(default=100, ge=1)
    window: Duration = timedelta(minutes=10)


class Budget(RuleModel):
    """How fast and how much; what is not said has no limit."""

    global_: Rate | None = Field(default=None, alias="global")
    per_namespace: Rate | None = None
    breaker: Breaker | None = None


class Recreation(RuleModel):
    """When a name is left alone: it came back under a new uid after we deleted it, so often within the window."""

    times: int = Field(default=3, ge=1, le=100)
    window: Duration = timedelta(hours=1)
