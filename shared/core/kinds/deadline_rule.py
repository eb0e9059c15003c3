"""The part of a kind rule about active deadlines; `shared.core.kinds.rule` shows the whole schema."""

from typing import Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from shared.core.kinds.merge_patch import MergePatch
from shared.core.kinds.native_ttl import NativeDeadline
from shared.core.kinds.predicates import Predicate, RuleModel, Word
from shared.core.kinds.times import FROM_FINISHING_CONDITION, ConditionTime, TimeSource, finish_sources


class StopRule(RuleModel):
    """How a running object is stopped: by a JSON merge patch, and what proves that the stop is complete.

    A kind without a status subresource may be stopped by a patch of its status.
    """

    patch: MergePatch
    ends: Predicate | None = None
    ended_at: tuple[TimeSource, ...] = ()

    @model_validator(mode="after")
    def _ends_at_a_known_time(self) -> Self:
        if self.ends is None and self.ended_at:
            raise PydanticCustomError("ends", "expected ends beside endedAt: without it, the kind reports its own end")
        if self.ends is not None and not self.end_times:
            message = "expected endedAt beside ends, unless ends is one condition, whose lastTransitionTime counts"
            raise PydanticCustomError("ended_at", message)
        if words := sorted(FROM_FINISHING_CONDITION & {*finish_sources(self.ended_at)}):
            message = "{word} needs a condition that finishes: name the condition itself"
            raise PydanticCustomError("no_condition", message, {"word": words[0].value})
        return self

    @property
    def end_times(self) -> tuple[TimeSource, ...]:
        """The sources of the instant at which a stop was complete; empty if the kind reports its own end."""
        if self.ended_at or self.ends is None or self.ends.condition is None or self.ends.statuses != ("True",):
            return self.ended_at
        return (ConditionTime(condition=self.ends.condition),)


class DeadlineRule(RuleModel):
    """How an active deadline of one kind is measured and enforced."""

    started_at: tuple[TimeSource, ...] = Field(min_length=1)
    suspended: Predicate | None = None
    native: NativeDeadline | None = None
    stop: StopRule | None = None
    cannot_stop: Word | None = None

    @field_validator("started_at")
    @classmethod
    def _has_no_finish(cls, sources: tuple[TimeSource, ...]) -> tuple[TimeSource, ...]:
        if words := sorted(FROM_FINISHING_CONDITION & {*finish_sources(sources)}):
            message = "{word} is about the finish: expected a source of the start"
            raise PydanticCustomError("no_start", message, {"word": words[0].value})
        return sources

    @model_validator(mode="after")
    def _stops_or_says_why_not(self) -> Self:
        if bool(self.stop) == bool(self.cannot_stop):
            raise PydanticCustomError("stops", "expected exactly one of stop and cannotStop")
        return self
