"""Read the status conditions of Knative objects."""

from collections.abc import Iterator, Mapping
from typing import Any

from shared.core.objects import get_text, list_mappings
from shared.installation.inventory import Obj


def is_ready(obj: Obj) -> bool:
    """Whether the condition Ready of an object is true."""
    return any(get_text(one, "status") == "True" for one in _conditions(obj) if get_text(one, "type") == "Ready")


def describe_trouble(obj: Obj) -> str:
    """Describe why an object is not ready; empty if it is ready.

    The condition Ready summarizes the others, but it carries the message of one of them at most.
    """
    if is_ready(obj):
        return ""
    conditions = list(_conditions(obj))
    for status in ("False", "Unknown"):
        matching = [one for one in conditions if get_text(one, "status") == status]
        parts = [one for one in matching if get_text(one, "type") != "Ready" and _message(one)] or matching
        if parts and any(map(_message, parts)):
            return "; ".join(f"{get_text(one, 'type')}: {_message(one)}" for one in parts)
        if parts:
            names = [name for one in parts if (name := get_text(one, "type")) != "Ready"] or ["Ready"]
            return f"{', '.join(names)}: status is {status}, without a message"
    return "it has no conditions yet; check that its controller runs"


def failing(obj: Obj) -> set[str]:
    """Return the types of the conditions that are false."""
    return {get_text(one, "type") for one in _conditions(obj) if get_text(one, "status") == "False"}


def _conditions(obj: Obj) -> Iterator[Mapping[str, Any]]:
    return list_mappings(obj, "status.conditions")


def _message(condition: Mapping[str, Any]) -> str:
    return get_text(condition, "message") or get_text(condition, "reason")
