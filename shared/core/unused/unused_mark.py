"""The mark of an unused object: the annotation with the instant since which it is known to be unused.

The mark is written only if the state changes. Any client that may patch the object can write such an annotation. So
a mark counts only if `metadata.managedFields` attests that our field manager wrote it, and its TTL counts from the
instant of that write. A second annotation has a hash of the writes of all other clients. If it differs, the object was
changed.
"""

from datetime import datetime
from typing import Any

from shared.core.objects import (
    ANNOTATION_DOMAIN,
    ANNOUNCED_LABEL,
    format_instant,
    get_annotations,
    parse_instant,
)
from shared.core.unused.field_writes import (
    DELETED_AFTER,
    MARK_MANAGER,
    UNUSED_HASH,
    UNUSED_SINCE,
    find_written_at,
    hash_foreign_writes,
    list_foreign_times,
    read_attested,
)


def is_marked(obj: Any) -> bool:
    """Return whether an object has one of the annotations of a mark, with any value."""
    return not {UNUSED_SINCE, UNUSED_HASH}.isdisjoint(get_annotations(obj))


def read_unused_mark(obj: Any) -> datetime | None:
    """The instant from which the TTL counts; None without a mark, or with one that does not count.

    It is the instant at which the API server stored the mark, or that of the mark if it is later.
    """
    return read_attested(obj, UNUSED_SINCE, MARK_MANAGER, UNUSED_HASH)


def is_changed_since_mark(obj: Any) -> bool:
    """Return whether another client than ours has changed an object since it was marked.

    A change in the second of the mark may leave no other trace, so a write in this second counts as a change.

    Args:
        obj: An object with a mark that counts.

    Raises:
        UnknownChangeError: `metadata.managedFields` cannot be read.
    """
    annotations = get_annotations(obj)
    if annotations.get(UNUSED_HASH) != hash_foreign_writes(obj, parse_instant(annotations.get(UNUSED_SINCE))):
        return True
    written_at = find_written_at(obj, MARK_MANAGER, UNUSED_SINCE, UNUSED_HASH)
    return written_at is not None and _second(written_at) in map(_second, list_foreign_times(obj))


def mark_patch(at: datetime, hash_of_writes: str) -> dict[str, Any]:
    """The JSON merge patch that marks an object, and withdraws the announcement of its deletion.

    Args:
        at: Since when the object is known to be unused.
        hash_of_writes: `hash_foreign_writes` of the version that is patched, at this instant.
    """
    return _patch(format_instant(at), hash_of_writes)


def unmark_patch() -> dict[str, Any]:
    """The JSON merge patch that removes the mark, and withdraws the announcement."""
    return _patch(None, None)


def _patch(at: str | None, hash_of_writes: str | None) -> dict[str, Any]:
    values = {UNUSED_SINCE: at, UNUSED_HASH: hash_of_writes, DELETED_AFTER: None}
    annotations = {f"{ANNOTATION_DOMAIN}/{name}": value for name, value in values.items()}
    return {"metadata": {"annotations": annotations, "labels": {ANNOUNCED_LABEL: None}}}


def _second(at: datetime) -> datetime:
    return at.replace(microsecond=0)
