"""WATCH: a stream of the changes after a resourceVersion, with bookmarks and a time limit."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from pydantic_core import to_json

from shared.devserver.apiserver.errors import StatusError, invalid
from shared.devserver.apiserver.listing import Change, Query, parse_revision
from shared.devserver.apiserver.resources import CUSTOM_RESOURCE_DEFINITIONS, Object, Resource
from shared.devserver.apiserver.store import Store

Render = Callable[[Object], Object]

# kube-apiserver sends a last bookmark so many seconds before a watch times out, and a client resumes from there.
_LAST_BOOKMARK = 2.0


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """The options of a WATCH.

    Attributes:
        seconds: The time limit of the stream.
        bookmarks: Whether the client requested bookmarks.
        initial_events: Whether the client requested a bookmark after all objects that existed before.
        bookmark_seconds: The interval between two bookmarks.
    """

    seconds: float
    bookmarks: bool
    initial_events: bool
    bookmark_seconds: float

    def check(self, query: Query) -> None:
        """Check that the options fit the query.

        Raises:
            StatusError: 422.
        """
        if self.initial_events and query.match != "NotOlderThan":
            problem = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            raise invalid("ListOptions.meta.k8s.io", "", "resourceVersionMatch", problem)


class Watches:
    """The watches of one server."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._closed = False
        store.listeners.append(self._wake)

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        self._store.listeners.remove(self._wake)
        for events in self._waiting.values():
            for event in events:
                event.set()

    async def stream(
        self, resource: Resource, query: Query, options: WatchOptions, render: Render
    ) -> AsyncIterator[bytes]:
        """Yield the lines of a watch; each chunk has all lines that are available."""
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()
        self._waiting[resource.name].add(changed)
        feed = _Feed(self._store, resource, query, render)
        try:
            end = loop.time() + options.seconds
            yield feed.first(options)
            bookmark = _next_bookmark(loop.time(), end, options)
            while not (self._closed or feed.broken or loop.time() >= end):
                changed.clear()
                yield feed.news()
                if not self._is_served(resource):
                    return
                if loop.time() >= bookmark:
                    yield feed.bookmark()
                    bookmark = _next_bookmark(loop.time(), end, options)
                await _wait(changed, min(bookmark, end) - loop.time())
        finally:
            self._waiting[resource.name].discard(changed)

    def _is_served(self, resource: Resource) -> bool:
        return self._store.resources.find(resource.api_version, resource.plural) == resource

    def _wake(self, resource: Resource, _change: Change) -> None:
        names = list(self._waiting) if resource is CUSTOM_RESOURCE_DEFINITIONS else [resource.name]
        for event in (event for name in names for event in self._waiting.get(name, ())):
            event.set()


class _Feed:
    """The position of one watch in the history."""

    def __init__(self, store: Store, resource: Resource, query: Query, render: Render) -> None:
        self.broken = False
        self._store, self._resource, self._render = store, resource, render
        self._query = replace(query, limit=0, continue_token="", resource_version="", match="")
        self._matches = query.matcher(resource) or (lambda _obj: True)
        self._from_now = query.resource_version in ("", "0")
        self._revision = store.revision if self._from_now else parse_revision(query.resource_version)

    def first(self, options: WatchOptions) -> bytes:
        """Return the lines of the existing objects, unless the watch resumes at a resourceVersion."""
        if not (self._from_now or options.initial_events):
            return b""
        self._revision = self._store.revision
        lines = [self._line("ADDED", obj) for obj in self._store.list(self._resource, self._query).items]
        return b"".join(lines) + (self.bookmark(initial=True) if options.initial_events else b"")

    def news(self) -> bytes:
        """Return the lines of the changes since the last call."""
        newest = self._store.revision
        try:
            changes = self._store.changes(self._resource, self._revision)
        except StatusError as error:
            self.broken = True
            return _encoded("ERROR", error.as_status())
        self._revision = max(self._revision, newest)
        return b"".join(self._lines(changes))

    def bookmark(self, *, initial: bool = False) -> bytes:
        """Return a bookmark with the position of this watch."""
        metadata: dict[str, Any] = {"resourceVersion": str(self._revision)}
        metadata |= {"annotations": {"k8s.io/initial-events-end": "true"}} if initial else {}
        kind = {"kind": self._resource.kind, "apiVersion": self._resource.api_version}
        return _encoded("BOOKMARK", kind | {"metadata": metadata})

    def _lines(self, changes: Iterable[Change]) -> Iterable[bytes]:
        """Yield the lines of changes: an object that starts or stops matching is ADDED or DELETED."""
        for change in changes:
            if self._query.namespace not in ("", change.key[0]):
                continue
            before = change.previous is not None and self._matches(change.previous)
            after = change.type != "DELETED" and self._matches(change.obj)
            if before or after:
                yield self._line("MODIFIED" if before and after else "ADDED" if after else "DELETED", change.obj)

    def _line(self, change: str, obj: Object) -> bytes:
        return _encoded(change, self._render(obj))


def _encoded(change: str, obj: Object) -> bytes:
    return to_json({"type": change, "object": obj}) + b"\n"


def _next_bookmark(now: float, end: float, options: WatchOptions) -> float:
    if not options.bookmarks:
        return end + 1
    last = end - _LAST_BOOKMARK
    periodic = now + options.bookmark_seconds
    return min(periodic, last) if now < last else periodic


async def _wait(changed: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(max(0, seconds)):
            await changed.wait()
    except TimeoutError:
        return
