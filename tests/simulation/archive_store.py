"""The stores of archives in a simulated world: they outlive the processes, and fail in every way that a bucket can."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from shared.core.archive.document import Document
from shared.core.archive.identity import MARKER, ArchiveCluster, Marker
from shared.core.archive.layout import LOG_SUFFIX, SUFFIX, ArchiveKey, is_log, parse_key, unquote_part
from shared.core.policy.archives import ArchiveDestination
from shared.errors import AbsentDocumentError, DamagedDocumentError, ForbiddenError, PermanentError, TryLaterError
from shared.ports import Archive, Stored
from shared.ports.archive import StoredFile
from tests.archives import CLUSTER

STORES = ("main", "second")
"""The names of the archives."""

STORE_SKEW_MAX = 30.0
"""How far the clock of a store may be off from the API server's, in seconds."""

QUICK = (0.002, 0.1)
SLOW = (1.0, 40.0)
"""Seconds of an answer: beyond what `expire` waits for, and below what `archive` does."""


@dataclass
class StoreFaults:
    """What goes wrong with the requests to a store, and how often.

    Attributes:
        active: False once faults have stopped.
        away: The store refuses connections.
        forbidden: The credentials are not valid.
    """

    rng: random.Random
    active: bool = True
    away: bool = False
    forbidden: bool = False

    def __post_init__(self) -> None:
        def some(most: float) -> float:
            return self.rng.choice((0.0, most / 4, most))

        self.slow, self.busy, self.answer_lost = some(0.3), some(0.3), some(0.3)
        self.rot = self.rng.choice((0.0, 0.05, 0.2))

    def happens(self, probability: float) -> bool:
        """Always one draw, whether faults are active or not."""
        return self.rng.random() < probability and self.active

    def latency(self) -> float:
        return self.rng.uniform(*(SLOW if self.happens(self.slow) else QUICK))

    def stop(self) -> None:
        self.active = self.away = self.forbidden = False


@dataclass(frozen=True)
class SimFile:
    """A stored file.

    Attributes:
        data: A document or a log, before compression.
        at: When the store accepted it, by its own clock.
    """

    data: bytes
    at: datetime


@dataclass
class Was:
    """What a path had from an instant on: a file, or None."""

    since: float
    file: SimFile | None


