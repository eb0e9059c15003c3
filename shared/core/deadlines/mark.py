"""The mark that `enforce` writes on an object when it stops it, and whether the patch of a stop is in place.

The mark proves that `enforce` stopped an object. It limits how often the object is stopped. If the kind does not report
the end, the mark makes the object count as failed. The patch that stops the object also writes the mark.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shared.core.values.objects import ANNOTATION_DOMAIN, format_instant, get_annotations, get_in, parse_instant, quote

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
