"""Read from the annotations of Tekton Results whether it has stored an object, and since when.

The watcher of Tekton Results marks what it has stored:

- `results.tekton.dev/stored: "true"`, once it has stored a finished run. If the annotation was written before the run
  completed, it does not count: it is a copy from an earlier run.
- If its logs API is enabled, it never writes `stored`. Then `results.tekton.dev/record` counts, but only after
  completionTime + `STORE_DEADLINE`: until then the watcher may still be storing the last state.

Neither annotation has a time. The watcher writes them by server-side apply, so the time of the entry in managedFields
that owns the annotation is that of its last write: never before the acknowledgement. Without such an entry the newest
write of the object counts, which is not before it either.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from shared.core.objects import get_in, get_text, list_mappings, parse_instant

STORE_DEADLINE = timedelta(minutes=10)
"""The default of the watcher's `store_deadline`."""

_STORED = "results.tekton.dev/stored"
_RECORD = "results.tekton.dev/record"


def find_stored_at(obj: Any) -> datetime | None:
    """When Tekton Results had stored an object; None if it has not, or if that is unknown. Total.

    The instant may lie in the future: the object counts as stored from then on.
    """
    annotations = get_in(obj, "metadata.annotations")
    if not isinstance(annotations, dict):
        return None
    completed_at = _instant(get_text(obj, "status.completionTime"))
    if _STORED in annotations:
        return _marked_at(obj, completed_at) if annotations[_STORED] == "true" else None
    record = annotations.get(_RECORD)
    if not isinstance(record, str) or not record or completed_at is None:
        return None
    written_at = _written_at(obj, _RECORD)
    try:
        return max(written_at, completed_at + STORE_DEADLINE) if written_at else None
    except OverflowError:
        return None


def _marked_at(obj: Any, completed_at: datetime | None) -> datetime | None:
    """When `stored` was written; None if that was before the completion, or if one of both is unknown."""
    completed_at = completed_at or _condition_at(obj)
    written_at = _written_at(obj, _STORED)
    return written_at if written_at and completed_at and written_at >= completed_at else None


def _condition_at(obj: Any) -> datetime | None:
    """When the condition of the completion changed: the controller of a CustomRun may set no completionTime."""
    done = (one for one in list_mappings(obj, "status.conditions") if one.get("type") == "Succeeded")
    return next((_instant(one.get("lastTransitionTime")) for one in done), None)


def _written_at(obj: Any, annotation: str) -> datetime | None:
    """The last write of the client that owns an annotation, or else of any client."""
    field = f"f:{annotation}"
    owned, written = [], list(_writes(obj))
    for fields, at in written:
        names = get_in(fields, "f:metadata")
        annotated = names.get("f:annotations") if isinstance(names, dict) else None
        if isinstance(annotated, dict) and field in annotated:
            owned.append(at)
    return max(owned or [at for _, at in written], default=None)


def _writes(obj: Any) -> Iterator[tuple[Any, datetime]]:
    for entry in list_mappings(obj, "metadata.managedFields"):
        at = _instant(entry.get("time"))
        if at is not None:
            yield entry.get("fieldsV1"), at


def _instant(value: Any) -> datetime | None:
    try:
        return parse_instant(value)
    except ValueError:
        return None
