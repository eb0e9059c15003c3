"""CEL conditions that a write changes nothing of an object but some fields; the admission policies use them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shared.core.kinds.cel_text import list_of, optional_key

SET_BY_SERVER = ("generation", "managedFields", "resourceVersion")
"""The metadata that the API server sets at each write."""


def both(path: str) -> tuple[str, str]:
    """Return the CEL expressions of a map of the old object and of the new one; an absent map counts as empty."""
    return f"oldObject.{path}.orValue({{}})", f"object.{path}.orValue({{}})"


def is_same_but(both: tuple[str, str], patch: Mapping[str, Any], free: Sequence[str] = ()) -> Iterator[str]:
    """Yield the conditions that two maps differ only where a merge patch has values, and in `free` keys."""
    old, new = both
    yield from is_same_beside(old, new, (*patch, *free))
    for key, value in patch.items():
        if isinstance(value, dict):
            inner = f"{optional_key(old, key)}.orValue({{}})", f"{optional_key(new, key)}.orValue({{}})"
            yield from is_same_but(inner, value)


def is_same_beside(old: str, new: str, keys: Sequence[str]) -> Iterator[str]:
    """Yield the conditions that two maps have the same entries, except for some keys."""
    if not keys:
        yield f"{new} == {old}"
        return
    others = list_of(sorted({*keys}))
    yield f"{old}.all(key, key in {others} || key in {new} && {new}[key] == {old}[key])"
    yield f"{new}.all(key, key in {others} || key in {old})"
