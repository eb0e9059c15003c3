"""Archives in memory; a test sets beforehand which calls fail, and how."""

import math
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any

from shared.adapters.archive.archive import ProbeResult
from shared.bootstrap.archives import OpenedArchives
from shared.core.archive.archiving import ArchiveFact
from shared.core.archive.copies import ArchiveCopy, copy_of
from shared.core.archive.document import Document, Record, SignatureError, canonical
from shared.core.archive.identity import ArchiveCluster
from shared.core.archive.layout import ArchiveKey, parse_key, unquote_part
from shared.core.archive.signature import UNSIGNED, SigningKeys
from shared.core.kinds.rule import KindRule
from shared.core.policy.archives import ArchiveDestination
from shared.core.policy.policy import Policy
from shared.core.values.objects import get_text
from shared.errors import AbsentDocumentError, DamagedDocumentError, UnsignedDocumentError
from shared.evaluation.archive_identity import ClusterIdentity
from shared.ports import Archive, Cluster, Stored
from shared.ports.archive import StoredFile
from tests.builders import JOB, NOW, not_none, shipped_kinds

CLUSTER = ArchiveCluster("prod", "0a1b2c3d-0000-4000-8000-00000000000e")
"""The cluster in the keys."""

PAGE = 1_000


@dataclass
class FakeArchive:
    """An archive in memory, which keeps documents as they are stored.

    Attributes:
        name: Its name in the policy.
        now: The clock of the store.
        failure: Raised by every call.
        failures: Raised by the calls of one name.
        before: Awaited before each call, with its name.
        keys: The keys of the process that uses it; a test changes them as if the process was started again.
        page: How many documents a page of a list has.
        listed: The prefixes that were listed.
    """

    name: str = "main"
    now: Callable[[], datetime] = lambda: NOW
    documents: dict[str, tuple[bytes, datetime]] = field(default_factory=dict)
    logs: dict[str, bytes] = field(default_factory=dict)
    failure: Exception | None = None
    failures: dict[str, Exception] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    before: Callable[[str], Any] | None = None
    keys: SigningKeys = UNSIGNED
    page: int = PAGE
    listed: list[str] = field(default_factory=list)
    location = "memory:///"

    async def _call(self, name: str) -> None:
        self.calls[name] += 1
        if self.before is not None:
            await self.before(name)
        if problem := self.failure or self.failures.get(name):
            raise problem

    async def put(self, key: ArchiveKey, document: Document, *, replaces: bool = False) -> Stored:
        await self._call("put")
        if replaces or key.path not in self.documents:
            self.documents[key.path] = document.to_bytes(key.path, self.keys), self.now()
        return self._stored(key)

    async def find(self, key: ArchiveKey) -> Stored | None:
        await self._call("find")
        return self._stored(key) if key.path in self.documents else None

    async def read(self, key: ArchiveKey) -> Document:
        await self._call("read")
        if key.path not in self.documents:
            raise AbsentDocumentError(f"{key.path} is not stored")
        try:
            document = Document.parse(self.documents[key.path][0], key.path, self.keys)
        except SignatureError as error:
            raise UnsignedDocumentError(f"{key.path}: {error}", not_none(error.document).record) from None
        except ValueError as error:
            raise self._damaged(key, str(error)) from None
        if document.digest != key.digest:
            raise self._damaged(key, f"its digest is {document.digest}")
        return document

    def _damaged(self, key: ArchiveKey, problem: str) -> DamagedDocumentError:
        return DamagedDocumentError(f"archive {self.name}: memory:///{key.path} is damaged: {problem}")

    async def put_log(self, path: str, chunks: AsyncIterator[bytes]) -> int:
        await self._call("put_log")
        self.logs[path] = b"".join([chunk async for chunk in chunks])
        return len(self.logs[path])

    async def read_log(self, path: str) -> AsyncGenerator[bytes, None]:
        await self._call("read_log")
        if path not in self.logs:
            raise AbsentDocumentError(f"{path} is not stored")
        yield self.logs[path]

    async def ls(self, prefix: str = "") -> AsyncGenerator[Sequence[Stored], None]:
        await self._call("ls")
        self.listed.append(prefix)
        for page in self._paged(path for path in self.documents if path.startswith(prefix)):
            yield [self._stored(parse_key(path)) for path in page]

    async def folders(self, prefix: str) -> AsyncGenerator[str, None]:
        await self._call("folders")
        names = {path[len(prefix) :].partition("/")[0] for path in self.documents if path.startswith(prefix)}
        for name in sorted(names):
            yield unquote_part(name)

    async def delete(self, keys: Sequence[ArchiveKey]) -> None:
        await self._call("delete")
        for key in keys:
            self.documents.pop(key.path, None)

    async def files(self, prefix: str = "") -> AsyncGenerator[Sequence[StoredFile], None]:
        await self._call("files")
        for page in self._paged(path for path in (*self.documents, *self.logs) if path.startswith(prefix)):
            yield [self._file(path) for path in page]

    async def delete_files(self, paths: Sequence[str]) -> None:
        await self._call("delete_files")
        for path in paths:
            self.documents.pop(path, None)
            self.logs.pop(path, None)

    async def probe(self, name: str) -> ProbeResult:
        """As of a store whose clock shows the next second."""
        return ProbeResult(f"memory:///probe/{name}", stored_at=self.now() + timedelta(seconds=1))

    def _paged(self, paths: Iterable[str]) -> Iterator[list[str]]:
        found = sorted(paths)
        return (found[start : start + self.page] for start in range(0, len(found), self.page))

    def _file(self, path: str) -> StoredFile:
        data, at = self.documents[path] if path in self.documents else (self.logs[path], self.now())
        return StoredFile(
            path, at if not at.microsecond else at.replace(microsecond=0) + timedelta(seconds=1), len(data)
        )

    def _stored(self, key: ArchiveKey) -> Stored:
        file = self._file(key.path)
        return Stored(key, file.stored_at, file.size, f"memory:///{key.path}")

    # Called by tests

    def store(self, obj: dict[str, Any], rule: KindRule | None = JOB, *, at: datetime = NOW, **record: Any) -> Stored:
        """Store a version of an object, as `archive` does with its children."""
        copied = copied_of(obj, rule)
        line = Record(**{"archived_at": at, "with_children": True} | record)
        self.documents[copied.key.path] = Document(line, copied.text).to_bytes(), at
        return self._stored(copied.key)

    def add(self, obj: dict[str, Any], *, at: datetime = NOW, cluster: str = CLUSTER.part, **record: Any) -> Stored:
        """Store an object as it is, finished on the day of its archiving."""
        document = Document(Record(archived_at=at, **record), canonical(obj))
        key = key_of(obj, document.digest, cluster=cluster, day=at.date())
        self.documents[key.path] = document.to_bytes(), at
        return self._stored(key)

    def objects(self) -> list[dict[str, Any]]:
        """The stored objects, in the order in which they were stored."""
        return [Document.parse(data).obj for data, _ in self.documents.values()]

    def holds(self, obj: dict[str, Any], rule: KindRule | None = JOB) -> bool:
        """Return whether exactly this version is stored, byte for byte."""
        copied = copied_of(obj, rule)
        found = self.documents.get(copied.key.path)
        return found is not None and Document.parse(found[0]).text == copied.text


