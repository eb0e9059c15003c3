"""The record of use: the annotation by which an object is known to have been used.

An object that nothing ever referred to is not unused: a program may find it by its name, a label, or a text in data. So
only an object that was seen used is deleted when it is used no more. The record is written once, with the first
complete pass that finds a reference. It counts if the API server attests it, as it does a mark.
"""

from datetime import datetime
from typing import Any

from shared.core.objects import ANNOTATION_DOMAIN, format_instant
from shared.core.unused.field_writes import USE_MANAGER, USED_AT, read_attested
from shared.core.unused.unused_mark import unmark_patch


def read_used_at(obj: Any) -> datetime | None:
    """When a pass first saw an object used; None without a record, or with one that does not count."""
    return read_attested(obj, USED_AT, USE_MANAGER)


def use_patch(at: datetime, *, is_marked: bool) -> dict[str, Any]:
    """The JSON merge patch that records the use of an object.

    Args:
        at: The end of the pass that saw it used.
        is_marked: Whether the object has a mark as unused, which the patch then removes.
    """
    record = {f"{ANNOTATION_DOMAIN}/{USED_AT}": format_instant(at)}
    if not is_marked:
        return {"metadata": {"annotations": record}}
    patch = unmark_patch()
    patch["metadata"]["annotations"] |= record
    return patch
