"""The deadlines that annotations set on an object or a Namespace."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from shared.core.kinds.deadline_rule import ACTIONS
from shared.core.ttl.durations import or_never, parse_duration
from shared.core.ttl.ttl import Origin
from shared.core.values.objects import ANNOTATION_DOMAIN, quote

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
        if self.after is None or counts_from is None:
            return None
        try:
            return counts_from + self.after
        except OverflowError:
            return datetime.max.replace(tzinfo=counts_from.tzinfo)


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