@dataclass
class FakeArchives:
    """The archives of a process: one for each name."""

    by_name: dict[str, Archive] = field(default_factory=dict)
    failure: Exception | None = None
    cluster_failure: Exception | None = None
    clock: Callable[[], datetime] | None = None

    def now(self) -> datetime:
        """The clock of the process: that of its first archive, unless a test sets another one."""
        archive = next(iter(self.by_name.values()), None)
        clock = self.clock or (archive.now if isinstance(archive, FakeArchive) else lambda: NOW)
        return clock()

    async def find_cluster(self) -> ArchiveCluster:
        if self.cluster_failure:
            raise self.cluster_failure
        return CLUSTER

    async def open(self, name: str, destination: ArchiveDestination) -> Archive:
        assert destination is not None
        if self.failure:
            raise self.failure
        return self.by_name[name]


def opened_archives(name: str = CLUSTER.name, cluster: Cluster | None = None) -> OpenedArchives:
    """The archives of a process, in a cluster that has the id of CLUSTER unless another one is given."""
    if cluster is not None:
        return OpenedArchives(ClusterIdentity.of(name, cluster))

    async def none() -> Any:
        raise AssertionError("the id is known")

    identity = ClusterIdentity(name, none)
    identity._found, identity._read_at = ArchiveCluster(name, CLUSTER.id), math.inf
    return OpenedArchives(identity)


def key_of(obj: dict[str, Any], digest: str, *, cluster: str = CLUSTER.part, day: date) -> ArchiveKey:
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


_WHOLE = {"children": True, "logs": True}


def copied_of(obj: dict[str, Any], rule: KindRule | None = JOB) -> ArchiveCopy:
    return copy_of(obj, rule, cluster=CLUSTER)


def acknowledged(obj: dict[str, Any], at: datetime | None = NOW, *, to: str = "main", **changes: Any) -> ArchiveFact:
    """The fact that an archive has acknowledged this version of an object."""
    metadata = obj["metadata"]
    parts = {"uid": metadata["uid"], "resource_version": metadata["resourceVersion"]}
    return ArchiveFact(**{"to": to, **parts, "acknowledged_at": at, "is_read_back": True, **_WHOLE, **changes})


def archiving(*, archives: dict[str, Any] | None = None, **fields: Any) -> Policy:
    """A policy with one rule, which has all Jobs archived to `main`."""
    rule = {"name": "one", "match": {"kinds": ["jobs"]}, "archive": {"to": "main", "grace": "1h"}} | fields
    document = {
        "archives": archives or {"main": {"url": "file:///archive"}},
        "rules": [{name: value for name, value in rule.items() if value is not None}],
    }
    return Policy.model_validate(document).of_kinds(shipped_kinds())
