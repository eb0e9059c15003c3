"""The metrics about archives."""

from datetime import datetime, timedelta
from functools import partial

from cachetools import TTLCache
from prometheus_client import CollectorRegistry, Counter, Gauge

from shared.adapters.clock import SystemClock
from shared.core.objects import ObjectRef
from shared.messages import ObjectArchived

_REMEMBERED_MAX = 10_000
_REMEMBERED_SECONDS = 3_600.0
"""How long an object that is not archived is remembered; a sweep that finds it again extends the time."""


class ArchiveMetrics:
    """Counts archived objects and failures, and remembers since when the oldest object is not archived."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self._archived = counter("ttl_archived_total", "Objects that an archive has acknowledged.", ["archive", "kind"])
        self._bytes = counter(
            "ttl_archived_bytes_total",
            "Bytes of the documents of archived objects, as compressed; for a webhook, of their JSON. Children, logs "
            "and documents that were stored before do not count.",
            ["archive"],
        )
        self._failures = counter("ttl_archive_failures_total", "Failed attempts to archive an object.", ["archive"])
        self._finished: TTLCache[str, datetime] = TTLCache(_REMEMBERED_MAX, _REMEMBERED_SECONDS)
        Gauge(
            "ttl_archive_oldest_unacknowledged_seconds",
            "The time since the finish of the oldest object that this process found not archived; 0 if there is none.",
            registry=registry,
        ).set_function(self._oldest)

    def archived(self, archived: ObjectArchived, kind: str, *, size: int) -> None:
        """Count an object that an archive has acknowledged."""
        self._archived.labels(archived.archive, kind).inc()
        self._bytes.labels(archived.archive).inc(size)
        self.forget(archived.ref)

    def not_archived(self, ref: ObjectRef, archive: str, finished_at: datetime | None, *, failed: bool) -> None:
        """Remember an object that is not archived, and count a failure."""
        if failed:
            self._failures.labels(archive).inc()
        if finished_at is not None:
            self._finished[ref.uid] = finished_at

    def forget(self, ref: ObjectRef) -> None:
        """Forget an object that is archived or deleted."""
        self._finished.pop(ref.uid, None)

    def _oldest(self) -> float:
        self._finished.expire()
        now, oldest = SystemClock().now(), min(list(self._finished.values()), default=None)
        return 0.0 if oldest is None else max((now - oldest) / timedelta(seconds=1), 0.0)