@dataclass
class SimStore:
    """One bucket.

    Attributes:
        is_foreign: Whether a foreign archiver stores there.
        rng: Decides about its faults and its clock; that of the world for None.
        files: What it has now.
        marker: Its marker.
        mounted: What is at its place now: itself, or another volume or bucket.
        calls: By call and uid.
        stored: How many files were new, by path.
        is_broken: Whether files were lost or damaged.
    """

    world: Any
    name: str
    is_foreign: bool = False
    rng: random.Random | None = None
    files: dict[str, SimFile] = field(default_factory=dict)
    marker: Marker | None = None
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    stored: Counter[str] = field(default_factory=Counter)
    broken: set[str] = field(default_factory=set)
    _were: dict[str, list[Was]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.mounted = self
        rng = self.rng or self.world.rng
        self.faults = StoreFaults(rng)
        skew = rng.choice((0.0, rng.uniform(-2, 2), rng.uniform(-STORE_SKEW_MAX, STORE_SKEW_MAX)))
        self.skew = timedelta(seconds=skew)

    def now(self) -> datetime:
        """The store's clock."""
        at: datetime = self.world.clocks.server()
        return at + self.skew

    def put(self, path: str, data: bytes, *, replaces: bool = False) -> None:
        """Store a file as a whole, unless there is one."""
        if path not in self.files or replaces:
            self.stored[path] += 1
            self._set(path, SimFile(data, self.now()))
            self.world.checks.stored(self, path)
            self.broken.discard(path)
            if self.faults.happens(self.faults.rot):
                break_it = self.faults.rng.choice((self.lose, self.spoil))
                self.world.loop.call_later(self.faults.rng.uniform(0, 20), self._rot, path, break_it)

    def mark(self, marker: Marker) -> Marker:
        """Write the marker, unless there is one."""
        self.marker = self.marker or marker
        return self.marker

    def remove(self, path: str) -> None:
        if path in self.files:
            self._set(path, None)

    def spoil(self, path: str) -> None:
        """A part of a file has other bytes from now on."""
        file = self.files[path]
        self.broken.add(path)
        self._set(path, SimFile(file.data[: -len(file.data) // 3], file.at))

    def lose(self, path: str) -> None:
        """What a rule of a bucket's lifecycle, or a person, removes."""
        self.broken.add(path)
        self.remove(path)

    def _rot(self, path: str, break_it: Callable[[str], None]) -> None:
        if self.faults.active and path in self.files:
            self.world.note("store", f"{self.name} {break_it.__name__}s {path}")
            break_it(path)

    def documents(self, uid: str) -> Iterator[str]:
        """The paths of all documents of an object, those that are gone, too."""
        return (path for path in self._were if path.endswith(SUFFIX) and f"/{uid}." in path)

    def logs(self, uid: str) -> Iterator[str]:
        """The paths of all logs of a Pod, in the same way."""
        return (path for path in self._were if path.endswith(LOG_SUFFIX) and f"/{uid}." in path)

    def held(self, path: str, since: float) -> Iterator[SimFile]:
        """What a path had at some instant from `since` on."""
        were = self._were.get(path, [])
        ends = [one.since for one in were[1:]] + [float("inf")]
        return (was.file for was, end in zip(were, ends, strict=True) if end >= since and was.file is not None)

    def stored_at(self, path: str) -> datetime:
        """As stores report it: the next whole second."""
        return self.files[path].at.replace(microsecond=0) + timedelta(seconds=1)

    def _set(self, path: str, file: SimFile | None) -> None:
        self._were.setdefault(path, []).append(Was(self.world.loop.time(), file))
        if file is None:
            del self.files[path]
        else:
            self.files[path] = file


class SimConnection:
    """One process's connection to a store: it ends with its process, and a request that was sent does not."""

    def __init__(self, world: Any, store: SimStore, by: str) -> None:
        self.world, self.place, self.by = world, store, by

    @property
    def store(self) -> SimStore:
        """What is at its place at this instant."""
        return self.place.mounted

    @property
    def name(self) -> str:
        return self.place.name

    async def put(self, key: ArchiveKey, document: Document, *, replaces: bool = False) -> Stored:
        return await self._request("PUT", key.path, lambda: self._put(key, document, replaces=replaces))

    async def find(self, key: ArchiveKey) -> Stored | None:
        return await self._request("HEAD", key.path, lambda: self._find(key))

    async def read(self, key: ArchiveKey) -> Document:
        data = await self._request("GET", key.path, lambda: self._get(key.path))
        try:
            document = Document.parse(data)
        except ValueError as error:
            raise DamagedDocumentError(f"{key.path}: {error}") from None
        if document.digest != key.digest:
            raise DamagedDocumentError(f"{key.path}: its digest is {document.digest}")
        return document

    async def put_log(self, path: str, chunks: AsyncIterator[bytes]) -> int:
        data = b"".join([chunk async for chunk in chunks])
        await self._request("PUT", path, lambda: self.store.put(path, data, replaces=True))
        return len(data)

    async def read_log(self, path: str) -> AsyncIterator[bytes]:
        yield await self._request("GET", path, lambda: self._get(path))

    async def ls(self, prefix: str = "") -> AsyncIterator[Sequence[Stored]]:
        yield await self._request("LIST", prefix, lambda: [*self._listed(prefix)])

    async def folders(self, prefix: str) -> AsyncIterator[str]:
        """The clusters, of which the world has one: the processes list them rarely, and this takes no time."""
        inside = {path[len(prefix) :].partition("/")[0] for path in self.store.files if path.startswith(prefix)}
        for name in sorted(inside):
            yield unquote_part(name)

    async def files(self, prefix: str = "") -> AsyncIterator[Sequence[StoredFile]]:
        raise NotImplementedError
        yield [prefix]

    async def delete(self, keys: Sequence[ArchiveKey]) -> None:
        for key in keys:
            await self._request("REMOVE", key.path, partial(self._remove, key.path))

    async def delete_files(self, paths: Sequence[str]) -> None:
        raise NotImplementedError

    def _listed(self, prefix: str) -> Iterator[Stored]:
        for path in sorted(self.store.files):
            if path.startswith(prefix) and not is_log(path):
                yield self._stored(parse_key(path))

    def _remove(self, path: str) -> None:
        self.store.remove(path)

    def _put(self, key: ArchiveKey, document: Document, *, replaces: bool = False) -> Stored:
        self.store.put(key.path, document.to_bytes(), replaces=replaces)
        return self._stored(key)

    def _find(self, key: ArchiveKey) -> Stored | None:
        return self._stored(key) if key.path in self.store.files else None

    def _get(self, path: str) -> bytes:
        if path not in self.store.files:
            raise AbsentDocumentError(f"nothing is stored at {path}")
        return self.store.files[path].data

    def _stored(self, key: ArchiveKey) -> Stored:
        size = len(self.store.files[key.path].data)
        return Stored(key, self.store.stored_at(key.path), size, f"sim://{self.name}/{key.path}")

    async def _request(self, call: str, path: str, act: Callable[[], Any]) -> Any:
        """One request there and back; all of its fate is drawn before it is sent."""
        faults, loop = self.place.faults, self.world.loop
        there, back = faults.latency(), faults.latency()
        is_busy, is_lost = faults.happens(faults.busy), faults.happens(faults.answer_lost)
        outlives = faults.rng.random() < 0.5
        answer: asyncio.Future[Any] = loop.create_future()

        def arrive() -> None:
            if answer.cancelled() and not outlives:
                return
            result = self._handle(call, path, act, is_busy=is_busy)
            if not answer.done():
                answer.set_result(result)

        loop.call_later(there, arrive)
        result = await answer
        await asyncio.sleep(back)
        if is_lost:
            self.world.note("store", f"{call} {path[-90:]}: the answer is lost")
            raise TryLaterError("the connection broke before the answer")
        if isinstance(result, Exception):
            raise result
        return result

    def _handle(self, call: str, path: str, act: Callable[[], Any], *, is_busy: bool) -> Any:
        """Do it, and return the result or the error."""
        uid = path.rpartition("/")[2].partition(".")[0]
        if path != MARKER:
            self.place.calls[call, uid] += 1
        faults = self.place.faults
        refusal: Exception | None = None
        if faults.away:
            refusal = TryLaterError("connection refused", outage="connection refused")
        elif faults.forbidden:
            refusal = ForbiddenError("the credentials are not valid")
        elif is_busy:
            refusal = TryLaterError("SlowDown", outage="SlowDown")
        if refusal is None:
            try:
                result = act()
            except AbsentDocumentError as error:
                result = error
        outcome = type(refusal or result).__name__
        self.world.note("store", f"{self.by} {call} {self.name} {path[-110:-70]} -> {outcome}")
        return refusal or result


class SimArchive(SimConnection):
    """A connection to a folder or a bucket, which has a marker."""

    @property
    def location(self) -> str:
        return url_of(self.name)

    async def read_marker(self) -> Marker | None:
        found: Marker | None = await self._request("GET", MARKER, lambda: self.store.marker)
        return found

    async def write_marker(self, marker: Marker) -> Marker:
        found: Marker = await self._request("PUT", MARKER, lambda: self.store.mark(marker))
        return found

    async def is_empty(self) -> bool:
        is_empty: bool = await self._request("LIST", MARKER, lambda: not self.store.files)
        return is_empty


class SimForeignArchive(SimConnection):
    """A foreign archiver behind a webhook: it confirms what it holds, and often stores an object only later."""

    async def put(self, key: ArchiveKey, document: Document, *, replaces: bool = False) -> Stored:
        stored: Stored | None = await self._request("PUT", key.path, lambda: self._accept(key, document))
        if stored is None:
            raise TryLaterError("not stored yet")
        return stored

    async def confirm(self, key: ArchiveKey) -> Stored | None:
        """See `shared.ports.ConfirmingArchive`."""
        stored: Stored | None = await self._request("HEAD", key.path, lambda: self._confirmed(key))
        return stored

    async def find(self, key: ArchiveKey) -> Stored | None:
        return await self.confirm(key)

    async def read(self, key: ArchiveKey) -> Document:
        raise PermanentError("a webhook only stores")

    async def put_log(self, path: str, chunks: AsyncIterator[bytes]) -> int:
        raise PermanentError("a webhook gets no logs")

    async def delete(self, keys: Sequence[ArchiveKey]) -> None:
        raise PermanentError("a webhook only stores")

    def _accept(self, key: ArchiveKey, document: Document) -> Stored | None:
        def store() -> None:
            self.store.put(key.path, document.to_bytes(), replaces=self._confirmed(key) is None)

        if self.place.faults.happens(0.3):
            self.world.loop.call_later(self.place.faults.rng.uniform(0.1, 20), store)
        else:
            store()
        return self._confirmed(key)

    def _confirmed(self, key: ArchiveKey) -> Stored | None:
        """What is stored, if the archiver can read it."""
        file = self.store.files.get(key.path)
        return self._stored(key) if file and Document.parse(file.data).digest == key.digest else None


@dataclass
class SimArchives:
    """The archives that one process can reach."""

    world: Any
    by: str
    make: Callable[[Any, SimStore, str], Archive] = SimArchive
    _opened: dict[str, Archive] = field(default_factory=dict)

    def now(self) -> datetime:
        at: datetime = self.world.clocks.local()
        return at

    async def find_cluster(self) -> ArchiveCluster:
        return CLUSTER

    async def open(self, name: str, destination: ArchiveDestination) -> Archive:
        assert destination.webhook is not None or destination.url == url_of(name)
        if name not in self._opened:
            make = self.make if destination.webhook is None else SimForeignArchive
            self._opened[name] = make(self.world, self.world.stores[name], self.by)
        return self._opened[name]


def url_of(name: str) -> str:
    """Where an archive of a policy stores."""
    return f"file:///{name}"
