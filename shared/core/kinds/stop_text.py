"""CEL about stops, as texts for an admission policy of Kubernetes: the mark and the patch of `enforce`."""

from collections.abc import Iterator, Mapping
from typing import Any

from shared.core.deadlines.mark import DEADLINE_EXCEEDED, STOPPED_GENERATION, STOPS
from shared.core.kinds.cel_text import NULL, optional_key, value_of
from shared.core.objects import ANNOTATION_DOMAIN

_INSTANT = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?Z$"


def is_merged(root: str, patch: Mapping[str, Any]) -> Iterator[str]:
    """Yield the conditions that an object has all values of a JSON merge patch.

    Args:
        root: The CEL variable of the object.
        patch: The patch.
    """
    for key, value in patch.items():
        entry = optional_key(root, key)
        if isinstance(value, dict):
            yield from is_merged(entry, value)
        else:
            yield f"{entry}.orValue({NULL}) == {value_of(value)}"


def is_marked() -> Iterator[str]:
    """Yield the conditions that `enforce` stopped the object, and that its spec is what the stop made of it."""
    at, stops, generation = (
        f"oldObject.metadata.?annotations[?'{ANNOTATION_DOMAIN}/{name}']"
        for name in (DEADLINE_EXCEEDED, STOPS, STOPPED_GENERATION)
    )
    created_at = "timestamp(oldObject.metadata.creationTimestamp)"  # an older mark is that of another object
    yield f"{at}.orValue('').matches('{_INSTANT}') && timestamp({at}.orValue('')) >= {created_at}"
    yield f"{stops}.orValue('1').matches('^[0-9]{{1,6}}$') && int({stops}.orValue('1')) > 0"
    yield f"{generation}.orValue('') == string(oldObject.metadata.?generation.orValue(-1))"
