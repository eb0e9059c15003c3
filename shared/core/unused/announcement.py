"""The announcement of a deletion: two values on an unused object, written minutes before its DELETE.

The annotation says when the object is deleted at the earliest. The label lets an admission policy find the announced
objects of a namespace, so that a client that creates a Pod with one of them gets a warning.
"""

from datetime import datetime
from typing import Any

from shared.core.objects import (
    ANNOTATION_DOMAIN,
    ANNOUNCED_LABEL,
    format_instant,
    get_annotations,
    get_in,
    parse_instant,
)
from shared.core.unused.unused_mark import UNUSED_SINCE

DELETED_AFTER = "deleted-after"
"""The annotation with the instant."""


def is_announced(obj: Any) -> bool:
    """Return whether an object has the annotation or the label, with any value."""
    labels = get_in(obj, "metadata.labels")
    has_label = isinstance(labels, dict) and ANNOUNCED_LABEL in labels
    return has_label or DELETED_AFTER in get_annotations(obj)


def read_announcement(obj: Any) -> datetime | None:
    """The instant before which an object is not deleted; None if its deletion is not announced."""
    try:
        return parse_instant(get_annotations(obj).get(DELETED_AFTER))
    except ValueError:
        return None


def mark_patch(at: datetime | None) -> dict[str, Any]:
    """The JSON merge patch that sets or removes the mark; it always withdraws the announcement.

    Args:
        at: Since when the object is known to be unused; None to remove the mark.
    """
    value = format_instant(at) if at is not None else None
    return {"metadata": {"annotations": {_full(UNUSED_SINCE): value, _full(DELETED_AFTER): None}, **_labels(None)}}


def announcement_patch(at: datetime | None) -> dict[str, Any]:
    """The JSON merge patch that announces a deletion, or withdraws the announcement.

    Args:
        at: The earliest instant of the deletion; None to withdraw.
    """
    value, label = (None, None) if at is None else (format_instant(at), "true")
    return {"metadata": {"annotations": {_full(DELETED_AFTER): value}, **_labels(label)}}


def _labels(value: str | None) -> dict[str, Any]:
    return {"labels": {ANNOUNCED_LABEL: value}}


def _full(name: str) -> str:
    return f"{ANNOTATION_DOMAIN}/{name}"
