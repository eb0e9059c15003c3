"""The parts of a kind rule about a TTL field, deadlines and stops; `shared.core.kinds.rule` shows the whole schema.

An object may inherit a TTL from another object, to which it refers.
"""

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from shared.core.kinds.predicates import (
    FROM_FINISHING_CONDITION,
    ApiVersion,
    ConditionTime,
    Path,
    Predicate,
    RuleModel,
    TimeSource,
    Word,
    finish_sources,
)
from shared.core.values.objects import get_in

_Reference = Annotated[str, StringConstraints(pattern=r"^[A-Za-z]\w*(\.[A-Za-z][\w-]*)+$")]
"""A dotted path without lists: an object refers to one other object."""


class TtlField(RuleModel):
    """A field of a kind that sets a TTL."""

    path: Path
    unit: Literal["seconds", "milliseconds", "duration"] = "seconds"
    when: Predicate | None = None


class TtlSourceKind(RuleModel):
    """A kind whose objects set the TTL of other objects."""

    api_versions: tuple[ApiVersion, ...] = Field(min_length=1)
    kind: str = Field(pattern=r"^[A-Z][A-Za-z0-9]*$")
    plural: str = Field(pattern=r"^[a-z][a-z0-9]*$")
    scope: Literal["Namespaced", "Cluster"] = "Namespaced"

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_versions[0].rpartition("/")[0]


class InheritedTtl(RuleModel):
    """Where an object without a TTL inherits one: a reference to another object, and the fields of that object."""

    ref: _Reference
    kinds: tuple[TtlSourceKind, ...] = Field(min_length=1)
    fields: tuple[TtlField, ...] = Field(min_length=1)

    def find_kind(self, group: str, kind: str) -> TtlSourceKind | None:
        """The kind that a reference names; None if the rule does not know it."""
        return next((one for one in self.kinds if (one.group, one.kind) == (group, kind)), None)


class NativeTtl(RuleModel):
    """The fields of a kind that set a TTL, and how to read them."""

    fields: tuple[TtlField, ...] = Field(min_length=1)
    zero: Literal["delete", "never"] = "delete"
    negative: Literal["invalid", "never", "delete"] = "invalid"
    honoured_by: Word | None = None
    native: Literal["act", "leave"] = "act"
    inherited: InheritedTtl | None = None

    @model_validator(mode="after")
    def _inherits_what_it_acts_on(self) -> Self:
        if self.inherited and self.native == "leave":
            raise PydanticCustomError("inherits", "expected `native: act` beside inherited")
        return self


class NativeDeadline(RuleModel):
    """The fields of a kind that set a deadline, how to read them, and the controller that enforces it."""

    fields: tuple[TtlField, ...] = Field(min_length=1)
    zero: Literal["now", "never"] = "now"
    negative: Literal["invalid", "never", "now"] = "invalid"
    honoured_by: Word
    defaulted: bool = False


Action = Literal["stop", "suspend", "delete"]
"""What is done with an object at its deadline."""

ACTIONS: tuple[Action, ...] = get_args(Action)
"""All actions."""

_PATCHED = {"spec", "metadata", "status"}
_METADATA = {"annotations", "labels"}


def _check_fields(patch: dict[str, Any]) -> dict[str, Any]:
    metadata = patch.get("metadata", {})
    is_of_metadata = isinstance(metadata, dict) and set(metadata) <= _METADATA
    if not set(patch) <= _PATCHED or not is_of_metadata or not all(patch.values()):
        expected = "expected a merge patch of spec, status, metadata.labels or metadata.annotations"
        raise PydanticCustomError("patch", "{expected}", {"expected": expected})
    return patch


MergePatch = Annotated[dict[str, Any], Field(min_length=1), AfterValidator(_check_fields)]
"""A JSON merge patch of the parts of an object that a rule may change: to stop it, or to create it suspended."""


