"""The objects of a cluster: read, LIST, DELETE, patch, record Events, and watch.

Each line of a watch is parsed only as far as its change needs it. The last version of objects that it received is kept,
so that a due object of a known version is deleted without reading it again.
"""

import hashlib
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import msgspec
from cachetools import FIFOCache

from shared.adapters.clock import ServerTime
from shared.adapters.kubernetes.bodies import (
    PAGE_BYTES_MAX,
    PAGE_LIMIT,
    GoneError,
    ListReader,
    PathKind,
    Unread,
    accept_list,
    accept_one,
    accept_write,
    read_one,
    read_outcome,
    read_written,
    typed,
    upper,
    write_query,
)
from shared.adapters.kubernetes.requests import LEAVE_SECONDS_MAX, object_path, resource_path
from shared.adapters.kubernetes.transport import Transport
from shared.adapters.kubernetes.usage_lists import ListingApiServer, page_of
from shared.core.kinds.rule import KindRule
from shared.core.values.jsontext import JSON_DEPTH_MAX, JsonLimitError, check_json, parse_json
from shared.core.values.objects import ObjectRef, format_instant, get_in, get_text
from shared.core.values.objects import quote as excerpt
from shared.errors import AbsentKindError, ConflictError, PermanentError, TryLaterError
from shared.ports import EventLevel, Page, Propagation, Snapshot


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A change of an object.

    Attributes:
        type: ADDED, MODIFIED, DELETED or BOOKMARK; UNREADABLE for an object that exceeds a limit.
        obj: The object; of an UNREADABLE one, the readable part of its metadata.
        problem: The limit that an UNREADABLE object exceeds; empty for other types.
        raw: The JSON of exactly `obj`, as the API server wrote it; empty if there is none.
    """

    type: str
    obj: dict[str, Any]
    problem: str = ""
    raw: bytes = b""


def parse_watch_line(line: bytes, rule: PathKind) -> WatchEvent:
    """Parse one line of a watch.

    Raises:
        GoneError: The resourceVersion of the watch is too old: LIST again.
        TryLaterError: The line is not a change, or is an error: watch again from the last resourceVersion.
    """
    try:
        change = parse_change(line)
    except ValueError as error:
        raise TryLaterError(f"watch of {rule.plural} broke: {error}") from None
    if isinstance(change, Unread):
        return WatchEvent("UNREADABLE", typed(change.obj, rule), change.problem)
    obj = get_in(change, "object")
    if not isinstance(obj, dict):
        raise TryLaterError(f"watch of {rule.plural} broke: expected a change of an object, got {excerpt(change)}")
    if change.get("type") == "ERROR":
        if obj.get("code") == HTTPStatus.GONE:
            raise GoneError(get_text(obj, "message"))
        raise TryLaterError(f"watch of {rule.plural} ended: {get_text(obj, 'message')}")
    is_typed = (obj.get("apiVersion"), obj.get("kind")) == (rule.api_version, rule.kind)
    return WatchEvent(change.get("type", ""), typed(obj, rule), raw=change.get("raw", b"") if is_typed else b"")


def parse_change(line: bytes) -> Any | Unread:
    """Parse one line of a watch; return the upper levels of an object that exceeds a limit.

    Raises:
        ValueError: The line is not JSON.
    """
    try:
        return _parse_usual(line) or parse_json(line, depth_max=JSON_DEPTH_MAX + 1)
    except JsonLimitError as error:
        change = upper(line, b"object", b"metadata")
        obj = change.get("object")
        return Unread(obj if isinstance(obj, dict) else {}, str(error))


class _Line(msgspec.Struct):
    """A line of a watch, whose object is not parsed yet."""

    type: str
    object: msgspec.Raw


class _Identity(msgspec.Struct):
    uid: str
    name: str
    namespace: str = ""
    resourceVersion: str = ""  # noqa: N815 - the name of the field


class _Deleted(msgspec.Struct):
    """What a watch needs of a deleted object."""

    metadata: _Identity


_LINES = msgspec.json.Decoder(_Line)
_DELETED = msgspec.json.Decoder(_Deleted)
_OBJECTS = msgspec.json.Decoder(dict[str, Any])


def _parse_usual(line: bytes) -> dict[str, Any] | None:
    """Parse a change of an object, with `raw`, the JSON of the object; of a deleted object, only its identity.

    None for any other line, and for JSON that msgspec refuses.

    Raises:
        JsonLimitError: The line exceeds a limit.
    """
    check_json(line, depth_max=JSON_DEPTH_MAX + 1)
    with suppress(msgspec.MsgspecError, ValueError, RecursionError):
        change = _LINES.decode(line)
        if change.type == "DELETED":
            return {"type": change.type, "object": msgspec.to_builtins(_DELETED.decode(change.object))}
        if change.type in ("ADDED", "MODIFIED"):
            return {"type": change.type, "object": _OBJECTS.decode(change.object), "raw": bytes(change.object)}
    return None


WATCHED_BYTES_MAX = 64 * 1024 * 1024
"""Maximum total size of the JSON; the objects received longest ago are dropped first."""


class Memory:
    """A bounded map from uid to an object's JSON."""

    def __init__(self, bytes_max: int = WATCHED_BYTES_MAX) -> None:
        self._objects: FIFOCache[str, bytes] = FIFOCache(bytes_max, getsizeof=len)

    def remember(self, uid: str, obj: bytes) -> None:
        """Store a version of an object, and drop an earlier one."""
        self.forget(uid)
        with suppress(ValueError):  # one object is larger than the bound
            self._objects[uid] = obj

    def forget(self, uid: str) -> None:
        """Drop an object that is deleted, or that has a new version that need not be stored."""
        self._objects.pop(uid, None)

    def get(self, uid: str) -> bytes | None:
        """Return the JSON of the last received version, or None."""
        return self._objects.get(uid)


