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

`metadata.managedFields` has an entry for each client, whose time is the last write that set a field to another value.
So an entry attests who wrote an annotation, and that it was written no later than at its time. A write that only
removes a field changes no time. It changes the fields of the entries, so a hash of all entries finds it.

These entries cannot be forged by a value alone. A client that may replace the object can also replace the entries: the
usage guard of `shared.installation.usage_guard` rejects this for the entries of our own field managers.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from shared.core.kinds.rule import KindRule
from shared.core.ttl.edits import Edit, hold
from shared.core.values.objects import (
    ANNOTATION_DOMAIN,
    ANNOUNCED_LABEL,
    format_instant,
    get_annotations,
    get_in,
    parse_instant,
)

UNUSED_SINCE = "unused-since"
"""The annotation with the instant of the mark, without its domain."""

UNUSED_HASH = "unused-hash"
"""The annotation with the hash of the writes of other clients, as they were when the object was marked."""

DELETED_AFTER = "deleted-after"
"""The annotation of the announcement, with the earliest instant of the deletion."""

USED_AT = "used-at"
"""The annotation of the record of use: the instant of the first pass that saw the object used."""

MARK_MANAGER = "ttl-after-finished-mark"
"""The field manager of the mark. It writes nothing else: so the time of its entry is the instant of the mark."""

ANNOUNCEMENT_MANAGER = "ttl-after-finished-announcement"
"""The field manager of the announcement: with that of the mark, an announcement would change the time of the mark."""

USE_MANAGER = "ttl-after-finished-use"
"""The field manager of the record of use."""

ATTESTED_SLACK = timedelta(minutes=10)
"""The most time between the end of a pass, which is the instant in an annotation, and the write of the annotation.

A tick writes right after the pass. With a larger difference, another client wrote the value, or the API servers' clocks
differ: the annotation does not count, and is written again. No TTL is shorter by it, since a TTL counts from the write.
"""

_OWN: Mapping[str, frozenset[str]] = {
    "f:annotations": frozenset(
        {".", *(f"f:{ANNOTATION_DOMAIN}/{name}" for name in (UNUSED_SINCE, UNUSED_HASH, DELETED_AFTER, USED_AT))}
    ),
    "f:labels": frozenset({".", f"f:{ANNOUNCED_LABEL}"}),
}
"""What our own writes add to an entry, or take from that of another client. `.` is the map itself."""


class UnknownChangeError(ValueError):
    """It is unknown whether an object was changed; the message names the field and what was expected."""


class UnattestedError(UnknownChangeError):
    """The API server notes no writes to an object, so it can attest none.

    That is so for an object in which no field was set when it was created, also after later updates: only a server-side
    apply begins the notes. See `NewSkipNonAppliedManager` in Kubernetes' `apimachinery/pkg/util/managedfields`.
    """


def find_written_at(obj: Any, manager: str, *names: str) -> datetime | None:
    """The instant of the last write of a field manager; None if another client wrote one of its annotations.

    Args:
        obj: The object.
        manager: The field manager. Only an entry for the whole object, and of no server-side apply, counts.
        names: The annotations that the manager must have written, without their domain.

    Raises:
        UnknownChangeError: `metadata.managedFields` cannot be read.
    """
    keys = {f"f:{ANNOTATION_DOMAIN}/{name}" for name in names}
    own = [_time_of(one) for one in _entries(obj) if _is_update_by(one, manager) and keys <= {*_annotations_of(one)}]
    return max((one for one in own if one is not None), default=None)


def read_attested(obj: Any, name: str, manager: str, *beside: str) -> datetime | None:
    """The instant in one of our annotations, or that of its write if it is later; None if the value does not count.

    It counts only if our field manager wrote it, at about its own instant, and after the creation of the object: a copy
    of an object has the annotations of the other one.

    Args:
        obj: The object.
        name: The annotation, without its domain.
        manager: The field manager that writes it.
        beside: The annotations that the manager must have written too.
    """
    try:
        at = parse_instant(get_annotations(obj).get(name))
        created_at = parse_instant(get_in(obj, "metadata.creationTimestamp"))
        written_at = find_written_at(obj, manager, name, *beside)
    except ValueError:
        return None
    if written_at is None or at < created_at or abs(written_at - at) > ATTESTED_SLACK:
        return None
    return max(at, written_at)


def list_foreign_times(obj: Any) -> list[datetime]:
    """The times of all entries but that of the mark, if they have other fields than our own.

    Raises:
        UnknownChangeError: `metadata.managedFields` cannot be read.
    """
    times = (_time_of(one) for one, _ in _foreign(obj) if not _is_update_by(one, MARK_MANAGER))
    return [one for one in times if one is not None]


