"""The events of a Kubernetes watch, parsed from its lines."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from shared.adapters.kubernetes.bodies import Unread, parse_change
from shared.adapters.kubernetes.refusals import GoneError
from shared.adapters.kubernetes.versioned_requests import typed
from shared.core.kinds.rule import KindRule
from shared.core.objects import get_in, get_text
from shared.core.objects import quote as excerpt
from shared.errors import TryLaterError


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A change of an object.

    Attributes:
        type: ADDED, MODIFIED, DELETED or BOOKMARK; UNREADABLE for an object that exceeds a limit.
        obj: The object; of an UNREADABLE one, the readable part of its metadata.
        problem: The limit that an UNREADABLE object exceeds; empty for other types.
    """

    type: str
    obj: dict[str, Any]
    problem: str = ""


def parse_watch_line(line: bytes, rule: KindRule) -> WatchEvent:
    """Parse one line of a watch.

    Raises:
        GoneError: The resourceVersion of the watch is too old: LIST again.
        TryLaterError: The line is not a change, or is an error: watch again from the last resourceVersion.
    """
    try:
        change = parse_change(line)
    except ValueError as error:
        raise TryLaterError(f"watch of {rule.plural} broke: {error}") from None
    if isinstance(change, Unread):
        return WatchEvent("UNREADABLE", typed(change.obj, rule), change.problem)
    obj = get_in(change, "object")
    if not isinstance(obj, dict):
        raise TryLaterError(f"watch of {rule.plural} broke: expected a change of an object, got {excerpt(change)}")
    if change.get("type") == "ERROR":
        if obj.get("code") == HTTPStatus.GONE:
            raise GoneError(get_text(obj, "message"))
        raise TryLaterError(f"watch of {rule.plural} ended: {get_text(obj, 'message')}")
    return WatchEvent(change.get("type", ""), typed(obj, rule))
