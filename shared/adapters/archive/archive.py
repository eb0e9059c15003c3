"""The port `Archive` over a store, which is a folder or a bucket: keys, compression, digests; and a probe of a store.

The file of a probe is below `probe/`, where no document is. A probe that cannot delete its file leaves it there; the
next probe of the same host replaces nothing, because each probe has a name of its own.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from shared.adapters.archive.codec import (
    CodecError,
    compress,
    compress_stream,
    decompress,
    decompress_stream,
    find_size,
)
from shared.core.archive.document import DOCUMENT_BYTES_MAX, Document, SignatureError
from shared.core.archive.identity import MARKER, MARKER_BYTES_MAX, Marker
from shared.core.archive.layout import LAYOUT, ArchiveKey, is_log, parse_key, unquote_part
from shared.core.archive.signature import UNSIGNED, SigningKeys
from shared.errors import (
    AbsentDocumentError,
    DamagedDocumentError,
    PermanentError,
    TryLaterError,
    TtlError,
    UnsignedDocumentError,
)
from shared.ports.archive import Stored, StoredFile
from shared.usecases.archives.byte_gate import READ_BYTES_MAX, ByteGate

PAGE_MAX = 1_000
"""How many files one page of a list has; no store lists more at once."""


class FileStore(Protocol):
    """Files of bytes under paths.

    A store raises the errors of the port `Archive`, and KeyError if a file does not exist.
    """

    def location(self, path: str = "") -> str:
        """The URL of a path, for people."""
        ...

    async def put(self, path: str, data: bytes, *, replaces: bool = False) -> StoredFile:
        """Store a file durably, unless the path exists; then the first file stays, and is returned.

        With `replaces`, the new file takes the place of the first one, in one step.
        """
        ...

    async def head(self, path: str) -> StoredFile:
        """Return what is stored under a path, without its bytes."""
        ...

    async def get(self, path: str, limit: int) -> bytes:
        """Read a file.

        Raises:
            OverflowError: The file has more bytes than the limit. None of them is read.
        """
        ...

    async def put_stream(self, path: str, chunks: AsyncIterator[bytes]) -> None:
        """Store a file durably in a stream, and replace the file that exists."""
        ...

    def get_stream(self, path: str) -> AsyncIterator[bytes]:
        """Read a file in chunks."""
        ...

    def files(self, prefix: str) -> AsyncIterator[Sequence[StoredFile]]:
        """List the files below a prefix in the order of their paths, a page at a time."""
        ...

    def folders(self, prefix: str) -> AsyncIterator[str]:
        """List the names of the folders right below a prefix, in order."""
        ...

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete files; a path that does not exist counts as deleted."""
        ...


def whole_second_after(instant: datetime) -> datetime:
    """The next whole second.

    Stores report whole seconds, rounded down, in some answers and fractions in others. This is equal for both, and
    never before the instant at which the store accepted the file.
    """
    return instant.replace(microsecond=0) + timedelta(seconds=1)


PROBE_FOLDER = "probe"
"""The folder of the probes."""

