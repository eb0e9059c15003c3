"""The system calls of an archive in a local folder; they block, and raise OSError.

A file is complete and on disk before its name exists: it is written under another name, flushed, and then linked. A
link never replaces a file. The folders on the way to it are flushed as well, because a file is lost with the entry of
its folder. So a kill or a power cut leaves a whole document or none.

Another writer may put something else where a folder or a file is expected. So each folder below the root is opened in
its parent, and is no symbolic link: nothing outside of the root is read, written or deleted. Only regular files are
opened, because a named pipe would hold the thread.
"""

import errno
import os
import re
import stat
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from shared.adapters.archive.archive import whole_second_after
from shared.ports.archive import StoredFile

_TEMPORARY = ".tmp"
_TEMPORARY_NAME = re.compile(r"[0-9a-f]{32}")
_TEMPORARY_SECONDS_MAX = 86_400.0  # a put takes seconds; an older file is what a killed process left
_FOLDERS_REMEMBERED_MAX = 10_000
_DEPTH_MAX = 32
_ATTEMPTS = 3
_FOLDER_MODE, _FILE_MODE = 0o750, 0o640
_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER = _ROOT | os.O_NOFOLLOW
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TemporaryFile:
    """A file that has no path yet.

    Attributes:
        io: Takes its bytes.
        folder: The descriptor of its folder.
        name: Its name there.
    """

    io: IO[bytes]
    folder: int
    name: str


class FolderFiles:
    """Files below a folder.

    Attributes:
        root: The folder, or a link to it. It is made at the first put, if its parent exists.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        # Folders whose entry in their parent is on disk, with their inode. A folder that was moved and made again has
        # another inode. One that was deleted and made again may have the same, so folders that `delete` may remove are
        # not among them.
        self._flushed: dict[_Parts, int] = {}
        self._is_cleaned = False

    def put(self, path: str, data: bytes, *, replaces: bool = False) -> StoredFile:
        """Store a file, unless the path exists, or in place of the file that exists."""
        with self.temporary() as file:
            file.io.write(data)
            self.publish(file, path, replaces=replaces)
        return self.head(path)

    @contextmanager
    def temporary(self) -> Iterator[TemporaryFile]:
        """A new file under another name, which is removed at the end."""
        with suppress(FileExistsError):
            self.root.mkdir(_FOLDER_MODE)
        with self._opened((_TEMPORARY,), make=True) as (_, folder):
            name = uuid.uuid4().hex
            descriptor = os.open(name, _WRITE, _FILE_MODE, dir_fd=folder)
            try:
                with open(descriptor, "wb") as io:  # noqa: PTH123 - a descriptor
                    yield TemporaryFile(io, folder, name)
                    if not self._is_cleaned:
                        self._remove_left_behind(folder, os.fstat(descriptor).st_mtime)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)

    def publish(self, file: TemporaryFile, path: str, *, replaces: bool) -> None:
        """Flush a temporary file, and give it its path."""
        file.io.flush()
        os.fsync(file.io.fileno())
        parts, name = _split(path)
        for attempt in range(_ATTEMPTS):
            try:
                with self._opened(parts, make=True) as opened:
                    # If the path exists, the first file stays. It may have been linked a moment ago, so its folders are
                    # flushed too.
                    with suppress(FileExistsError):
                        _rename(file, opened[-1], name) if replaces else _link(file, opened[-1], name)
                    self._flush_entries(opened, parts)
                    return
            except FileNotFoundError:  # another process has deleted the last file of a folder, and the folder
                if attempt == _ATTEMPTS - 1:
                    raise

    def head(self, path: str) -> StoredFile:
        """Return what is stored under a path.

        Raises:
            KeyError: Nothing is.
        """
        parts, name = _split(path)
        try:
            with self._opened(parts) as opened:
                status = os.stat(name, dir_fd=opened[-1], follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            raise KeyError(path) from None
        if not stat.S_ISREG(status.st_mode):
            raise KeyError(path)
        return _file(path, status)

    def get(self, path: str, limit: int) -> bytes:
        """Read a file.

        Raises:
            KeyError: Nothing is stored under the path.
            OverflowError: It has more bytes than the limit.
        """
        with self.open(path) as file:
            if os.fstat(file.fileno()).st_size > limit:
                raise OverflowError
            data = file.read(limit + 1)  # it may have grown
        if len(data) > limit:
            raise OverflowError
        return data

    def open(self, path: str) -> IO[bytes]:
        """Open a file to read it.

        Raises:
            KeyError: Nothing is stored under the path.
        """
        parts, name = _split(path)
        try:
            with self._opened(parts) as opened:
                descriptor = os.open(name, _READ, dir_fd=opened[-1])
        except (FileNotFoundError, NotADirectoryError):
            raise KeyError(path) from None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, or a socket
                raise KeyError(path) from None
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise KeyError(path)
        return open(descriptor, "rb")  # noqa: PTH123 - a descriptor

    def walk(self, prefix: str) -> Iterator[StoredFile]:
        """Yield the files below a prefix in the order of their paths."""
        self._check_root()
        return self._walk_below(_parts(prefix))

    def names(self, prefix: str) -> list[str]:
        """Return the names of the folders right below a prefix, in order."""
        self._check_root()
        with suppress(FileNotFoundError, NotADirectoryError), self._opened(_parts(prefix)) as opened:
            return sorted(entry.name for entry in _entries(opened[-1]) if entry.is_dir(follow_symlinks=False))
        return []

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files, and the two folders above each one that are empty then: those of a name and of a day."""
        for path in paths:
            parts, name = _split(path)
            with suppress(FileNotFoundError, NotADirectoryError), self._opened(parts) as opened:
                _unlink_file(name, opened[-1])
                for depth in range(len(parts), max(len(parts) - 2, 0), -1):  # `_flush_entries` remembers none of them
                    try:
                        os.rmdir(parts[depth - 1], dir_fd=opened[depth - 1])
                    except OSError:  # it has other files, or was removed by another process
                        break

    def _check_root(self) -> None:
        """Raise FileNotFoundError if the folder cannot be made either; without a put, it does not exist yet."""
        if not self.root.exists():
            self.root.parent.stat()

    @contextmanager
    def _opened(self, parts: _Parts, *, make: bool = False) -> Iterator[list[int]]:
        """The descriptors of the root, and of each folder on a path below it."""
        opened: list[int] = []
        try:
            opened.append(os.open(self.root, _ROOT))
            for name in parts:
                opened.append(_open_folder(name, opened[-1], make=make))
            yield opened
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _walk_below(self, parts: _Parts) -> Iterator[StoredFile]:
        with ExitStack() as stack:
            try:
                *_, folder = stack.enter_context(self._opened(parts))
            except (FileNotFoundError, NotADirectoryError):
                return
            yield from _walk(folder, "".join(f"{part}/" for part in parts), _DEPTH_MAX)

    def _flush_entries(self, opened: Sequence[int], parts: _Parts) -> None:
        """Flush a folder, and each folder above it up to one whose entry is known to be on disk."""
        os.fsync(opened[-1])
        for depth in range(len(parts), -1, -1):
            folder, inode = parts[:depth], os.fstat(opened[depth]).st_ino
            if self._flushed.get(folder) == inode:
                return
            if depth:
                os.fsync(opened[depth - 1])
            else:
                with suppress(PermissionError):  # the parent of the root may belong to another user
                    _flush(self.root.parent)
            if depth < len(parts) - 1:
                if len(self._flushed) >= _FOLDERS_REMEMBERED_MAX:
                    self._flushed.clear()
                self._flushed[folder] = inode

    def _remove_left_behind(self, folder: int, now: float) -> None:
        """Remove what killed processes left; `now` is by the clock of the file system."""
        self._is_cleaned = True
        for entry in _entries(folder):
            with suppress(OSError):
                is_old = entry.stat(follow_symlinks=False).st_mtime < now - _TEMPORARY_SECONDS_MAX
                if is_old and _TEMPORARY_NAME.fullmatch(entry.name):
                    _unlink_file(entry.name, folder)


