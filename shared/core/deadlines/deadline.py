"""The deadlines that annotations set on an object or a Namespace, and the mark that `enforce` writes at a deadline.

The mark proves that `enforce` stopped an object. It limits how often the object is stopped. If the kind does not report
the end, the mark makes the object count as failed. The patch that stops the object also writes the mark.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from shared.core.kinds.ttl_and_deadline import ACTIONS
from shared.core.ttl.ttl import Origin
from shared.core.values.objects import ANNOTATION_DOMAIN, format_instant, get_annotations, get_in, parse_instant, quote
from shared.core.values.timing import add, or_never, parse_duration

ACTIVE_DEADLINE = "active-deadline"
"""The annotation that sets how long an object may run."""

PENDING_DEADLINE = "pending-deadline"
"""The annotation that sets how long an object may wait for its start."""

ON_DEADLINE = "on-deadline"
"""The annotation that sets what is done at the deadline."""

_NEVER = "never"


class Stage(StrEnum):
    """The part of the life of an unfinished object that a deadline limits."""

    PENDING = "pending"
    """It waits for its start: the pending deadline applies."""
    ACTIVE = "active"
    """It has started, or it is unknown whether it has: the active deadline applies."""


DEADLINES = {Stage.PENDING: PENDING_DEADLINE, Stage.ACTIVE: ACTIVE_DEADLINE}
"""The annotation of an object that sets the deadline of each stage."""


class InvalidDeadlineError(ValueError):
    """A value that sets a deadline cannot be read; the message names the field and what was expected."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """How long an object may run, or wait for its start.

    Attributes:
        source: The annotation, field or policy rule that sets it.
        after: The time from the start of the clock; None for `never`.
        origin: The type of the source.
    """

    source: str
    after: timedelta | None
    origin: Origin = "object"

    def due_at(self, counts_from: datetime | None) -> datetime | None:
        """The instant at which the object is stopped; None for `never`, or if the start of the clock is unknown."""
        return None if self.after is None or counts_from is None else add(counts_from, self.after)


def read_deadline(name: str, value: Any, *, origin: Origin = "object", may_be_never: bool = True) -> Deadline:
    """Read the value of an annotation that is a duration of more than zero, or `never`.

    Args:
        name: The annotation, without its domain.
        value: Its value.
        origin: The type of the source.
        may_be_never: Whether `never` is a value.

    Raises:
        InvalidDeadlineError: The value is anything else.
    """
    source = f"{ANNOTATION_DOMAIN}/{name}"
    if value == _NEVER and may_be_never:
        return Deadline(source, None, origin)
    if not isinstance(value, str):
        raise InvalidDeadlineError(f"annotation {source}: expected text, got {quote(value)}")
    try:
        after = parse_duration(value)
    except ValueError as error:
        expected = or_never(error) if may_be_never else str(error)
        raise InvalidDeadlineError(f"annotation {source}: {expected}") from None
    if not after:
        raise InvalidDeadlineError(f"annotation {source}: expected a duration of more than 0, got {quote(value)}")
    return Deadline(source, after, origin)


def annotated_deadlines(annotations: Mapping[str, Any]) -> dict[Stage, Deadline]:
    """The deadlines that an object's own annotations set, by the stage that they limit.

    Args:
        annotations: The object's annotations, without their domain.

    Raises:
        InvalidDeadlineError: An annotation about a deadline has a malformed value.
    """
    action = annotations.get(ON_DEADLINE)
    if ON_DEADLINE in annotations and action not in ACTIONS:
        source = f"annotation {ANNOTATION_DOMAIN}/{ON_DEADLINE}"
        raise InvalidDeadlineError(f"{source}: expected one of {', '.join(ACTIONS)}, got {quote(action)}")
    return {stage: read_deadline(name, annotations[name]) for stage, name in DEADLINES.items() if name in annotations}


DEADLINE_EXCEEDED = "deadline-exceeded"
"""The annotation with the instant of the last stop."""

STOPS = "stops"
"""The annotation with the number of stops."""

STOPPED_GENERATION = "stopped-generation"
"""The annotation with the `metadata.generation` that the object has since the stop."""

STOPS_MAX = 3
"""How often an object is stopped in all; after that, a stop that was undone is only reported."""

_DIGITS_MAX = 6


class InvalidMarkError(ValueError):
    """The mark cannot be read; the message names the annotation and what was expected."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The last stop of an object.

    Attributes:
        at: When it was stopped, by the API server's clock.
        stops: How often it was stopped so far.
        generation: The `metadata.generation` that the stop gave the object; empty if the kind has none.
    """

    at: datetime
    stops: int
    generation: str = ""

    def is_untouched(self, obj: Any) -> bool:
        """Return whether the spec of the object is exactly what the stop made of it.

        If a person resumes the object and later suspends it, its generation changes: that suspension is not our stop.
        """
        generation = get_in(obj, "metadata.generation")
        return isinstance(generation, int) and self.generation == str(generation)

    def is_changed(self, obj: Any) -> bool:
        """Return whether the spec of the object is known to have changed since the stop."""
        return bool(self.generation) and not self.is_untouched(obj)


def read_mark(obj: Any) -> Mark | None:
    """Read the mark of an object; None if it was never stopped.

    A mark that is older than the object is ignored: a person created the object from the YAML of a stopped object.

    Raises:
        InvalidMarkError: An annotation of the mark has a malformed value.
    """
    annotations = get_annotations(obj)
    if DEADLINE_EXCEEDED not in annotations:
        return None
    try:
        at = parse_instant(annotations.get(DEADLINE_EXCEEDED))
    except ValueError as error:
        raise InvalidMarkError(f"annotation {ANNOTATION_DOMAIN}/{DEADLINE_EXCEEDED}: {error}") from None
    if _is_of_another(obj, at):
        return None
    stops = annotations.get(STOPS, "1")
    is_count = isinstance(stops, str) and stops.isascii() and stops.isdigit() and len(stops) <= _DIGITS_MAX
    if not is_count or not int(stops):
        source = f"annotation {ANNOTATION_DOMAIN}/{STOPS}"
        raise InvalidMarkError(f"{source}: expected a number of stops from 1 on, got {quote(stops)}")
    generation = annotations.get(STOPPED_GENERATION)
    return Mark(at, int(stops), generation if isinstance(generation, str) else "")


def _is_of_another(obj: Any, at: datetime) -> bool:
    try:
        return at < parse_instant(get_in(obj, "metadata.creationTimestamp"))
    except ValueError:
        return False


def mark_annotations(obj: Any, at: datetime, before: Mark | None, *, of_spec: bool = True) -> dict[str, str]:
    """The annotations of the next stop, by full name.

    Args:
        obj: The object as it was read; a change of its spec increments its generation.
        at: The time of the stop, by the API server's clock.
        before: The mark of the last stop, if there was one.
        of_spec: Whether the stop changes the spec: a change of an annotation leaves the generation as it is.
    """
    generation = get_in(obj, "metadata.generation") if of_spec else None
    marks = {
        DEADLINE_EXCEEDED: format_instant(at),
        STOPS: str(before.stops + 1 if before else 1),
        STOPPED_GENERATION: str(generation + 1) if isinstance(generation, int) else "",
    }
    return {f"{ANNOTATION_DOMAIN}/{name}": value for name, value in marks.items()}


def is_merged(obj: Any, patch: Mapping[str, Any]) -> bool:
    """Return whether an object already has all values of a JSON merge patch."""
    if not isinstance(obj, dict):
        return False
    for key, wanted in patch.items():
        present = obj.get(key)
        if isinstance(wanted, dict):
            if not is_merged(present, wanted):
                return False
        elif type(present) is not type(wanted) or present != wanted:
            return False
    return True