_LIMIT = 4_096


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a probe found out.

    Attributes:
        location: Where the file was written.
        problems: Each step that failed, with its error: `write`, `read`, `list`, `delete`.
        stored_at: When the store accepted the file, by its own clock, rounded up to a second; None if it did not.
    """

    location: str
    problems: Mapping[str, TtlError] = field(default_factory=dict)
    stored_at: datetime | None = None


async def probe_store(store: FileStore, name: str) -> ProbeResult:
    """Write, read, list and delete one file. The steps after a write that failed are not tried.

    Args:
        store: The store.
        name: The name of the file, which no other probe has.
    """
    path = f"{PROBE_FOLDER}/{name}"
    data = f"a probe of ttl-after-finished: {name}\n".encode()
    try:
        stored_at = (await store.put(path, data)).stored_at
    except TtlError as error:
        return ProbeResult(store.location(path), {"write": error})
    steps: Mapping[str, Awaitable[None]] = {
        "read": _read(store, path, data),
        "list": _list(store, path),
        "delete": store.delete([path]),
    }
    problems: dict[str, TtlError] = {}
    for step, act in steps.items():
        try:
            await act
        except TtlError as error:
            problems[step] = error
    return ProbeResult(store.location(path), problems, stored_at)


async def _read(store: FileStore, path: str, data: bytes) -> None:
    try:
        found = await store.get(path, _LIMIT)
    except (KeyError, OverflowError):
        found = b""
    if found != data:
        raise TtlError(f"{store.location(path)}: expected the {len(data)} bytes that were written, got others")


async def _list(store: FileStore, path: str) -> None:
    found = [one.path async for page in store.files(f"{PROBE_FOLDER}/") for one in page]
    if path not in found:
        raise TtlError(f"{store.location(path)}: expected the file in a list, got {len(found)} other files")


BODIES_BYTES_MAX = 8 * 1024 * 1024
"""Maximum number of bytes of compressed documents that one archive reads at once; a larger document is read alone."""

SMALL_BODY_BYTES = 256 * 1024
"""Bytes that are held for a compressed document before it is read; most have some KB. A larger one is read again."""

_COPIES = 3  # of a document while it is decompressed and parsed: the window, the pieces or the parts, and the whole
_INLINE_BYTES_MAX = 256 * 1024  # compressing that takes about 0.2 ms; more is done in a thread
_OVERHEAD = 64 * 1024  # what a frame of zstd may add to data that it cannot compress
_ARCHIVED_AGAIN = "if the object still exists, it is archived again before it is deleted"
_FIX = f"{_ARCHIVED_AGAIN}; if not, this is the only copy: restore the file from a backup of the store"

_log = logging.getLogger("ttl")


class StoreArchive:
    """An archive in a store of files.

    Args:
        name: Its name in the policy.
        store: The store.
        reads: Bounds the bytes of the documents that are decompressed at the same time. A process has one such gate
            for all of its archives.
        keys: Sign each document that is stored. A document that none of them has signed is damaged.
    """

    def __init__(
        self, name: str, store: FileStore, reads: ByteGate | None = None, keys: SigningKeys = UNSIGNED
    ) -> None:
        self._name, self._store, self._keys, self._is_warned = name, store, keys, False
        self._reads = reads or ByteGate(READ_BYTES_MAX)
        # Each archive has its own gate for bodies, so that a store that hangs delays no other archive.
        self._bodies = ByteGate(BODIES_BYTES_MAX)

    @property
    def name(self) -> str:
        """Its name in the policy."""
        return self._name

    @property
    def is_signed(self) -> bool:
        """Whether each document that is read has a valid signature; see `shared.ports.archive.SignedArchive`."""
        return bool(self._keys)

    @property
    def location(self) -> str:
        """The URL of its destination."""
        return self._store.location()

    async def read_marker(self) -> Marker | None:
        """Read the marker; see `shared.ports.archive.MarkedArchive`."""
        try:
            return Marker.parse(await self._store.get(MARKER, MARKER_BYTES_MAX))
        except KeyError:
            return None
        except (OverflowError, ValueError) as error:
            reason = str(error) or f"it has more than {MARKER_BYTES_MAX} bytes"
            problem = f"the marker {self._store.location(MARKER)} is damaged: {reason}; restore it from a backup"
            raise TryLaterError(f"archive {self._name}: {problem}", outage=problem) from None

    async def write_marker(self, marker: Marker) -> Marker:
        """Write the marker, unless there is one; see `shared.ports.archive.MarkedArchive`."""
        found = None
        with suppress(KeyError):  # what is there is no file, or was deleted a moment later
            await self._store.put(MARKER, marker.to_bytes())
            found = await self.read_marker()
        if found is None:
            where = self._store.location(MARKER)
            problem = f"cannot store {where}: expected a file or nothing there"
            raise TryLaterError(f"archive {self._name}: {problem}", outage=problem)
        return found

    async def is_empty(self) -> bool:
        """Return whether no document is stored; see `shared.ports.archive.MarkedArchive`."""
        async for page in self._store.files(f"{LAYOUT}/"):  # a prune leaves empty folders
            if page:
                return False
        return True

    async def put(self, key: ArchiveKey, document: Document, *, replaces: bool = False) -> Stored:
        """Store a document, unless its key is stored already; see the port."""
        try:
            data = document.to_bytes(key.path, self._keys)
        except ValueError as error:
            raise PermanentError(
                f"archive {self._name}: cannot store {self._store.location(key.path)}: {error}; the object is not "
                "archived and not deleted"
            ) from None
        body = compress(data) if len(data) <= _INLINE_BYTES_MAX else await asyncio.to_thread(compress, data)
        try:
            return self._stored(key, await self._store.put(key.path, body, replaces=replaces))
        except KeyError:
            where = self._store.location(key.path)
            expected = "expected a file or nothing there, and that no other client deletes it at once"
            raise TryLaterError(f"archive {self._name}: cannot store {where}: {expected}") from None

    async def find(self, key: ArchiveKey) -> Stored | None:
        """Return what is stored under a key; see the port."""
        try:
            return self._stored(key, await self._store.head(key.path))
        except KeyError:
            return None

    async def read(self, key: ArchiveKey) -> Document:
        """Read a document and check its digest; see the port."""
        try:
            document, digest, unsigned = await self._read(key.path)
        except KeyError:
            raise self._absent(key.path) from None
        except SignatureError as error:
            raise self._damaged(key.path, str(error), _ARCHIVED_AGAIN) from None
        except (CodecError, ValueError) as error:
            raise self._damaged(key.path, str(error).partition("\n")[0]) from None
        if digest != key.digest:
            raise self._damaged(key.path, f"its digest is {digest}, expected {key.digest}")
        if unsigned:
            raise UnsignedDocumentError(str(self._damaged(key.path, unsigned, _ARCHIVED_AGAIN)), document.record)
        if document.is_signed and not self._keys:
            self._warn_unchecked(key.path)
        return document

    async def _read(self, path: str) -> tuple[Document, str, str]:
        """Read a document with its digest, and with why its signature does not count.

        Its size is checked before it is read, and before it is decompressed.

        Raises:
            KeyError: Nothing is stored under the path.
            CodecError: It cannot be decompressed, or has too many bytes.
            ValueError: It is no document.
        """
        try:
            async with self._bodies.hold(SMALL_BODY_BYTES):
                return await self._parse(path, await self._store.get(path, SMALL_BODY_BYTES))
        except OverflowError:
            size = (await self._store.head(path)).size
        if size > DOCUMENT_BYTES_MAX + _OVERHEAD:
            raise CodecError(f"it has {size} bytes, expected at most {DOCUMENT_BYTES_MAX + _OVERHEAD}")
        try:
            async with self._bodies.hold(size):
                return await self._parse(path, await self._store.get(path, size))
        except OverflowError:
            where = self._store.location(path)
            raise TryLaterError(
                f"archive {self._name}: {where} has more bytes than its size, or was replaced meanwhile"
            ) from None

    async def _parse(self, path: str, body: bytes) -> tuple[Document, str, str]:
        """Decompress and parse a document.

        After the gate is passed, the caller gets the document with no other task in between. So a caller that awaits
        nothing before it drops the document has it alone in memory.
        """
        size = find_size(body)
        async with self._reads.hold(_COPIES * size):
            parts = body, path, self._keys
            return _parse(*parts) if size <= _INLINE_BYTES_MAX else await asyncio.to_thread(_parse, *parts)

    async def put_log(self, path: str, chunks: AsyncIterator[bytes]) -> int:
        """Store a log in a stream; see the port."""
        read = [0]
        await self._store.put_stream(_checked(path), compress_stream(chunks, read))
        return read[0]

    async def read_log(self, path: str) -> AsyncIterator[bytes]:
        """Read a log in chunks; see the port."""
        try:
            async for chunk in decompress_stream(self._store.get_stream(_checked(path))):
                yield chunk
        except KeyError:
            raise self._absent(path) from None
        except CodecError as error:
            raise self._damaged(path, str(error)) from None

    async def ls(self, prefix: str = "") -> AsyncIterator[Sequence[Stored]]:
        """List the documents below a prefix; see the port."""
        async for page in self._pages(prefix):
            if documents := [self._stored(key, file) for file, key in page if key is not None]:
                yield documents

    async def folders(self, prefix: str) -> AsyncIterator[str]:
        """List the names of the folders right below a prefix; see the port."""
        async for name in self._store.folders(_checked(prefix)):
            yield unquote_part(name)

    async def delete(self, keys: Sequence[ArchiveKey]) -> None:
        """Delete documents; see the port."""
        await self.delete_files([key.path for key in keys])

    async def files(self, prefix: str = "") -> AsyncIterator[Sequence[StoredFile]]:
        """List documents and logs; see the port."""
        async for page in self._pages(prefix):
            yield [file for file, _ in page]

    async def _pages(self, prefix: str) -> AsyncIterator[Sequence[tuple[StoredFile, ArchiveKey | None]]]:
        """Documents with their keys, and logs with None; the number of the other files is logged."""
        foreign, example = 0, ""
        async for page in self._store.files(_checked(prefix)):
            ours = []
            for file in page:
                if file.path == MARKER:
                    continue
                key = _parse_key(file.path)
                if key is not None or is_log(file.path):
                    ours.append((file, key))
                else:
                    foreign, example = foreign + 1, example or file.path
            if ours:
                yield ours
        if foreign:
            where = self._store.location(example)
            _log.warning("archive %s: skipped %d files that are no documents, such as %s", self._name, foreign, where)

    async def delete_files(self, paths: Sequence[str]) -> None:
        """Delete documents and logs by their paths; see the port."""
        if paths:
            await self._store.delete([_checked(path) for path in paths])

    async def probe(self, name: str) -> ProbeResult:
        """Write, read, list and delete a small file; see `probe_store`."""
        return await probe_store(self._store, name)

    def _stored(self, key: ArchiveKey, file: StoredFile) -> Stored:
        return Stored(key, file.stored_at, file.size, self._store.location(file.path))

    def _absent(self, path: str) -> AbsentDocumentError:
        return AbsentDocumentError(f"archive {self._name}: nothing is stored at {self._store.location(path)}")

    def _damaged(self, path: str, problem: str, fix: str = _FIX) -> DamagedDocumentError:
        where = self._store.location(path)
        return DamagedDocumentError(f"archive {self._name}: {where} is damaged: {problem}; {fix}")

    def _warn_unchecked(self, path: str) -> None:
        """Say once that other processes sign the documents: this one would accept those of another writer."""
        if not self._is_warned:
            self._is_warned = True
            _log.warning(
                "archive %s: %s is signed, but this process has no TTL_ARCHIVE_KEYS: it checks no signature, and "
                "accepts documents that another writer has stored; set the same keys as in the process that archives",
                self._name,
                self._store.location(path),
            )


def _parse(body: bytes, path: str, keys: SigningKeys) -> tuple[Document, str, str]:
    unsigned = ""
    try:
        document = Document.parse(decompress(body), path, keys)
    except SignatureError as error:
        if error.document is None:
            raise
        document, unsigned = error.document, str(error)
    return document, document.digest, unsigned


def _parse_key(path: str) -> ArchiveKey | None:
    """The key of a document; None if the path is not exactly that of a key."""
    try:
        key = parse_key(path)
    except ValueError:
        return None
    return key if key.path == path else None


def _checked(path: str) -> str:
    """A path that stays below the root of its store.

    Raises:
        ValueError: It does not.
    """
    parts = path.removesuffix("/").split("/") if path else []
    if any(part in ("", ".", "..") for part in parts) or "\0" in path:
        raise ValueError(f"expected a path without empty parts, . and .., got {path!r}")
    return path
