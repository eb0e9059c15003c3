"""Keep `metadata.managedFields`: each writer owns the fields whose values it was the last to set.

As a kube-apiserver, a write that sets a field to another value moves the field to the writer's entry, and sets the time
of this entry. A removed field leaves its entry, and no time changes. Fields are kept one by one in annotations, labels
and data; any other field is owned as a whole.
"""

from collections.abc import Mapping
from typing import Any

from shared.devserver.apiserver.resources import Object

_MAPS = frozenset({("metadata", "annotations"), ("metadata", "labels"), ("data",), ("binaryData",)})
"""The maps whose entries have owners of their own."""

_OF_SERVER = frozenset(
    {
        *("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
        *("generation", "resourceVersion", "managedFields", "generateName"),
    }
)

_Path = tuple[str, ...]


def manage(new: Object, old: Object | None, at: str, *, manager: str, subresource: str) -> list[Object]:
    """Return the managedFields of an object after a write.

    Args:
        new: The object after the write.
        old: The object before it; None if it is created.
        at: The time of the write.
        manager: The name of the writer.
        subresource: `status` or empty.
    """
    fields, before = _fields_of(new), _fields_of(old or {})
    written = {path for path in fields if (path[0] == "status") == (subresource == "status")}
    changed = {path for path in written if path not in before or before[path] != fields[path]}
    scope = {"subresource": subresource} if subresource else {}
    identity = {"manager": manager, "operation": "Update", "apiVersion": new["apiVersion"]} | scope
    removed = before.keys() - fields.keys()
    entries, own = [], set[_Path]()
    for entry in (old or {}).get("metadata", {}).get("managedFields", ()):
        if not isinstance(entry.get("fieldsV1"), dict):
            entries.append(entry)
            continue
        owned = _paths(entry["fieldsV1"]) - removed
        if _is_of(entry, identity):
            own |= owned
            if not changed:
                entries.append(_with_fields(entry, owned))
        elif owned := owned - changed:
            entries.append(_with_fields(entry, owned))
    if changed:
        entries.append(_with_fields(identity | {"time": at, "fieldsType": "FieldsV1"}, own | changed))
    return [entry for entry in entries if entry.get("fieldsV1") != {}]


def _is_of(entry: Object, identity: Object) -> bool:
    return all(entry.get(key) == identity.get(key) for key in ("manager", "operation", "apiVersion", "subresource"))


def _fields_of(obj: Mapping[str, Any], place: _Path = ()) -> dict[_Path, Any]:
    """The fields of an object that have an owner, with their values."""
    found: dict[_Path, Any] = {}
    for key, value in obj.items():
        path = (*place, key)
        if (not place and key in ("apiVersion", "kind")) or (place == ("metadata",) and key in _OF_SERVER):
            continue
        if isinstance(value, dict) and (path == ("metadata",) or path in _MAPS):
            found |= _fields_of(value, path)
        else:
            found[path] = value
    return found


def _paths(fields: Mapping[str, Any], place: _Path = ()) -> set[_Path]:
    found = set[_Path]()
    for key, inner in fields.items():
        path = (*place, key.removeprefix("f:"))
        found |= _paths(inner, path) if inner and (path == ("metadata",) or path in _MAPS) else {path}
    return found


def _with_fields(entry: Object, paths: set[_Path]) -> Object:
    root: Object = {}
    for path in sorted(paths):
        place = root
        for key in path:
            place = place.setdefault("." if key == "." else f"f:{key}", {})
    return entry | {"fieldsV1": root}
