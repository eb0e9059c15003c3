"""Read the id of the cluster, which tells apart clusters that store in one archive under one name."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from shared.core.archive.identity import HOME_OF_ID, ArchiveCluster, check_cluster_id
from shared.errors import PermanentError, TryLaterError
from shared.evaluation.namespaces import Namespaces
from shared.ports import Cluster

ID_AGE_SECONDS_MAX = 60.0
"""How old the id may be: the API server behind an address can become that of another cluster."""

ID_SECONDS_MAX = 5.0
"""How long a read of the id may take. It is not read again for this time after one that took longer."""


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
    _read_at: float = field(default=0.0, init=False)
    _hung_at: float | None = field(default=None, init=False)

    @classmethod
    def of(cls, name: str, cluster: Cluster) -> "ClusterIdentity":
        """Return the identity of a cluster that is connected."""

        async def connected() -> Cluster:
            return cluster

        return cls(name, connected)

    async def find(self) -> ArchiveCluster:
        """Return the cluster; its id was read at most `ID_AGE_SECONDS_MAX` ago. A refusal counts for a few seconds.

        Raises:
            TryLaterError: The API server is busy or away, or does not answer.
            PermanentError: The right to read it is missing, or it is no id.
        """
        now = asyncio.get_running_loop().time()
        if self._found is not None and now - self._read_at < ID_AGE_SECONDS_MAX:
            return self._found
        self._found = None  # it may be wrong by now
        hung = f"the API server does not answer GET namespace {HOME_OF_ID} within {ID_SECONDS_MAX:g} s"
        problem = "the id of this cluster cannot be read"
        if self._hung_at is not None and now - self._hung_at < ID_SECONDS_MAX:
            raise TryLaterError(f"{problem}: {hung}")
        try:
            async with asyncio.timeout(ID_SECONDS_MAX):
                self._namespaces = self._namespaces or Namespaces(await self.cluster())
                namespace = await self._namespaces.get(HOME_OF_ID)
            found = ArchiveCluster(self.name, check_cluster_id(namespace.ref.uid))
        except TimeoutError:
            self._hung_at = asyncio.get_running_loop().time()
            raise TryLaterError(f"{problem}: {hung}") from None
        except TryLaterError as error:
            raise TryLaterError(f"{problem}: the API server: GET namespace {HOME_OF_ID}: {error}") from None
        except (PermanentError, ValueError) as error:
            grant = f"grant get on namespace {HOME_OF_ID}"
            raise PermanentError(f"{problem}: {error}; {grant}") from None
        self._found, self._read_at, self._hung_at = found, now, None
        return found
