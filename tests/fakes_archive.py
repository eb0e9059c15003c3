"""An archive in memory, without threads; a test sets beforehand which calls fail."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from shared.core.archive.document import Document
from shared.core.archive.layout import ArchiveKey, is_log, parse_key, unquote_part
from shared.errors import AbsentDocumentError, DamagedDocumentError
from shared.ports.archive import Stored, StoredFile
from tests.builders import NOW

PAGE = 1_000
CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True)
class FakeFile:
    """A stored file: its bytes, and when it was accepted."""

    data: bytes
    at: datetime


class FakeArchive:
    """An archive in memory.

    Attributes:
        stored: The files by their paths; tests damage and remove them.
        calls: Each call: its name, and the path or prefix.
        before: Called before each call; what it raises, the call raises, and nothing is stored or deleted.
        after: Called after each call: what it raises, the call raises, although it was done.
    """

    def __init__(self, name: str = "main", now: Callable[[], datetime] = lambda: NOW) -> None:
        self._name, self._now = name, now
        self.stored: dict[str, FakeFile] = {}
        self.calls: list[tuple[str, str]] = []
        self.before: Callable[[str, str], None] = lambda _call, _path: None
        self.after: Callable[[str, str], None] = lambda _call, _path: None

    @property
    def name(self) -> str:
        return self._name

    @property
    def documents(self) -> dict[ArchiveKey, Document]:
        """What is stored, parsed."""
        keys = {path: _parse_key(path) for path in self.stored}
        return {key: Document.parse(self.stored[path].data) for path, key in keys.items() if key is not None}

    async def put(self, key: ArchiveKey, document: Document, *, replaces: bool = False) -> Stored:
        self._start("put", key.path)
        if replaces or key.path not in self.stored:
            self.stored[key.path] = FakeFile(document.to_bytes(), self._now())
        self.after("put", key.path)
        return self._stored(key)

    async def find(self, key: ArchiveKey) -> Stored | None:
        self._start("find", key.path)
        found = self._stored(key) if key.path in self.stored else None
        self.after("find", key.path)
        return found

    async def read(self, key: ArchiveKey) -> Document:
        self._start("read", key.path)
        self.after("read", key.path)
        data = self._get(key.path)
        try:
            document = Document.parse(data)
        except ValueError as error:
            raise DamagedDocumentError(f"{key.path}: {error}") from None
        if document.digest != key.digest:
            raise DamagedDocumentError(f"{key.path}: its digest is {document.digest}")
        return document

    async def put_log(self, path: str, chunks: AsyncIterator[bytes]) -> int:
        self._start("put_log", path)
        data = b"".join([chunk async for chunk in chunks])
        self.stored[path] = FakeFile(data, self._now())
        self.after("put_log", path)
        return len(data)

    async def read_log(self, path: str) -> AsyncIterator[bytes]:
        self._start("read_log", path)
        data = self._get(path)
        for start in range(0, len(data), CHUNK):
            yield data[start : start + CHUNK]

    async def ls(self, prefix: str = "") -> AsyncIterator[Sequence[Stored]]:
        async for page in self.files(prefix):
            keys = [_parse_key(file.path) for file in page]
            if stored := [self._stored(key) for key in keys if key is not None]:
                yield stored

    async def files(self, prefix: str = "") -> AsyncIterator[Sequence[StoredFile]]:
        self._start("list", prefix)
        folder = f"{prefix.rstrip('/')}/" if prefix else ""
        paths = sorted(path for path in self.stored if path.startswith(folder) and (is_log(path) or _parse_key(path)))
        for start in range(0, len(paths), PAGE):
            yield [self._file(path) for path in paths[start : start + PAGE] if path in self.stored]

    async def folders(self, prefix: str) -> AsyncIterator[str]:
        self._start("folders", prefix)
        folder = f"{prefix.rstrip('/')}/" if prefix else ""
        rests = [path[len(folder) :] for path in self.stored if path.startswith(folder)]
        for name in sorted({rest.partition("/")[0] for rest in rests if "/" in rest}):
            yield unquote_part(name)

    async def delete(self, keys: Sequence[ArchiveKey]) -> None:
        await self.delete_files([key.path for key in keys])

    async def delete_files(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._start("delete", path)
            self.stored.pop(path, None)
            self.after("delete", path)

    def _start(self, call: str, path: str) -> None:
        self.calls.append((call, path))
        self.before(call, path)

    def _get(self, path: str) -> bytes:
        if path not in self.stored:
            raise AbsentDocumentError(f"nothing is stored at {path}")
        return self.stored[path].data

    def _file(self, path: str) -> StoredFile:
        file = self.stored[path]
        return StoredFile(path, file.at.replace(microsecond=0) + timedelta(seconds=1), len(file.data))

    def _stored(self, key: ArchiveKey) -> Stored:
        file = self._file(key.path)
        return Stored(key, file.stored_at, file.size, f"memory://{self._name}/{key.path}")


def _parse_key(path: str) -> ArchiveKey | None:
    try:
        key = parse_key(path)
    except ValueError:
        return None
    return key if key.path == path else None
