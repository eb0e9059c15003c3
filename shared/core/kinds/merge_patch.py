"""A merge patch in a kind rule: it stops an object, or has a new object created suspended."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

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
"""A JSON merge patch of the parts of an object that a rule may change."""
