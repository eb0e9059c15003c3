"""What Knative says of its objects in their conditions."""

from collections.abc import Iterator, Mapping
from typing import Any

from shared.core.objects import get_text, list_mappings
from shared.installation.inventory import Obj


def is_ready(obj: Obj) -> bool:
    """Whether its condition Ready is true."""
    return any(get_text(one, "status") == "True" for one in _conditions(obj) if get_text(one, "type") == "Ready")


def describe_trouble(obj: Obj) -> str:
    """Why it is not ready; empty where it is.

    Ready sums up the other conditions, but sometimes without their words, and always only one of them.
    """
    if is_ready(obj):
        return ""
    conditions = list(_conditions(obj))
    for status in ("False", "Unknown"):
        said = [one for one in conditions if get_text(one, "status") == status]
        parts = [one for one in said if get_text(one, "type") != "Ready" and _words(one)] or said
        if parts and any(map(_words, parts)):
            return "; ".join(f"{get_text(one, 'type')}: {_words(one)}" for one in parts)
        if parts:
            names = [name for one in parts if (name := get_text(one, "type")) != "Ready"] or ["Ready"]
            return f"{', '.join(names)}: not yet"
    return "nothing has looked at it yet: is its controller there?"


def failing(obj: Obj) -> set[str]:
    """The types of the conditions that are false."""
    return {get_text(one, "type") for one in _conditions(obj) if get_text(one, "status") == "False"}


def _conditions(obj: Obj) -> Iterator[Mapping[str, Any]]:
    return list_mappings(obj, "status.conditions")


def _words(condition: Mapping[str, Any]) -> str:
    return get_text(condition, "message") or get_text(condition, "reason")
