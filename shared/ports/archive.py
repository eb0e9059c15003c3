"""An archive, as the use cases and the commands see it."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from shared.core.archive.document import Document
from shared.core.archive.identity import ArchiveCluster, KnownArchive, Marker
from shared.core.archive.layout import ArchiveKey
from shared.core.policy.archives import ArchiveDestination


@dataclass(frozen=True, slots=True)
class Stored:
    """One stored resource version.

    Attributes:
        key: Its key.
        stored_at: When the store accepted it, by the clock of the store, rounded up to the next whole second.
        size: Its size in the store, in bytes.
        location: Where it is, as a URL.
        archive_id: The id of the archive that has it; empty if that was not looked at.
    """

    key: ArchiveKey
    stored_at: datetime
    size: int
    location: str
    archive_id: str = ""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of an archive: a document or a log.

    Attributes:
        path: Its path below the archive's root.
        stored_at: As in `Stored`.
        size: Its size in the store, in bytes.
    """

    path: str
    stored_at: datetime
    size: int


class Archive(Protocol):
    """One archive, named in a policy.

    Every method raises TryLaterError if the store is away, slow or full, ForbiddenError if the credentials or a right
    are missing, and PermanentError if the store refuses for good.
    """

    @property
    def name(self) -> str:
        """Its name in the policy."""
        ...

    async def put(self, key: ArchiveKey, document: Document, *, replaces: bool = False) -> Stored:
        """Store a document durably, unless its key is stored already; then the first one stays and is returned.

        Returns only when the document survives the end of this process and of the store.

        Args:
            key: The key.
            document: The document.
            replaces: Replace the one that is stored, in one step: it is damaged, its time does not count, or it was
                stored without its children or logs. At each instant the old or the new document is stored.
        """
        ...

    async def find(self, key: ArchiveKey) -> Stored | None:
        """Return what is stored under a key, without reading it; None if nothing is."""
        ...

    async def read(self, key: ArchiveKey) -> Document:
        """Read a document, and check that its digest is that of its key.

        Raises:
            AbsentDocumentError: Nothing is stored under the key.
            DamagedDocumentError: The stored bytes are not those that were archived.
        """
        ...

    async def put_log(self, path: str, chunks: AsyncIterator[bytes]) -> int:
        """Store a log beside the documents, compressed, in a stream; a log that is stored already is replaced.

        If the chunks raise an error, also after the last one, it is raised, and what was stored before stays.

        Returns:
            The bytes of the log before compression.
        """
        ...

    def read_log(self, path: str) -> AsyncIterator[bytes]:
        """Read a log in chunks, decompressed.

        Raises:
            AbsentDocumentError: Nothing is stored under the path.
            DamagedDocumentError: The stored bytes are not a whole log.
        """
        ...

    def ls(self, prefix: str = "") -> AsyncIterator[Sequence[Stored]]:
        """List the documents below a prefix, a page at a time, in the order of their keys; none of them is read."""
        ...

    def folders(self, prefix: str) -> AsyncIterator[str]:
        """List the names of the folders right below a prefix: clusters, namespaces, kinds, days or names."""
        ...

    async def delete(self, keys: Sequence[ArchiveKey]) -> None:
        """Delete documents; a key that is not stored counts as deleted."""
        ...

    def files(self, prefix: str = "") -> AsyncIterator[Sequence[StoredFile]]:
        """List documents and logs below a prefix, a page at a time, in the order of their paths.

        Files that are neither are skipped, as in `ls`.
        """
        ...

    async def delete_files(self, paths: Sequence[str]) -> None:
        """Delete documents and logs by their paths; a path that is not stored counts as deleted."""
        ...


@runtime_checkable
class ConfirmingArchive(Protocol):
    """An archive whose documents this process cannot read: it confirms itself that it has stored a version."""

    async def confirm(self, key: ArchiveKey) -> Stored | None:
        """Ask the archive whether it holds exactly this version durably; None if it does not.

        Raises:
            TryLaterError: The archive is away or slow.
            ForbiddenError: The credentials or a right are missing.
            PermanentError: The archive refuses for good.
        """
        ...


@runtime_checkable
class MarkedArchive(Protocol):
    """An archive whose destination can hold a marker with its id; see `shared.core.archive.identity`."""

    @property
    def location(self) -> str:
        """The URL of its destination, without options."""
        ...

    async def read_marker(self) -> Marker | None:
        """Return the marker; None if there is none.

        Raises:
            TryLaterError: It cannot be read now, or is damaged.
            PermanentError: The store refuses.
        """
        ...

    async def write_marker(self, marker: Marker) -> Marker:
        """Write a marker, unless there is one; return the one that is there then."""
        ...

    async def is_empty(self) -> bool:
        """Return whether no document is stored, of any cluster. Other files do not count."""
        ...


@runtime_checkable
class SignedArchive(Protocol):
    """An archive that can check who wrote a document; see `shared.core.archive.signature`."""

    @property
    def is_signed(self) -> bool:
        """Whether each document that is read has a valid signature. If not, another writer may have stored it."""
        ...


class ArchiveIds(Protocol):
    """The ids of the archives, as the processes of an installation remember them."""

    async def find(self, name: str, location: str, *, is_fresh: bool = False) -> str:
        """Return the id that is expected; empty if none is remembered.

        Args:
            name: The name of the archive in the policy.
            location: The URL of its destination.
            is_fresh: Whether what was read a few seconds ago does not count.

        Raises:
            TryLaterError: It cannot be read now.
            PermanentError: The right to read it is missing, or it is damaged.
        """
        ...

    async def remember(self, name: str, known: KnownArchive) -> str:
        """Remember an id, unless another one is remembered; return the one that is remembered then.

        Raises:
            TryLaterError: It cannot be written now.
            PermanentError: The right to write it is missing, or it is damaged.
        """
        ...

    def report(self, name: str, problem: str) -> None:
        """Report what is wrong with the identity of an archive, once; an empty problem ends it."""
        ...


class Archives(Protocol):
    """The archives that a process can reach."""

    def now(self) -> datetime:
        """Return the present by the clock of this process, with which the times of the archives are compared."""
        ...

    async def find_cluster(self) -> ArchiveCluster:
        """Return the cluster that the keys name.

        Raises:
            TryLaterError: Its id cannot be read now.
            PermanentError: The right to read its id is missing.
        """
        ...

    async def open(self, name: str, destination: ArchiveDestination) -> Archive:
        """Return an archive of the policy; it is opened once, and again if its destination changes.

        Args:
            name: Its name in the policy.
            destination: Where it stores, as the policy says now.

        Raises:
            PermanentError: The destination cannot be used, for example without credentials.
            TryLaterError: It cannot be used now.
        """
        ...
