"""The archives of a policy, as far as a command can reach them with the credentials of its environment."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlsplit

from shared.adapters.clock import SystemClock
from shared.bootstrap.archives import OpenedArchives
from shared.cli.deleters.in_force import InForce, PolicyInForce
from shared.core.archive.identity import ArchiveCluster
from shared.core.policy.archives import ArchiveDestination
from shared.errors import PermanentError
from shared.evaluation.archive_identity import IdentifiedArchives
from shared.ports import Archive, Archives


@dataclass(frozen=True, slots=True)
class ReachableArchives:
    """Archives of which folders can be read only if the policy is a file of this machine: implements `Archives`.

    Attributes:
        opened: Opens the archives.
        is_local: Whether the policy is a file of this machine.
        at_end: Closes their connections.
    """

    opened: OpenedArchives
    is_local: bool
    at_end: AsyncExitStack
    _to_close: dict[int, Archive] = field(default_factory=dict)

    def now(self) -> datetime:
        """See `shared.ports.Archives`."""
        return self.opened.now()

    async def find_cluster(self) -> ArchiveCluster:
        """See `shared.ports.Archives`."""
        return await self.opened.find_cluster()

    async def open(self, name: str, destination: ArchiveDestination) -> Archive:
        """See `shared.ports.Archives`."""
        check_reachable(name, destination, is_local=self.is_local)
        archive = await self.opened.open(name, destination)
        if id(archive) not in self._to_close and (close := getattr(archive, "close", None)):  # of a webhook
            self._to_close[id(archive)] = archive
            self.at_end.push_async_callback(close)
        return archive


@asynccontextmanager
async def opened_archives(force: InForce, *policies: PolicyInForce) -> AsyncIterator[Archives | None]:
    """Open the archives of the first policy that has any, and close them at the end of the block; None if none has."""
    async with AsyncExitStack() as at_end:
        chosen = next((one for one in policies if one.policy.archives), None)
        if chosen is None:
            yield None
            return
        reachable = ReachableArchives(OpenedArchives(force.identity), chosen.is_local, at_end)
        yield IdentifiedArchives(reachable, force.archive_ids, SystemClock().now)


def check_reachable(name: str, destination: ArchiveDestination, *, is_local: bool) -> None:
    """Check that a folder is one of this machine.

    Raises:
        PermanentError: It is a folder of the Pods of an installation.
    """
    if destination.url is not None and urlsplit(destination.url).scheme == "file" and not is_local:
        raise PermanentError(
            f"archive {name}: {destination.url} is a folder of the Pods of the installation, which this command cannot"
            " read; run it in such a Pod, or set --policy FILE if this machine has that folder"
        )
