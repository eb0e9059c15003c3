"""Open the archives of the policy, each when it is first needed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from shared.adapters.clock import SystemClock
from shared.core.archive.identity import ArchiveCluster
from shared.core.policy.archives import ArchiveDestination
from shared.errors import PermanentError
from shared.evaluation.archive_identity import ClusterIdentity
from shared.ports import Archive
from shared.usecases.archives.byte_gate import READ_BYTES_MAX, ByteGate


@dataclass
class OpenedArchives:
    """The archives of one process.

    Attributes:
        identity: The cluster of the process.
        now: The clock of this process.
        reads: Bounds the bytes of documents in memory, of all archives together.
    """

    identity: ClusterIdentity
    now: Callable[[], datetime] = SystemClock().now
    reads: ByteGate = field(default_factory=lambda: ByteGate(READ_BYTES_MAX))
    _opened: dict[str, tuple[ArchiveDestination, Archive]] = field(default_factory=dict)

    async def find_cluster(self) -> ArchiveCluster:
        """See `shared.ports.Archives`."""
        return await self.identity.find()

    async def open(self, name: str, destination: ArchiveDestination) -> Archive:
        """See `shared.ports.Archives`. Nothing is awaited, so tasks at the same time share one archive."""
        known = self._opened.get(name)
        if known is not None and known[0] == destination:
            return known[1]
        archive = _open(name, destination, self.reads)
        self._opened[name] = destination, archive
        return archive


def _open(name: str, destination: ArchiveDestination, reads: ByteGate) -> Archive:
    if destination.webhook is not None:
        from shared.adapters.archive.webhook import WebhookArchive  # noqa: PLC0415 - loads an HTTP client

        return WebhookArchive(name, destination.webhook)
    if destination.url is None:
        raise PermanentError(f"archive {name}: another archiver stores its objects")
    from shared.adapters.archive.open_archive import open_archive  # noqa: PLC0415 - loads the clients of the stores

    encryption = destination.encryption.model_dump(by_alias=True, exclude_none=True) if destination.encryption else None
    return open_archive(name, destination.url, encryption, reads=reads)
