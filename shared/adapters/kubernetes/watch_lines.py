"""Read a watch: its lines, each only as far as its change needs it, and the last version of objects that it received.

The JSON of an object is not parsed twice. A due object of a known version is deleted without reading it again.
"""

from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec
from cachetools import FIFOCache

from shared.adapters.kubernetes.bodies import PathKind, Unread, typed, upper
from shared.adapters.kubernetes.refusals import GoneError
from shared.core.values.jsontext import JSON_DEPTH_MAX, JsonLimitError, check_json, parse_json
from shared.core.values.objects import get_in, get_text
from shared.core.values.objects import quote as excerpt
from shared.errors import TryLaterError


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A change of an object.

    Attributes:
        type: ADDED, MODIFIED, DELETED or BOOKMARK; UNREADABLE for an object that exceeds a limit.
        obj: The object; of an UNREADABLE one, the readable part of its metadata.
        problem: The limit that an UNREADABLE object exceeds; empty for other types.
        raw: The JSON of exactly `obj`, as the API server wrote it; empty if there is none.
    """

    type: str
    obj: dict[str, Any]
    problem: str = ""
    raw: bytes = b""


def parse_watch_line(line: bytes, rule: PathKind) -> WatchEvent:
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
    is_typed = (obj.get("apiVersion"), obj.get("kind")) == (rule.api_version, rule.kind)
    return WatchEvent(change.get("type", ""), typed(obj, rule), raw=change.get("raw", b"") if is_typed else b"")


def parse_change(line: bytes) -> Any | Unread:
    """Parse one line of a watch; return the upper levels of an object that exceeds a limit.

    Raises:
        ValueError: The line is not JSON.
    """
    try:
        return _parse_usual(line) or parse_json(line, depth_max=JSON_DEPTH_MAX + 1)
    except JsonLimitError as error:
        change = upper(line, b"object", b"metadata")
        obj = change.get("object")
        return Unread(obj if isinstance(obj, dict) else {}, str(error))


class _Line(msgspec.Struct):
    """A line of a watch, whose object is not parsed yet."""

    type: str
    object: msgspec.Raw


class _Identity(msgspec.Struct):
    uid: str
    name: str
    namespace: str = ""
    resourceVersion: str = ""  # noqa: N815 - the name of the field


class _Deleted(msgspec.Struct):
    """What a watch needs of a deleted object."""

    metadata: _Identity


_LINES = msgspec.json.Decoder(_Line)
_DELETED = msgspec.json.Decoder(_Deleted)
_OBJECTS = msgspec.json.Decoder(dict[str, Any])


def _parse_usual(line: bytes) -> dict[str, Any] | None:
    """Parse a change of an object, with `raw`, the JSON of the object; of a deleted object, only its identity.

    None for any other line, and for JSON that msgspec refuses.

    Raises:
        JsonLimitError: The line exceeds a limit.
    """
    check_json(line, depth_max=JSON_DEPTH_MAX + 1)
    with suppress(msgspec.MsgspecError, ValueError, RecursionError):
        change = _LINES.decode(line)
        if change.type == "DELETED":
            return {"type": change.type, "object": msgspec.to_builtins(_DELETED.decode(change.object))}
        if change.type in ("ADDED", "MODIFIED"):
            return {"type": change.type, "object": _OBJECTS.decode(change.object), "raw": bytes(change.object)}
    return None


WATCHED_BYTES_MAX = 64 * 1024 * 1024
"""Maximum total size of the JSON; the objects received longest ago are dropped first."""


class Memory:
    """A bounded map from uid to an object's JSON."""

    def __init__(self, bytes_max: int = WATCHED_BYTES_MAX) -> None:
        self._objects: FIFOCache[str, bytes] = FIFOCache(bytes_max, getsizeof=len)

    def remember(self, uid: str, obj: bytes) -> None:
        """Store a version of an object, and drop an earlier one."""
        self.forget(uid)
        with suppress(ValueError):  # one object is larger than the bound
            self._objects[uid] = obj

    def forget(self, uid: str) -> None:
        """Drop an object that is deleted, or that has a new version that need not be stored."""
        self._objects.pop(uid, None)

    def get(self, uid: str) -> bytes | None:
        """Return the JSON of the last received version, or None."""
        return self._objects.get(uid)
