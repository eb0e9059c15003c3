"""Open the archives of the policy, each when it is first needed."""

from dataclasses import dataclass, field

from shared.core.policy.archives import ArchiveDestination
from shared.errors import PermanentError
from shared.ports import Archive


@dataclass
class OpenedArchives:
    """The archives of one process.

    Attributes:
        cluster: The name of the cluster in the keys.
    """

    cluster: str
    _opened: dict[str, tuple[ArchiveDestination, Archive]] = field(default_factory=dict)

    async def open(self, name: str, destination: ArchiveDestination) -> Archive:
        """See `shared.ports.Archives`. Nothing is awaited, so tasks at the same time share one archive."""
        known = self._opened.get(name)
        if known is not None and known[0] == destination:
            return known[1]
        archive = _open(name, destination, self.cluster)
        self._opened[name] = destination, archive
        return archive


def _open(name: str, destination: ArchiveDestination, cluster: str) -> Archive:
    if destination.webhook is not None:
        from shared.adapters.archive.webhook import WebhookArchive  # noqa: PLC0415 - loads an HTTP client

        return WebhookArchive(name, destination.webhook, cluster)
    if destination.url is None:
        raise PermanentError(f"archive {name}: another archiver stores its objects")
    from shared.adapters.archive.open_archive import open_archive  # noqa: PLC0415 - loads the clients of the stores

    encryption = destination.encryption.model_dump(by_alias=True, exclude_none=True) if destination.encryption else None
    return open_archive(name, destination.url, encryption)