def hash_foreign_writes(obj: Any, at: datetime) -> str:
    """Return a hash of the entries of all other clients: their names, their times and their fields.

    Our own fields do not count, whichever client wrote them: so the write of a mark does not change the hash. Other
    fields that a client wrote under the name of our field manager do count.

    Args:
        obj: The object.
        at: The instant in the mark. Each mark has another hash by it: otherwise, if another client had written the same
            hash before, our write would change nothing, and its entry would not attest it.

    Raises:
        UnknownChangeError: `metadata.managedFields` cannot be read.
    """
    try:
        entries = sorted(_text_of(entry, fields) for entry, fields in _foreign(obj))
    except (RecursionError, TypeError, ValueError) as error:
        raise UnknownChangeError(f"metadata.managedFields: {error}") from None
    return hashlib.sha256("\n".join([format_instant(at), *entries]).encode()).hexdigest()[:HASH_DIGITS]


HASH_DIGITS = 32
"""Hexadecimal digits of the hash in the annotation: enough that no two histories of one object share it."""


def has_managed_field(obj: Any, name: str) -> bool:
    """Return whether a client has set a field at the root of an object, with any value.

    Raises:
        UnknownChangeError: `metadata.managedFields` cannot be read.
    """
    return any(f"f:{name}" in _fields_of(entry) for entry in _entries(obj))


def check_readable(obj: Any) -> None:
    """Check that the entries can be read: otherwise it is unknown what our own writes attest.

    Raises:
        UnknownChangeError: `metadata.managedFields` cannot be read.
    """
    for entry in _entries(obj):
        _time_of(entry)
        _fields_of(entry)


def _text_of(entry: Mapping[str, Any], fields: Mapping[str, Any]) -> str:
    """The canonical text of an entry. That of the mark has no time, because each write of a mark changes the time."""
    time = None if _is_update_by(entry, MARK_MANAGER) else _time_of(entry)
    identity = [entry.get(key) for key in ("manager", "operation", "apiVersion", "subresource")]
    return json.dumps([*identity, time and time.isoformat(), fields], sort_keys=True, separators=(",", ":"))


def _foreign(obj: Any) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield each entry that has other fields than our own, with these fields."""
    for entry in _entries(obj):
        if fields := _without_own(_fields_of(entry)):
            yield entry, fields


def _without_own(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = fields.get("f:metadata")
    if not isinstance(metadata, dict):
        return fields
    kept = {key: _without_keys(value, _OWN.get(key, frozenset())) for key, value in metadata.items()}
    kept = {key: value for key, value in kept.items() if value or key not in _OWN}
    others = {key: value for key, value in fields.items() if key != "f:metadata"}
    return {**others, "f:metadata": kept} if kept else others


def _without_keys(value: Any, keys: frozenset[str]) -> Any:
    return {key: one for key, one in value.items() if key not in keys} if isinstance(value, dict) else value


def _entries(obj: Any) -> Iterator[Mapping[str, Any]]:
    entries = get_in(obj, "metadata.managedFields")
    if entries in (None, []):
        raise UnattestedError("metadata.managedFields: expected the writes of each client; the API server notes none")
    if not isinstance(entries, list):
        raise UnknownChangeError("metadata.managedFields: expected a list with the writes of each client")
    for entry in entries:
        if not isinstance(entry, dict):
            raise UnknownChangeError("metadata.managedFields: expected a list of mappings")
        yield entry


def _is_update_by(entry: Mapping[str, Any], manager: str) -> bool:
    of_whole = entry.get("operation") == "Update" and not entry.get("subresource")
    return of_whole and entry.get("manager") == manager


def _annotations_of(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    found = get_in(_fields_of(entry), "f:metadata.f:annotations")
    return found if isinstance(found, dict) else {}


def _time_of(entry: Mapping[str, Any]) -> datetime | None:
    """The time of an entry; None for that of a server-side apply that changed no value, until it changes one."""
    if entry.get("time") is None:
        return None
    try:
        return parse_instant(entry.get("time"))
    except ValueError as error:
        raise UnknownChangeError(f"metadata.managedFields: time: {error}") from None


def _fields_of(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    fields = entry.get("fieldsV1")
    if not isinstance(fields, dict):
        raise UnknownChangeError("metadata.managedFields: fieldsV1: expected a mapping")
    return fields


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
