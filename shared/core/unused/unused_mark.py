"""The mark of an unused object: the annotation with the instant since which it is known to be unused.

The mark is written only if the state changes. It does not count if the object was changed after it, or if it is older
than the object. A change is found in `metadata.managedFields`, so that no data has to be read.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from shared.core.objects import ANNOTATION_DOMAIN, get_annotations, get_in, parse_instant

UNUSED_SINCE = "unused-since"
"""The annotation with the instant."""

OWN_MANAGER = "ttl-after-finished"
"""The field manager of our own writes: a write of the mark is no change."""


class UnknownChangeError(ValueError):
    """It is unknown whether an object was changed; the message names the field and what was expected."""


def is_marked(obj: Any) -> bool:
    """Return whether an object has the annotation, with any value."""
    return UNUSED_SINCE in get_annotations(obj)


def read_unused_mark(obj: Any) -> datetime | None:
    """The instant of the mark; None without a mark, with a malformed one, or with one that is older than the object."""
    try:
        at = parse_instant(get_annotations(obj).get(UNUSED_SINCE))
    except ValueError:
        return None
    try:
        created_at = parse_instant(get_in(obj, "metadata.creationTimestamp"))
    except ValueError:
        return None
    return None if at < created_at else at


def is_changed_since(obj: Any, at: datetime) -> bool:
    """Return whether another client than ours has changed an object since an instant, by whole seconds.

    A change in the same second counts.

    Raises:
        UnknownChangeError: `metadata.managedFields` cannot be read.
    """
    return any(_time_of(entry) >= at.replace(microsecond=0) for entry in _entries(obj) if not _is_own(entry))


def has_managed_field(obj: Any, name: str) -> bool:
    """Return whether a client has set a field at the root of an object, with any value.

    Raises:
        UnknownChangeError: `metadata.managedFields` cannot be read.
    """
    return any(f"f:{name}" in _fields_of(entry) for entry in _entries(obj))


def _entries(obj: Any) -> Iterator[Mapping[str, Any]]:
    entries = get_in(obj, "metadata.managedFields")
    if not isinstance(entries, list) or not entries:
        raise UnknownChangeError("metadata.managedFields: expected a list with the writes of each client")
    for entry in entries:
        if not isinstance(entry, dict):
            raise UnknownChangeError("metadata.managedFields: expected a list of mappings")
        yield entry


def _time_of(entry: Mapping[str, Any]) -> datetime:
    try:
        return parse_instant(entry.get("time"))
    except ValueError as error:
        raise UnknownChangeError(f"metadata.managedFields: time: {error}") from None


def _is_own(entry: Mapping[str, Any]) -> bool:
    """Return whether our client wrote it, or whether it has nothing but the mark."""
    return entry.get("manager") == OWN_MANAGER or _fields_of(entry) == _MARK_ALONE


def _fields_of(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    fields = entry.get("fieldsV1")
    if not isinstance(fields, dict):
        raise UnknownChangeError("metadata.managedFields: fieldsV1: expected a mapping")
    return fields


_MARK_ALONE: Mapping[str, Any] = {"f:metadata": {"f:annotations": {f"f:{ANNOTATION_DOMAIN}/{UNUSED_SINCE}": {}}}}
