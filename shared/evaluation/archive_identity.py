"""Check the identity of an archive at each use: a destination that is another archive is an outage of the archive.

Before a document is stored, and again when it is read back before a deletion, the marker of the destination must have
the id that the installation remembers. Only the first put into an empty destination writes a marker.

The id of the cluster tells apart clusters that store in one archive under one name.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol, cast

from shared.core.archive.document import Document
from shared.core.archive.identity import (
    HOME_OF_ID,
    ArchiveCluster,
    KnownArchive,
    Marker,
    check_cluster_id,
    describe_mismatch,
)
from shared.core.archive.layout import ArchiveKey
from shared.core.policy.archives import ArchiveDestination
from shared.errors import OtherArchiveError, PermanentError, TryLaterError, TtlError
from shared.evaluation.namespaces_and_owners import Namespaces
from shared.ports import Archive, ArchiveIds, Archives, Cluster, MarkedArchive, Stored, loop_now
from shared.ports.archive import StoredFile

MakeMarker = Callable[[], Awaitable[Marker]]
"""Makes a marker with a new id."""


class _Marked(Archive, MarkedArchive, Protocol):
    pass


def new_id() -> str:
    """Return an id that no other archive has."""
    return str(uuid.uuid4())


class IdentifiedArchive:
    """An archive that is used only while its marker is the expected one.

    Args:
        archive: The archive.
        ids: The ids that are expected.
        new_marker: Makes a marker with a new id; None if nothing is stored.
    """

    def __init__(self, archive: Archive, ids: ArchiveIds, new_marker: MakeMarker | None = None) -> None:
        self._archive, self._ids, self._new_marker = cast("_Marked", archive), ids, new_marker
        self._read_next: asyncio.Task[Marker | TtlError | None] | None = None
        self._reading = asyncio.Lock()

    @property
    def name(self) -> str:
        """Its name in the policy."""
        return self._archive.name

    async def put(self, key: ArchiveKey, document: Document, *, replaces: bool = False) -> Stored:
        """Store a document that names the archive; see the port."""
        archive_id = await self.identify(creates=True)
        record = document.record.model_copy(update={"archive_id": archive_id})
        stored = await self._archive.put(key, Document(record, document.text), replaces=replaces)
        return replace(stored, archive_id=archive_id)

    async def find(self, key: ArchiveKey) -> Stored | None:
        """Return what is stored under a key, and in which archive; see the port."""
        stored, archive_id = await asyncio.gather(self._archive.find(key), self.identify())
        return None if stored is None else replace(stored, archive_id=archive_id)

    async def read(self, key: ArchiveKey) -> Document:
        """Read a document; see the port."""
        document, _ = await asyncio.gather(self._archive.read(key), self.identify())
        return document

    async def put_log(self, path: str, chunks: AsyncIterator[bytes]) -> int:
        """Store a log; see the port."""
        await self.identify(creates=True)
        return await self._archive.put_log(path, chunks)

    def read_log(self, path: str) -> AsyncIterator[bytes]:
        """Read a log; see the port."""
        return self._archive.read_log(path)

    def ls(self, prefix: str = "") -> AsyncIterator[Sequence[Stored]]:
        """List documents; see the port."""
        return self._archive.ls(prefix)

    def folders(self, prefix: str) -> AsyncIterator[str]:
        """List folders; see the port."""
        return self._archive.folders(prefix)

    def files(self, prefix: str = "") -> AsyncIterator[Sequence[StoredFile]]:
        """List documents and logs; see the port."""
        return self._archive.files(prefix)

    async def delete(self, keys: Sequence[ArchiveKey]) -> None:
        """Delete documents; see the port."""
        await self.identify()
        await self._archive.delete(keys)

    async def delete_files(self, paths: Sequence[str]) -> None:
        """Delete documents and logs; see the port."""
        await self.identify()
        await self._archive.delete_files(paths)

    async def identify(self, *, creates: bool = False) -> str:
        """Return the id of the archive; empty if the destination is empty and none is expected.

        Args:
            creates: Whether an empty destination gets a marker.

        Raises:
            OtherArchiveError: The destination is another archive, or that is unknown.
            TryLaterError: The store or the shared state is away.
            PermanentError: The store or the shared state refuses.
        """
        try:
            return await self._look(creates=creates, is_fresh=False)
        except OtherArchiveError:  # another process may have stored the first document, or adopted it, a moment ago
            pass
        try:
            return await self._look(creates=creates, is_fresh=True)
        except OtherArchiveError as error:
            self._ids.report(self.name, error.outage)
            raise

    async def _look(self, *, creates: bool, is_fresh: bool) -> str:
        location = self._archive.location
        expected = await self._ids.find(self.name, location, is_fresh=is_fresh)
        marker = await self._marker()
        if marker is None and not expected:
            if not await self._archive.is_empty():
                raise self._mismatch(expected, marker)
            if not creates or self._new_marker is None:
                return ""
            if not is_fresh:  # another process may remember the archive of a volume that is not mounted here
                return await self._look(creates=creates, is_fresh=True)
            marker = await self._archive.write_marker(await self._new_marker())
        if marker is not None and not expected:
            expected = await self._ids.remember(self.name, KnownArchive(marker.id, location))
        if marker is None or marker.id != expected:
            raise self._mismatch(expected, marker)
        self._ids.report(self.name, "")
        return expected

    def _mismatch(self, expected: str, marker: Marker | None) -> OtherArchiveError:
        found = marker.id if marker else ""
        problem = describe_mismatch(self.name, self._archive.location, expected=expected, found=found)
        return OtherArchiveError(f"archive {self.name}: {problem}", outage=problem)

    async def _marker(self) -> Marker | None:
        """Read the marker. A read that began before this call may be too old; all that wait share the next one."""
        if self._read_next is None:
            self._read_next = asyncio.create_task(self._read_marker())
        found = await asyncio.shield(self._read_next)  # a cancelled caller does not cancel the read of the others
        if isinstance(found, TtlError):
            raise found
        return found

    async def _read_marker(self) -> Marker | TtlError | None:
        """Read the marker, and return its error: each caller that waits may be cancelled."""
        async with self._reading:
            self._read_next = None
            try:
                return await self._archive.read_marker()
            except TtlError as error:
                return error


@dataclass
class IdentifiedArchives:
    """Archives whose identity is checked; one behind a webhook has no marker, and is returned as it is.

    Attributes:
        archives: Opens the archives.
        ids: The ids that are expected.
        now: The clock of this process.
        new_id: Makes the ids of new markers.
    """

    archives: Archives
    ids: ArchiveIds
    now: Callable[[], datetime]
    new_id: Callable[[], str] = new_id
    _identified: dict[str, tuple[Archive, IdentifiedArchive]] = field(default_factory=dict)

    async def find_cluster(self) -> ArchiveCluster:
        """See `shared.ports.Archives`."""
        return await self.archives.find_cluster()

    async def open(self, name: str, destination: ArchiveDestination) -> Archive:
        """See `shared.ports.Archives`."""
        archive = await self.archives.open(name, destination)
        if not isinstance(archive, MarkedArchive):
            return archive
        before, identified = self._identified.get(name, (None, None))
        if identified is None or before is not archive:
            identified = IdentifiedArchive(archive, self.ids, self._new_marker)
            self._identified[name] = archive, identified
        return identified

    async def _new_marker(self) -> Marker:
        cluster = await self.find_cluster()
        return Marker(self.new_id(), self.now().replace(microsecond=0), cluster.part)


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
        now = loop_now()
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
            self._hung_at = loop_now()
            raise TryLaterError(f"{problem}: {hung}") from None
        except TryLaterError as error:
            raise TryLaterError(f"{problem}: the API server: GET namespace {HOME_OF_ID}: {error}") from None
        except (PermanentError, ValueError) as error:
            grant = f"grant get on namespace {HOME_OF_ID}"
            raise PermanentError(f"{problem}: {error}; {grant}") from None
        self._found, self._read_at, self._hung_at = found, now, None
        return found