def _split(path: str) -> tuple[_Parts, str]:
    """The folders of a path, and its last part."""
    *folders, name = path.split("/")
    return tuple(folders), name


def _parts(prefix: str) -> _Parts:
    return tuple(part for part in prefix.split("/") if part)


def _open_folder(name: str, parent: int, *, make: bool = False) -> int:
    """Open a folder that is no link, and make it if it is absent.

    Raises:
        NotADirectoryError: It is something else.
    """
    for is_made in (False, True):
        try:
            return os.open(name, _FOLDER, dir_fd=parent)
        except FileNotFoundError:
            if is_made or not make:
                raise
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name) from None
            raise
        with suppress(FileExistsError):
            os.mkdir(name, _FOLDER_MODE, dir_fd=parent)
    raise AssertionError  # the second attempt returns or raises


def _entries(folder: int) -> list["os.DirEntry[str]"]:
    """The entries of a folder in the order of the paths below it, which is that of buckets."""
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda one: f"{one.name}/" if one.is_dir(follow_symlinks=False) else one.name)


def _walk(folder: int, prefix: str, depth: int) -> Iterator[StoredFile]:
    for entry in _entries(folder):
        if entry.is_dir(follow_symlinks=False):
            if not depth or (not prefix and entry.name == _TEMPORARY):
                continue
            try:
                inner = _open_folder(entry.name, folder)
            except (FileNotFoundError, NotADirectoryError):  # it was removed or replaced a moment ago
                continue
            try:
                yield from _walk(inner, f"{prefix}{entry.name}/", depth - 1)
            finally:
                os.close(inner)
        elif entry.is_file(follow_symlinks=False):
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield _file(prefix + entry.name, status)


def _link(file: TemporaryFile, folder: int, name: str) -> None:
    os.link(file.name, name, src_dir_fd=file.folder, dst_dir_fd=folder, follow_symlinks=False)


def _rename(file: TemporaryFile, folder: int, name: str) -> None:
    """Give a file its path, and replace the file there; a second name stays, as after `os.link`."""
    os.replace(file.name, name, src_dir_fd=file.folder, dst_dir_fd=folder)


def _unlink_file(name: str, folder: int) -> None:
    """Delete a regular file, and nothing else."""
    with suppress(FileNotFoundError):
        if stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=folder)


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, _ROOT)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _file(path: str, status: os.stat_result) -> StoredFile:
    # The link changes ctime, and a copy of the archive keeps mtime: the later one is never before the acknowledgement.
    seconds = max(status.st_mtime, status.st_ctime)
    return StoredFile(path, whole_second_after(datetime.fromtimestamp(seconds, UTC)), status.st_size)
