"""The announcement of a deletion: two values on an unused object, written minutes before its DELETE.

The annotation says when the object is deleted at the earliest. The label lets an admission policy find the announced
objects of a namespace, so that a client that creates a Pod with one of them gets a warning.
"""

from dataclasses import dataclass
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
from shared.core.unused.field_writes import ANNOUNCEMENT_MANAGER, DELETED_AFTER, find_written_at


@dataclass(frozen=True, slots=True)
class Announcement:
    """The announcement of a deletion.

    Attributes:
        at: The instant before which the object is not deleted.
        written_at: When the API server stored the announcement, in whole seconds.
    """

    at: datetime
    written_at: datetime


def is_announced(obj: Any) -> bool:
    """Return whether an object has the annotation or the label, with any value, whichever client wrote it."""
    labels = get_in(obj, "metadata.labels")
    has_label = isinstance(labels, dict) and ANNOUNCED_LABEL in labels
    return has_label or DELETED_AFTER in get_annotations(obj)


def read_announcement(obj: Any) -> Announcement | None:
    """The announcement of an object; None if there is none, or if another client than ours wrote it."""
    try:
        at = parse_instant(get_annotations(obj).get(DELETED_AFTER))
        written_at = find_written_at(obj, ANNOUNCEMENT_MANAGER, DELETED_AFTER)
    except ValueError:
        return None
    return None if written_at is None else Announcement(at, written_at)


def announcement_patch(at: datetime | None) -> dict[str, Any]:
    """The JSON merge patch that announces a deletion, or withdraws the announcement.

    Args:
        at: The earliest instant of the deletion; None to withdraw.
    """
    value, label = (None, None) if at is None else (format_instant(at), "true")
    annotations = {f"{ANNOTATION_DOMAIN}/{DELETED_AFTER}": value}
    return {"metadata": {"annotations": annotations, "labels": {ANNOUNCED_LABEL: label}}}
