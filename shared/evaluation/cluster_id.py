"""Read the id of the cluster, which tells apart clusters that store in one archive under one name."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from shared.core.archive.cluster import HOME_OF_ID, ArchiveCluster, check_cluster_id
from shared.errors import PermanentError, TryLaterError
from shared.evaluation.namespaces import Namespaces
from shared.ports import Cluster


@dataclass
class ClusterIdentity:
    """The cluster of this process, as its archives name it.

    Attributes:
        name: Its name in the settings.
        cluster: Returns the cluster.
    """

    name: str
    cluster: Callable[[], Awaitable[Cluster]]
    _namespaces: Namespaces | None = field(default=None, init=False)
    _found: ArchiveCluster | None = field(default=None, init=False)

    @classmethod
    def of(cls, name: str, cluster: Cluster) -> "ClusterIdentity":
        """Return the identity of a cluster that is connected."""

        async def connected() -> Cluster:
            return cluster

        return cls(name, connected)

    async def find(self) -> ArchiveCluster:
        """Return the cluster; its id is read once. While it cannot be read, a refusal counts for a few seconds.

        Raises:
            TryLaterError: The API server is busy or away.
            PermanentError: The right to read it is missing, or it is no id.
        """
        if self._found is None:
            self._namespaces = self._namespaces or Namespaces(await self.cluster())
            try:
                namespace = await self._namespaces.get(HOME_OF_ID)
                self._found = ArchiveCluster(self.name, check_cluster_id(namespace.ref.uid))
            except TryLaterError as error:
                raise TryLaterError(f"the id of this cluster cannot be read: {error}") from None
            except (PermanentError, ValueError) as error:
                grant = f"grant get on namespace {HOME_OF_ID}"
                raise PermanentError(f"the id of this cluster cannot be read: {error}; {grant}") from None
        return self._found