class StopException(RuleModel):
    """Objects of a kind on which a stop has no effect, and why."""

    when: Predicate
    why: Word


class StopRule(RuleModel):
    """How a running object is stopped: by a JSON merge patch, and what proves that the stop is complete.

    A kind without a status subresource may be stopped by a patch of its status.
    """

    patch: MergePatch
    finishes: bool = True
    ends: Predicate | None = None
    ended_at: tuple[TimeSource, ...] = ()

    @model_validator(mode="after")
    def _ends_at_a_known_time(self) -> Self:
        if self.ends is not None and not self.finishes:
            raise PydanticCustomError("finishes", "expected no `finishes: false` beside ends: the object then finishes")
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


class Waiter(RuleModel):
    """Something that waits for the end of an object, and whether it goes on after a stop."""

    name: Word
    goes_on: bool
    why: Word


def _without_finish(sources: tuple[TimeSource, ...]) -> tuple[TimeSource, ...]:
    """Check that no source of a start needs the condition that marks the object as finished."""
    if words := sorted(FROM_FINISHING_CONDITION & {*finish_sources(sources)}):
        message = "{word} is about the finish: expected a source of the start"
        raise PydanticCustomError("no_start", message, {"word": words[0].value})
    return sources


_StartSources = Annotated[tuple[TimeSource, ...], Field(min_length=1), AfterValidator(_without_finish)]


class PendingRule(RuleModel):
    """Which objects of a kind have never started, and since when they wait for their start.

    While `suspended` holds, an object waits on purpose: its pending deadline does not run.
    """

    when: Predicate
    since: _StartSources
    suspended: Predicate | None = None


class DeadlineRule(RuleModel):
    """How the deadlines of one kind are measured and enforced."""

    started_at: _StartSources
    suspended: Predicate | None = None
    pending: PendingRule | None = None
    native: NativeDeadline | None = None
    stop: StopRule | None = None
    suspend: StopRule | None = None
    exception: StopException | None = None
    cannot_stop: Word | None = None
    waiters: tuple[Waiter, ...] = Field(default=(), min_length=1)

    @model_validator(mode="after")
    def _stops_or_says_why_not(self) -> Self:
        if bool(self.stop) == bool(self.cannot_stop):
            raise PydanticCustomError("stops", "expected exactly one of stop and cannotStop")
        if self.exception and not self.stop:
            raise PydanticCustomError(
                "exception", "expected no exception beside cannotStop, which is about all objects"
            )
        return self

    @model_validator(mode="after")
    def _has_one_way_to_suspend(self) -> Self:
        if self.suspend is None:
            return self
        if self.suspend.ends is None:
            raise PydanticCustomError(
                "suspends", "suspend: expected ends: a suspended object does not finish by itself"
            )
        if self.stop is None or self.stop.ends is not None:
            message = "expected suspend only beside a stop without ends: a stop with ends suspends the object itself"
            raise PydanticCustomError("one_way", message)
        return self

    @property
    def suspending(self) -> StopRule | None:
        """The patch after which an object does not finish by itself, and can be resumed; None if there is none."""
        return self.suspend or (self.stop if self.stop is not None and self.stop.ends is not None else None)

    @property
    def sets_native(self) -> bool:
        """Return whether an object is stopped by the deadline field of its kind, which its controller enforces.

        Such a stop also takes effect later: on a suspended object, a second after it is resumed.
        """
        fields = self.native.fields if self.native else ()
        return self.stop is not None and any(get_in(self.stop.patch, field.path) is not None for field in fields)

    @property
    def patches(self) -> tuple[StopRule, ...]:
        """Each way to stop an object of the kind, the default first."""
        return tuple(one for one in (self.stop, self.suspend) if one is not None)

    def find_stop(self, action: Action) -> StopRule | None:
        """The patch for what is done at the deadline; None if the kind has none, and for a deletion."""
        if action == "delete":
            return None
        return self.suspending if action == "suspend" else self.stop
