"""What is stored about one version of an object, under which key, and when an archive acknowledged it.

The key comes from the object alone. The grace counts from the acknowledgement, so no clock may shorten it. A document
counts only if it is the one that its key names, and the only one of its version.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from shared.core.archive.document import Document, canonical, digest_of, without_secret_data
from shared.core.archive.identity import ArchiveCluster, parse_cluster_part
from shared.core.archive.layout import ArchiveKey
from shared.core.decision.finish import finish_of
from shared.core.kinds.rule import KindRule
from shared.core.values.jsontext import JsonLimitError
from shared.core.values.objects import format_instant, get_text, parse_instant, ref_of


@dataclass(frozen=True, slots=True)
class ArchiveCopy:
    """One version of an object as an archive stores it.

    Attributes:
        key: The key.
        text: The canonical JSON.
        cluster_id: The id of the cluster.
        is_redacted: Whether the data of a Secret was left out.
        finished_at: When the object finished; None if that is unknown.
    """

    key: ArchiveKey
    text: bytes
    cluster_id: str
    is_redacted: bool = False
    finished_at: datetime | None = None


def copy_of(
    obj: dict[str, Any], rule: KindRule | None, *, cluster: ArchiveCluster, secrets: bool = False
) -> ArchiveCopy:
    """What is stored about an object that was read.

    Args:
        obj: The object as the API server sent it.
        rule: The rule of its kind; None if there is none, so that its finish is unknown.
        cluster: The cluster.
        secrets: Whether the data of Secrets is stored.

    Raises:
        ValueError: The object has no name, uid, resource version or creation time, or a value that JSON cannot express.
    """
    ref, version = ref_of(obj), get_text(obj, "metadata.resourceVersion")
    for field, value in (("name", ref.name), ("uid", ref.uid), ("resourceVersion", version)):
        if not value:
            raise ValueError(f"metadata.{field}: expected text that is not empty")
    kept = obj if secrets else without_secret_data(obj)
    try:
        text = canonical(kept)
    except RecursionError:
        raise ValueError("expected fewer levels of nested lists and mappings") from None
    finish = finish_of(obj, rule) if rule is not None else None
    finished_at = finish.at if finish is not None and finish.finished else None
    at = finish.at if finish is not None else None
    if at is None:
        at = parse_instant(get_text(obj, "metadata.creationTimestamp"))
    key = ArchiveKey(
        cluster=cluster.part,
        namespace=ref.namespace,
        api_version=ref.api_version,
        kind=ref.kind,
        day=at.date(),
        name=ref.name,
        uid=ref.uid,
        resource_version=version,
        digest=digest_of(text),
    )
    return ArchiveCopy(key, text, cluster.id, is_redacted=kept is not obj, finished_at=finished_at)


CLOCK_DIFFERENCE_MAX = timedelta(minutes=5)
"""How far the clock of an archive may differ from the clocks of the API server and of this process."""


def find_acknowledged_at(
    stored_at: datetime,
    *,
    now: datetime,
    archived_at: datetime | None = None,
    finished_at: datetime | None = None,
) -> datetime:
    """Return the latest of the known instants: a clock that is behind, or was set back, does not end a grace early.

    A clock that is far ahead would keep the object silently, for as long as it is ahead. So its instant does not count.

    Args:
        stored_at: When the archive accepted the document, by the clock of the archive.
        now: The present, by the clock of this process.
        archived_at: When the archiver wrote the document, by its record; None for a foreign archiver.
        finished_at: When the object finished, for a foreign archiver; None if that is unknown.

    Raises:
        ValueError: The instant of the archive or of the record is more than `CLOCK_DIFFERENCE_MAX` ahead.
    """
    for what, at in (("the time in the archive", stored_at), ("archivedAt", archived_at)):
        if at is not None and at - now > CLOCK_DIFFERENCE_MAX:
            minutes = CLOCK_DIFFERENCE_MAX // timedelta(minutes=1)
            raise ValueError(
                f"{what}: expected an instant until now ({format_instant(now)}) or up to {minutes} minutes later, "
                f"got {format_instant(at)}; correct the clock of the archive or that of this process: then it "
                "counts, or the object is archived again"
            )
    return max(at for at in (stored_at, archived_at, finished_at) if at is not None)


_SHOWN_MAX = 5  # documents of one version, in a message
_HARMLESS = (
    "the object was read in another API version, with upgraded defaults, or with another `secrets` of the archive"
)


def describe_rivals(key: ArchiveKey, locations: Sequence[str], *, are_signed: bool = False) -> str:
    """Say that the archive has several undamaged documents of one version: only one of them can be the object.

    Args:
        key: The key of one of them.
        locations: Where all of them are.
        are_signed: Whether all of them have a valid signature.
    """
    cause = "" if are_signed else "another writer may have stored one of them, or "
    more = f" and {len(locations) - _SHOWN_MAX} more" if len(locations) > _SHOWN_MAX else ""
    return (
        f"{len(locations)} documents of {key.kind} {key.namespace}{'/' if key.namespace else ''}{key.name}, uid "
        f"{key.uid}, resource version {key.resource_version} differ: {', '.join(locations[:_SHOWN_MAX])}{more}; "
        f"{cause}{_HARMLESS}; `archive get` with --digest prints each: the digest is the part of its name before "
        ".json.zst"
    )


def find_damage(key: ArchiveKey, document: Document) -> str:
    """Return what is wrong with a stored document; empty if nothing is.

    A document that was copied under the key of another object has a right digest only if the key has it as well, so the
    identity of the object is compared too.
    """
    if document.digest != key.digest:
        return f"its digest is {document.digest}, expected {key.digest}"
    try:
        obj: Any = document.obj
    except JsonLimitError as error:
        return f"its object is not read: {error}"
    except ValueError:
        return "its object is not JSON"
    if not isinstance(obj, dict):
        return "its object is not a JSON object"
    cluster_id = document.record.cluster_id
    if cluster_id and not parse_cluster_part(key.cluster).is_of(cluster_id):
        return f"its record names the cluster with id {cluster_id}, expected that of {key.cluster}"
    ref = ref_of(obj)
    found = {
        "apiVersion": (ref.api_version, key.api_version),
        "kind": (ref.kind, key.kind),
        "namespace": (ref.namespace, key.namespace),
        "name": (ref.name, key.name),
        "uid": (ref.uid, key.uid),
        "resourceVersion": (get_text(obj, "metadata.resourceVersion"), key.resource_version),
    }
    wrong = [f"{field} {have!r}, expected {want!r}" for field, (have, want) in found.items() if have != want]
    return f"its object has {' and '.join(wrong)}" if wrong else ""
