"""Why a restore creates nothing, or stopped: the texts of its errors."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from shared.core.archive.field_path import find_named
from shared.core.objects import ObjectRef, get_text, ref_of
from shared.errors import ConflictError, PermanentError

_MISSING_RIGHT = "cannot create resource"
"""In the answer of the API server if the account may not create objects of the kind."""


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


def describe_refusal(obj: dict[str, Any], error: PermanentError) -> str:
    """Describe why the API server refuses an object, and how to restore it without the fields that it names."""
    text = f"{ref_of(obj)} cannot be restored: {error}"
    named = [] if _MISSING_RIGHT in str(error) else find_named(str(error), obj)
    if not named:
        return text
    flags = " ".join(shlex.join(("--leave-out", one)) for one in named)
    return f"{text}; to restore it without {'that field' if len(named) == 1 else 'those fields'}, set {flags}"


def describe_start(obj: dict[str, Any], why: str) -> str:
    """Describe that an object would run although it is created suspended."""
    return f"{ref_of(obj)} would run again: {why}; to let it run again, set --yes-run-again instead of --suspended"


def describe_change(obj: dict[str, Any], patch: Mapping[str, Any]) -> str:
    """Describe that the fields by which an object is created suspended are stored with other values.

    For example, a Pod with the scheduling gate of another controller beside that of the restore: it does not start, but
    the command that removes the gate of the restore would remove both.
    """
    sent = json.dumps(patch, separators=(",", ":"))
    why = f"the API server, or an admission webhook, changes the fields that suspend it, {sent}"
    instead = "to let it run again, set --yes-run-again instead of --suspended"
    return f"{ref_of(obj)} cannot be restored suspended: {why}, so it is unknown what would let it run; {instead}"


def describe_restored(objects: Sequence[dict[str, Any]]) -> str:
    """Name the objects that were restored before an error, as the end of its text; empty if there are none."""
    names = ", ".join(str(ref_of(obj)) for obj in objects)
    return f"; restored before that: {names}" if names else ""
