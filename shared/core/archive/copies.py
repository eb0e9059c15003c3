"""What is stored about one version of an object, under which key, and when an archive acknowledged it.

The key comes from the object alone. The grace counts from the acknowledgement, so no clock may shorten it.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from shared.core.archive.document import canonical, digest_of, without_secret_data
from shared.core.archive.identity import ArchiveCluster
from shared.core.archive.layout import ArchiveKey
from shared.core.decision.finish import finish_of
from shared.core.kinds.rule import KindRule
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
