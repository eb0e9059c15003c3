"""How long a policy rule says that objects stay: a duration or `never`, for all outcomes or for each."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from shared.core.kinds.rule import Outcome
from shared.core.policy.matching import DURATION_SCHEMA, read_duration
from shared.core.ttl.durations import format_duration, or_never

OUTCOMES: tuple[Outcome | None, ...] = (Outcome.SUCCEEDED, Outcome.FAILED, None)
_AFTER = {"anyOf": [*DURATION_SCHEMA["anyOf"], {"const": "never"}]}
_BY_OUTCOME = {
    "type": "object",
    "properties": {"succeeded": _AFTER, "failed": _AFTER},
    "additionalProperties": False,
    "minProperties": 1,
}


@dataclass(frozen=True, slots=True)
class OutcomeTtl:
    """How long objects stay, by outcome; None is for good. An outcome that is absent is not spoken of."""

    by_outcome: tuple[tuple[Outcome | None, timedelta | None], ...]

    def __str__(self) -> str:
        told = {outcome: "never" if after is None else format_duration(after) for outcome, after in self.by_outcome}
        return told.get(None) or ", ".join(f"{outcome}: {after}" for outcome, after in told.items())


def _read_lasting(value: Any) -> OutcomeTtl:
    if isinstance(value, OutcomeTtl):
        return value
    if not isinstance(value, dict):
        after = _read_after(value)
        return OutcomeTtl(tuple((outcome, after) for outcome in OUTCOMES))
    if not value or not set(value) <= {"succeeded", "failed"}:
        raise ValueError("expected a duration, never, or one of them for each of succeeded and failed")
    return OutcomeTtl(tuple((Outcome(outcome), _read_after(after)) for outcome, after in value.items()))


def _read_after(value: Any) -> timedelta | None:
    try:
        return None if value == "never" else read_duration(value)
    except ValueError as error:
        raise ValueError(or_never(error)) from None


AnyLasting = Annotated[
    OutcomeTtl, PlainValidator(_read_lasting), WithJsonSchema({"anyOf": [*_AFTER["anyOf"], _BY_OUTCOME]})
]
"""As YAML gives it."""
