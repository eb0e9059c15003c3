"""What is written on a Secret or a ConfigMap: a record of use, a mark as unused, and the announcement of a deletion.

An object that nothing ever referred to is not unused: a program may find it by its name, a label, or a text in data. So
only an object that was seen used is deleted when it is used no more. The record of use is written once, with the first
complete pass that finds a reference. It counts if the API server attests it, as it does a mark.

The mark is the annotation with the instant since which an object is known to be unused. It is written only if the state
changes. Any client that may patch the object can write such an annotation. So a mark counts only if
`metadata.managedFields` attests that our field manager wrote it, and its TTL counts from the instant of that write. A
second annotation has a hash of the writes of all other clients. If it differs, the object was changed.

The announcement is two values, written minutes before the DELETE. The annotation says when the object is deleted at the
earliest. The label lets an admission policy find the announced objects of a namespace, so that a client that creates a
Pod with one of them gets a warning.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from shared.core.kinds.rule import KindRule
from shared.core.ttl.edits import Edit, hold
from shared.core.usage.field_writes import (
    ANNOUNCEMENT_MANAGER,
    DELETED_AFTER,
    MARK_MANAGER,
    UNUSED_HASH,
    UNUSED_SINCE,
    USE_MANAGER,
    USED_AT,
    find_written_at,
    hash_foreign_writes,
    list_foreign_times,
    read_attested,
)
from shared.core.values.objects import (
    ANNOTATION_DOMAIN,
    ANNOUNCED_LABEL,
    format_instant,
    get_annotations,
    get_in,
    parse_instant,
)

ANNOTATIONS_BYTES_MAX = 256 * 1024
"""Maximum size of the keys and values of all annotations of an object, in bytes. The API server refuses more.

Source: TotalAnnotationSizeLimitB in k8s.io/apimachinery/pkg/api/validation/objectmeta.go.
"""


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


def find_excess_bytes(obj: Any, patch: Mapping[str, Any]) -> int:
    """Return by how many bytes the annotations with a merge patch would exceed the limit; 0 if they would not. Total.

    Args:
        obj: The object.
        patch: A JSON merge patch; null removes an annotation.
    """
    found, changes = get_in(obj, "metadata.annotations"), patch["metadata"]["annotations"]
    values = {**(found if isinstance(found, dict) else {}), **changes}
    size = sum(len(str(part).encode()) for entry in values.items() if entry[1] is not None for part in entry)
    return max(0, size - ANNOTATIONS_BYTES_MAX)


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


def hold_unused(obj: Any, rule: KindRule, reason: str) -> Edit:
    """Keep a Secret or a ConfigMap even if nothing refers to it, and remove its mark.

    Without the mark, its TTL starts again after the release, even if the release comes before the next pass.

    Args:
        obj: Its metadata.
        rule: `SECRETS` or `CONFIG_MAPS` of `shared.core.policy.usage`.
        reason: Why the object is kept, for people.

    Raises:
        ValueError: The reason is empty, or the object is being deleted.
    """
    # A hold of a kind that never finishes is rejected, because such objects are not deleted. These are, if unused.
    edit = hold(obj, rule.model_copy(update={"never_finishes": None}), reason)
    if not is_marked(obj):
        return edit
    removed = "its mark as unused is removed: after a release, its TTL starts again"
    return replace(
        edit, annotations={**edit.annotations, UNUSED_SINCE: None, UNUSED_HASH: None}, message=(*edit.message, removed)
    )
