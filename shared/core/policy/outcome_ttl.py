"""Read the times that a policy rule sets: a TTL for all outcomes or for each, and a deadline."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import PlainValidator, WithJsonSchema

from shared.core.kinds.rule import Outcome
from shared.core.policy.matching import DURATION_SCHEMA, read_duration
from shared.core.ttl.durations import format_duration, or_never
from shared.core.values.objects import quote

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
    """The TTL that a rule sets, by outcome; None means `never`. For an absent outcome the rule sets no TTL."""

    by_outcome: tuple[tuple[Outcome | None, timedelta | None], ...]

    def __str__(self) -> str:
        texts = {outcome: "never" if after is None else format_duration(after) for outcome, after in self.by_outcome}
        return texts.get(None) or ", ".join(f"{outcome}: {after}" for outcome, after in texts.items())


def _read_outcome_ttl(value: Any) -> OutcomeTtl:
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
    OutcomeTtl, PlainValidator(_read_outcome_ttl), WithJsonSchema({"anyOf": [*_AFTER["anyOf"], _BY_OUTCOME]})
]
"""A field of a policy: a TTL by outcome."""


def _read_deadline(value: Any) -> timedelta | Literal["never"]:
    after = value if isinstance(value, timedelta) else _read_after(value)
    if after is not None and not after:
        raise ValueError(f"expected never, or a duration of more than 0, got {quote(value)}")
    return "never" if after is None else after


AnyDeadline = Annotated[timedelta | Literal["never"], PlainValidator(_read_deadline), WithJsonSchema(_AFTER)]
"""A field of a policy: how long an object may run, or never."""
