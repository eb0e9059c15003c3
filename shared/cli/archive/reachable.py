"""The archives of a policy, as far as a command can reach them with the credentials of its environment."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from shared.bootstrap.archives import OpenedArchives
from shared.cli.deleters.in_force import InForce, PolicyInForce
from shared.core.policy.archives import ArchiveDestination
from shared.errors import PermanentError
from shared.ports import Archive


@dataclass(frozen=True, slots=True)
class ReachableArchives:
    """Archives of which folders can be read only if the policy is a file of this machine: implements `Archives`.

    Attributes:
        opened: Opens the archives.
        is_local: Whether the policy is a file of this machine.
    """

    opened: OpenedArchives
    is_local: bool

    @property
    def cluster(self) -> str:
        """The name of the cluster in the keys."""
        return self.opened.cluster

    async def open(self, name: str, destination: ArchiveDestination) -> Archive:
        """See `shared.ports.Archives`."""
        check_reachable(name, destination, is_local=self.is_local)
        return await self.opened.open(name, destination)


def archives_of(force: InForce, *policies: PolicyInForce) -> ReachableArchives | None:
    """Return the archives of the first policy that has any; None if none has."""
    for chosen in policies:
        if chosen.policy.archives:
            return ReachableArchives(OpenedArchives(force.cluster_name), chosen.is_local)
    return None


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
