"""An archive in memory, and documents for it."""

from collections.abc import AsyncIterator, Sequence
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import unquote

from shared.adapters.archive.store import ProbeResult
from shared.core.archive.document import Document, Record, canonical
from shared.core.archive.identity import ArchiveCluster
from shared.core.archive.layout import LAYOUT, ArchiveKey
from shared.core.values.objects import get_text
from shared.errors import AbsentDocumentError, TtlError
from shared.ports.archive import Stored, StoredFile
from tests.builders import NOW

PAGE = 100
PROD = ArchiveCluster("prod", "0a1b2c3d-0000-4000-8000-00000000000e")
"""The cluster of the documents."""


class ListedArchive:
    """The port in memory; a test sets beforehand what fails.

    Attributes:
        documents: The stored documents by key.
        failure: Raised by every method, if set.
        listed: The prefixes that were listed.
        reads: How many documents were read.
    """

    name, location = "main", "memory:///"

    def __init__(self, *, page: int = PAGE) -> None:
        self.documents: dict[ArchiveKey, tuple[Document, datetime]] = {}
        self.logs: dict[str, bytes] = {}
        self.failure: TtlError | None = None
        self.listed: list[str] = []
        self.reads = 0
        self._page = page

    def add(self, obj: dict[str, Any], *, at: datetime = NOW, cluster: str = PROD.part, **record: Any) -> Stored:
        """Store an object as it is, finished on the day of its archiving."""
        document = Document(Record(archived_at=at, **record), canonical(obj))
        key = key_of(obj, document.digest, cluster=cluster, day=at.date())
        self.documents[key] = document, at
        return self._stored(key)

    def _stored(self, key: ArchiveKey) -> Stored:
        document, at = self.documents[key]
        return Stored(key, at, len(document.text), f"memory:///{key.path}")

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def put(self, key: ArchiveKey, document: Document, *, replaces: bool = False) -> Stored:
        self._check()
        self.documents.setdefault(key, (document, NOW))
        return self._stored(key)

    async def find(self, key: ArchiveKey) -> Stored | None:
        self._check()
        return self._stored(key) if key in self.documents else None

    async def read(self, key: ArchiveKey) -> Document:
        self._check()
        self.reads += 1
        if key not in self.documents:
            raise AbsentDocumentError(f"archive main: nothing is stored at {key.path}")
        return self.documents[key][0]

    async def put_log(self, path: str, chunks: AsyncIterator[bytes]) -> int:
        self._check()
        self.logs[path] = b"".join([chunk async for chunk in chunks])
        return len(self.logs[path])

    async def read_log(self, path: str) -> AsyncIterator[bytes]:
        self._check()
        yield self.logs[path]

    async def ls(self, prefix: str = "") -> AsyncIterator[Sequence[Stored]]:
        self._check()
        self.listed.append(prefix)
        keys = sorted((key for key in self.documents if key.path.startswith(prefix)), key=lambda key: key.path)
        for start in range(0, len(keys), self._page):
            yield [self._stored(key) for key in keys[start : start + self._page]]

    async def folders(self, prefix: str) -> AsyncIterator[str]:
        self._check()
        assert prefix.startswith(LAYOUT)
        paths = [key.path.removeprefix(prefix) for key in self.documents if key.path.startswith(prefix)]
        for name in sorted({path.partition("/")[0] for path in paths}):
            yield unquote(name)

    async def delete(self, keys: Sequence[ArchiveKey]) -> None:
        self._check()
        for key in keys:
            self.documents.pop(key, None)

    async def files(self, prefix: str = "") -> AsyncIterator[Sequence[StoredFile]]:
        async for page in self.ls(prefix):
            yield [StoredFile(one.key.path, one.stored_at, one.size) for one in page]

    async def delete_files(self, paths: Sequence[str]) -> None:
        await self.delete([key for key in self.documents if key.path in paths])

    async def probe(self, name: str) -> ProbeResult:
        """As of a store whose clock shows NOW."""
        return ProbeResult(f"memory:///probe/{name}", stored_at=NOW + timedelta(seconds=1))


def key_of(obj: dict[str, Any], digest: str, *, cluster: str = PROD.part, day: date) -> ArchiveKey:
    return ArchiveKey(
        cluster=cluster,
        namespace=get_text(obj, "metadata.namespace"),
        api_version=get_text(obj, "apiVersion"),
        kind=get_text(obj, "kind"),
        day=day,
        name=get_text(obj, "metadata.name"),
        uid=get_text(obj, "metadata.uid"),
        resource_version=get_text(obj, "metadata.resourceVersion"),
        digest=digest,
    )
