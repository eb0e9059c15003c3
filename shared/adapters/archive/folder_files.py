"""The system calls of an archive in a local folder; they block, and raise OSError.

A file is complete and on disk before its name exists: it is written under another name, flushed, and then linked. A
link never replaces a file. The folders on the way to it are flushed as well, because a file is lost with the entry of
its folder. So a kill or a power cut leaves a whole document or none.
"""

import os
import stat
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from shared.adapters.archive.store import whole_second_after
from shared.ports.archive import StoredFile

_TEMPORARY = ".tmp"
_TEMPORARY_SECONDS_MAX = 86_400.0  # a put takes seconds; an older file is what a killed process left
_FOLDERS_REMEMBERED_MAX = 10_000
_DEPTH_MAX = 32
_ATTEMPTS = 3
_FOLDER_MODE, _FILE_MODE = 0o750, 0o640


class FolderFiles:
    """Files below a folder.

    Attributes:
        root: The folder. It is made at the first put, if its parent exists.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        # Folders whose entry in their parent is on disk, with their inode. A folder that was moved and made again has
        # another inode. One that was deleted and made again may have the same, so folders that `delete` may remove are
        # not among them.
        self._flushed: dict[Path, int] = {}
        self._is_cleaned = False

    def put(self, path: str, data: bytes, *, replaces: bool = False) -> StoredFile:
        """Store a file, unless the path exists, or in place of the file that exists."""
        with self.temporary() as file:
            file.write(data)
            self.publish(file, path, replaces=replaces)
        return self.head(path)

    @contextmanager
    def temporary(self) -> Iterator[IO[bytes]]:
        """A new file under another name, which is removed at the end."""
        folder = self.root / _TEMPORARY
        with suppress(FileExistsError):
            self.root.mkdir(_FOLDER_MODE)
        folder.mkdir(_FOLDER_MODE, exist_ok=True)
        name = folder / uuid.uuid4().hex
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
        try:
            with open(name, "wb", opener=lambda *_: descriptor) as file:
                yield file
                if not self._is_cleaned:
                    self._remove_left_behind(folder, os.fstat(descriptor).st_mtime)
        finally:
            name.unlink(missing_ok=True)

    def publish(self, file: IO[bytes], path: str, *, replaces: bool) -> None:
        """Flush a temporary file, and give it its path."""
        file.flush()
        os.fsync(file.fileno())
        target = self.root / path
        for attempt in range(_ATTEMPTS):
            target.parent.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
            try:
                _rename(file.name, target) if replaces else os.link(file.name, target)
                break
            except FileExistsError:
                break  # the first file stays; it may have been linked a moment ago, so its folders are flushed too
            except FileNotFoundError:  # another process has deleted the last file of the folder, and the folder
                if attempt == _ATTEMPTS - 1:
                    raise
        self._flush_entries(target.parent)

    def head(self, path: str) -> StoredFile:
        """Return what is stored under a path.

        Raises:
            KeyError: Nothing is.
        """
        try:
            status = (self.root / path).lstat()
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
            return file.read()

    def open(self, path: str) -> IO[bytes]:
        """Open a file to read it.

        Raises:
            KeyError: Nothing is stored under the path.
        """
        try:
            return (self.root / path).open("rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise KeyError(path) from None

    def walk(self, prefix: str) -> Iterator[StoredFile]:
        """Yield the files below a prefix in the order of their paths."""
        self._check_root()
        folder = prefix.rstrip("/")
        return self._walk(os.path.join(self.root, folder), f"{folder}/" if folder else "", _DEPTH_MAX)  # noqa: PTH118

    def names(self, prefix: str) -> list[str]:
        """Return the names of the folders right below a prefix, in order."""
        self._check_root()
        entries = _entries(str(self.root / prefix))
        return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files, and the two folders above each one that are empty then: those of a name and of a day."""
        for path in paths:
            (self.root / path).unlink(missing_ok=True)
            for folder in list((self.root / path).parents)[:2]:  # `_flush_entries` remembers neither of them
                if folder == self.root:
                    break
                try:
                    folder.rmdir()
                except OSError:  # it has other files, or was removed by another process
                    break

    def _check_root(self) -> None:
        """Raise FileNotFoundError if the folder cannot be made either; without a put, it does not exist yet."""
        if not self.root.exists():
            self.root.parent.stat()

    def _walk(self, folder: str, prefix: str, depth: int) -> Iterator[StoredFile]:
        for entry in _entries(folder):
            if entry.is_dir(follow_symlinks=False):
                if depth and (prefix or entry.name != _TEMPORARY):
                    yield from self._walk(entry.path, f"{prefix}{entry.name}/", depth - 1)
            elif entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):
                    yield _file(prefix + entry.name, entry.stat(follow_symlinks=False))

    def _flush_entries(self, folder: Path) -> None:
        """Flush a folder, and each folder above it up to one whose entry is known to be on disk."""
        _flush(folder)
        current, removable = folder, (folder, folder.parent)
        while True:
            inode = current.stat().st_ino
            if self._flushed.get(current) == inode:
                return
            is_root = current == self.root
            try:
                _flush(current.parent)
            except PermissionError:
                if not is_root:  # the parent of the root may belong to another user
                    raise
            if current not in removable:
                if len(self._flushed) >= _FOLDERS_REMEMBERED_MAX:
                    self._flushed.clear()
                self._flushed[current] = inode
            if is_root:
                return
            current = current.parent

    def _remove_left_behind(self, folder: Path, now: float) -> None:
        """Remove what killed processes left; `now` is by the clock of the file system."""
        self._is_cleaned = True
        for entry in _entries(str(folder)):
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < now - _TEMPORARY_SECONDS_MAX:
                    Path(entry.path).unlink()


def _entries(folder: str) -> list["os.DirEntry[str]"]:
    """The entries of a folder in the order of the paths below it, which is that of buckets; none if it is absent."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: f"{entry.name}/" if entry.is_dir() else entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _rename(name: str, target: Path) -> None:
    """Give a file its path, and replace the file there; a second name stays, as after `os.link`."""
    Path(name).replace(target)


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _file(path: str, status: os.stat_result) -> StoredFile:
    # The link changes ctime, and a copy of the archive keeps mtime: the later one is never before the acknowledgement.
    seconds = max(status.st_mtime, status.st_ctime)
    return StoredFile(path, whole_second_after(datetime.fromtimestamp(seconds, UTC)), status.st_size)
