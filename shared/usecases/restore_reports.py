"""Why a restore creates nothing, or stopped: the texts of its errors."""

from collections.abc import Sequence
from typing import Any

from shared.core.objects import ObjectRef, get_text, ref_of
from shared.errors import ConflictError


def describe_existing(ref: ObjectRef, existing: dict[str, Any]) -> str:
    """Describe the object that exists under the name of an archived one."""
    uid = get_text(existing, "metadata.uid")
    same = "the archived object itself" if uid == ref.uid else f"another object, uid {uid}"
    ends = ", which is being deleted" if get_text(existing, "metadata.deletionTimestamp") else ""
    return (
        f"{ref} exists ({same}{ends}), and a restore never overwrites; `archive diff` shows the differences, and "
        "`archive get` prints the archived object"
    )


def describe_conflict(obj: dict[str, Any], error: ConflictError) -> str:
    """Describe that another client has created the object meanwhile."""
    return f"{ref_of(obj)} was created by another client, and a restore never overwrites: {error}"


def describe_restored(objects: Sequence[dict[str, Any]]) -> str:
    """Name the objects that were restored before an error, as the end of its text; empty if there are none."""
    names = ", ".join(str(ref_of(obj)) for obj in objects)
    return f"; restored before that: {names}" if names else ""
