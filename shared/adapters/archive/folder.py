"""A store in a local folder; its system calls run in threads of its own.

A volume that is full or away is an outage of the archive. Every other error may be about one path.
"""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import IO, TypeVar

from shared.adapters.archive.archive import PAGE_MAX
from shared.adapters.archive.folder_files import FolderFiles
from shared.core.archive.destination import Destination
from shared.errors import ForbiddenError, PermanentError, TryLaterError, TtlError
from shared.ports.archive import StoredFile

CALL_SECONDS = 30.0
"""How long one call may take, such as a put with its flushes; a hung network file system takes longer."""

_THREADS = 16  # waiting for flushes, which the file system then does together
_CHUNK_BYTES = 256 * 1024
_Returned = TypeVar("_Returned")


class FolderStore:
    """A store in a folder of this machine, or of a volume."""

    def __init__(self, name: str, destination: Destination, *, seconds: float = CALL_SECONDS) -> None:
        self._name, self._destination, self._seconds = name, destination, seconds
        self._files = FolderFiles(Path(destination.path))
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix=f"archive-{name}")

    def location(self, path: str = "") -> str:
        """The URL of a path."""
        return self._destination.location(path)

    async def put(self, path: str, data: bytes, *, replaces: bool = False) -> StoredFile:
        """Store a file, unless its path exists, or in place of the file that exists."""
        return await self._call("store", path, lambda: self._files.put(path, data, replaces=replaces))

    async def head(self, path: str) -> StoredFile:
        """Return what is stored under a path."""
        return await self._call("look up", path, self._files.head, path)

    async def get(self, path: str, limit: int) -> bytes:
        """Read a file."""
        return await self._call("read", path, self._files.get, path, limit)

    async def put_stream(self, path: str, chunks: AsyncIterator[bytes]) -> None:
        """Store a file in a stream, and replace the file that exists."""
        manager = self._files.temporary()
        file = await self._call("store", path, manager.__enter__)
        try:
            async for chunk in chunks:
                await self._call("store", path, file.io.write, chunk)
            await self._call("store", path, lambda: self._files.publish(file, path, replaces=True))
        finally:
            await self._call("store", path, manager.__exit__, None, None, None)

    async def get_stream(self, path: str) -> AsyncIterator[bytes]:
        """Read a file in chunks."""
        file: IO[bytes] = await self._call("read", path, self._files.open, path)
        try:
            while chunk := await self._call("read", path, file.read, _CHUNK_BYTES):
                yield chunk
        finally:
            file.close()

    async def files(self, prefix: str) -> AsyncIterator[Sequence[StoredFile]]:
        """List the files below a prefix."""
        found = await self._call("list", prefix, self._files.walk, prefix)
        while page := await self._call("list", prefix, lambda: list(islice(found, PAGE_MAX))):
            yield page

    async def folders(self, prefix: str) -> AsyncIterator[str]:
        """List the names of the folders right below a prefix."""
        for name in await self._call("list", prefix, self._files.names, prefix):
            yield name

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete files."""
        await self._call("delete", paths[0], self._files.delete, paths)

    async def _call(self, action: str, path: str, function: Callable[..., _Returned], *args: object) -> _Returned:
        what = f"archive {self._name}: cannot {action} {self.location(path)}"
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)
        except TimeoutError:
            problem = f"no answer of the file system in {self._seconds:g} s; check the volume"
            raise TryLaterError(f"{what}: {problem}", outage=problem) from None
        except OSError as error:
            raise convert_os_error(error, what, str(self._files.root)) from None


_RETRY_SECONDS = 30.0  # until a volume that was full is tried again, at the least

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (errno.EACCES, errno.EROFS)
_PERMANENT = (errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EXDEV, errno.EEXIST, errno.EINVAL)
_AWAY = (
    errno.ESTALE,
    errno.ENOTCONN,
    errno.ECONNREFUSED,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.ETIMEDOUT,
    errno.ENODEV,
    errno.ENXIO,
    errno.ESHUTDOWN,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
)
_WITHOUT_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


def convert_os_error(error: OSError, what: str, root: str) -> TtlError:
    """Return the error for a failed system call.

    Args:
        error: What the operating system answered.
        what: The beginning of the message: the archive, and what was tried.
        root: The folder of the archive.
    """
    said = error.strerror or type(error).__name__
    match error.errno:
        case number if number in _FULL:
            problem = f"the volume is full or a quota is reached ({said}); free space or enlarge the volume"
            outage = problem if error.errno != errno.EFBIG else ""  # of one file
            return TryLaterError(f"{what}: {problem}", retry_after_seconds=_RETRY_SECONDS, outage=outage)
        case number if number in _REFUSED:
            return ForbiddenError(f"{what}: {said}; expected that this account may read and write {root}")
        case number if number in _WITHOUT_LINKS:
            return PermanentError(
                f"{what}: {said}; expected a file system with hard links, and the right to make them in {root}; use "
                "another volume or a bucket"
            )
        case errno.ENAMETOOLONG:
            return PermanentError(
                f"{what}: {said}: a file system takes names of at most 255 bytes; use a bucket for these objects"
            )
        case errno.ENOENT:
            return PermanentError(
                f"{what}: {said}; expected the folder {root}, or its parent; mount or make the folder"
            )
        case number if number in _PERMANENT:
            return PermanentError(f"{what}: {said}; expected only folders and files of the archive in {root}")
        case _:
            problem = f"{said}; check the volume of {root}"
            return TryLaterError(f"{what}: {problem}", outage=problem if error.errno in _AWAY else "")