WATCH_SECONDS = 300
EVENTS_REMEMBERED_MAX = 10_000
"""Maximum number of Events that this process remembers, so that it does not write them again at each sweep."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class KubernetesCluster(ListingApiServer):
    """A cluster: implements `shared.ports.Cluster` and `shared.ports.cluster.UsageCluster`, and watches.

    Args:
        transport: See `ApiServer`.
        memory: The objects that a watch in this process received; None if it has no watch.
        options: See `ApiServer`.
    """

    def __init__(self, transport: Transport, memory: Memory | None = None, **options: Any) -> None:
        super().__init__(transport, **options)
        self.memory = memory
        self._recorded_events: dict[str, None] = {}
        self._time = ServerTime(self._clock, self.check, time.monotonic)

    async def get(self, rule: KindRule, ref: ObjectRef) -> Snapshot | None:
        """See `shared.ports.Cluster`."""
        path_of = partial(object_path, namespace=ref.namespace, name=ref.name)
        answer, rule = await self.request_of(rule, "GET", path_of, accept=accept_one(rule))
        return None if answer is None else Snapshot(read_one(answer.body, rule), answer.read_at, answer.ahead)

    async def get_cached(self, ref: ObjectRef, *, due_at: datetime) -> Snapshot | None:
        """See `shared.ports.Cluster`."""
        if self.memory is None or self.memory.get(ref.uid) is None:
            return None
        read_at, cached = await self._time.now(due_at), self.memory.get(ref.uid)
        if cached is None or read_at is None:
            return None
        try:
            return Snapshot(parse_json(cached), read_at, self._clock.ahead)
        except ValueError:
            return None

    async def present(self, obj: dict[str, Any], *, due_at: datetime) -> Snapshot | None:
        """See `shared.ports.Cluster`."""
        read_at = await self._time.now(due_at)
        return Snapshot(obj, read_at, self._clock.ahead) if read_at else None

    async def delete(self, rule: KindRule, obj: dict[str, Any], *, propagation: Propagation | None = None) -> bool:
        """See `shared.ports.Cluster`.

        All options are in the body, since the API server ignores query parameters if a request has a body.
        """
        uid, version = get_text(obj, "metadata.uid"), get_text(obj, "metadata.resourceVersion")
        if not uid or not version:
            raise PermanentError(
                "DELETE: expected metadata.uid and metadata.resourceVersion, got an object without them"
            )
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid, "resourceVersion": version},
            "propagationPolicy": propagation or rule.propagation,
        }
        namespace, name = get_text(obj, "metadata.namespace"), get_text(obj, "metadata.name")
        leave_by = time.monotonic() + LEAVE_SECONDS_MAX
        path_of = partial(object_path, namespace=namespace, name=name, query=write_query(rule))
        answer, _ = await self.request_of(
            rule, "DELETE", path_of, body=options, accept=accept_write(rule), leave_by=leave_by, read=read_outcome
        )
        if self.memory:
            self.memory.forget(uid)
        return answer is not None

    async def patch(self, rule: KindRule, ref: ObjectRef, patch: dict[str, Any], *, manager: str = "") -> Snapshot:
        """See `shared.ports.Cluster`."""
        query = write_query(rule) | ({"fieldManager": manager} if manager else {})
        path_of = partial(object_path, namespace=ref.namespace, name=ref.name, query=query)
        leave_by = time.monotonic() + LEAVE_SECONDS_MAX
        answer, rule = await self.request_of(
            rule, "PATCH", path_of, body=patch, accept=accept_write(rule), leave_by=leave_by
        )
        if answer is None:
            raise ConflictError(f"{ref} no longer exists")
        return Snapshot(read_written(answer.body, rule, ref), answer.read_at, answer.ahead)

    async def list_page(  # noqa: PLR0913 - each argument is one of the API's
        self,
        rule: KindRule,
        *,
        namespace: str = "",
        continue_token: str = "",
        resource_version: str = "",
        metadata_only: bool = False,
        limit: int = PAGE_LIMIT,
    ) -> Page:
        """See `shared.ports.Cluster`.

        If a page is too large, it is requested again with fewer objects. A single object that is too large is left out.
        """
        query = {"continue": continue_token} if continue_token else {}
        if resource_version and not continue_token:
            query = {"resourceVersion": resource_version, "resourceVersionMatch": "Exact"}
        accept = accept_list(rule, metadata_only=metadata_only)

        async def ask(current: int) -> Page:
            reader = ListReader(PAGE_BYTES_MAX, is_single=current == 1)
            path_of = partial(resource_path, namespace=namespace, query={"limit": str(current), **query})
            try:
                answer, served = await self.request_of(rule, "GET", path_of, accept=accept, read=reader.read)
            except GoneError as gone:
                if not gone.continue_token or gone.continue_token == continue_token:
                    raise
                again = partial(self.list_page, rule, namespace=namespace, continue_token=gone.continue_token)
                return await again(metadata_only=metadata_only, limit=current)
            if answer is None:
                raise AbsentKindError(f"this cluster does not serve {served.plural} of {served.api_version}")
            return page_of(answer, served, reader)

        return await self._page_limits.fit(rule.name, limit, ask)

    async def record_event(self, ref: ObjectRef, reason: str, message: str, *, level: EventLevel = "Warning") -> None:
        """See `shared.ports.Cluster`. The name of the Event is a hash of its content, so writing it again is a 409."""
        digest = hashlib.sha256(f"{ref}/{ref.uid}/{reason}/{message}".encode()).hexdigest()[:16]
        if digest in self._recorded_events:
            return
        namespace = ref.namespace or "default"
        if self._clock.now() is None:  # this process has not read yet, as in the dead letter function
            await self.check()
        now = format_instant((self._clock.now() or _EPOCH).replace(microsecond=0))
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{ref.name[:200].rstrip('.-')}.{digest}", "namespace": namespace},
            "involvedObject": {
                "apiVersion": ref.api_version,
                "kind": ref.kind,
                "namespace": ref.namespace,
                "name": ref.name,
                "uid": ref.uid,
            },
            "type": level,
            "reason": reason,
            "message": message[:1_000],
            "source": {"component": "ttl-after-finished"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        with suppress(ConflictError):
            await self.request("POST", f"/api/v1/namespaces/{quote(namespace, safe='')}/events", body=event)
        self._recorded_events[digest] = None
        if len(self._recorded_events) > EVENTS_REMEMBERED_MAX:
            del self._recorded_events[next(iter(self._recorded_events))]

    async def create_event(self, event: Mapping[str, Any]) -> None:
        """See `shared.ports.Cluster`."""
        namespace = quote(get_text(event, "metadata.namespace"), safe="")
        with suppress(ConflictError):
            await self.request("POST", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", body=event)

    async def watch(
        self, rule: KindRule, resource_version: str, *, namespace: str = "", seconds: int = WATCH_SECONDS
    ) -> AsyncIterator[WatchEvent]:
        """Yield the changes after a resourceVersion, bookmarks included, until the server ends the watch.

        Raises:
            AbsentKindError: The kind is no longer served at its path: LIST again, which finds the new path.
            GoneError: The resourceVersion is too old: LIST again.
            TryLaterError: The connection broke: watch again from the last resourceVersion.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(seconds),
        }
        rule = self.known(rule)
        path = resource_path(rule, namespace, query)
        async with aclosing(self.stream(path, idle_seconds=seconds + 30)) as lines:
            async for line in lines:
                yield parse_watch_line(line, rule)
