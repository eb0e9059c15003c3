"""The objects of a cluster: read, LIST, DELETE, patch, record Events, and watch."""

import hashlib
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import quote

from shared.adapters.clock import ServerTime
from shared.adapters.kubernetes.bodies import PAGE_BYTES_MAX, PAGE_LIMIT, ListReader, read_outcome, typed
from shared.adapters.kubernetes.discovery import object_path, resource_path
from shared.adapters.kubernetes.metadata_only import (
    accept_list,
    accept_one,
    accept_write,
    read_one,
    read_written,
    write_query,
)
from shared.adapters.kubernetes.refusals import GoneError
from shared.adapters.kubernetes.requests import LEAVE_SECONDS_MAX
from shared.adapters.kubernetes.transport import Transport
from shared.adapters.kubernetes.usage_lists import ListingApiServer
from shared.adapters.kubernetes.watch_lines import Memory, WatchEvent, parse_watch_line
from shared.core.kinds.rule import KindRule
from shared.core.values.jsontext import parse_json
from shared.core.values.objects import ObjectRef, format_instant, get_text, list_mappings, ref_of
from shared.errors import AbsentKindError, ConflictError, PermanentError
from shared.ports import EventLevel, Page, Propagation, Snapshot, Unreadable

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
        ask = partial(
            self._list_page,
            rule,
            namespace=namespace,
            continue_token=continue_token,
            resource_version=resource_version,
            metadata_only=metadata_only,
        )
        return await self._page_limits.fit(rule.name, limit, lambda current: ask(limit=current))

    async def _list_page(  # noqa: PLR0913 - as above
        self,
        rule: KindRule,
        *,
        namespace: str,
        continue_token: str,
        resource_version: str,
        metadata_only: bool,
        limit: int,
    ) -> Page:
        query = {"limit": str(limit)}
        if continue_token:
            query["continue"] = continue_token
        elif resource_version:
            query |= {"resourceVersion": resource_version, "resourceVersionMatch": "Exact"}
        accept = accept_list(rule, metadata_only=metadata_only)
        reader = ListReader(PAGE_BYTES_MAX, is_single=limit == 1)
        try:
            answer, rule = await self.request_of(
                rule, "GET", lambda one: resource_path(one, namespace, query), accept=accept, read=reader.read
            )
        except GoneError as gone:
            if not gone.continue_token or gone.continue_token == continue_token:
                raise
            return await self.list_page(
                rule, namespace=namespace, continue_token=gone.continue_token, metadata_only=metadata_only, limit=limit
            )
        if answer is None:
            raise AbsentKindError(f"this cluster does not serve {rule.plural} of {rule.api_version}")
        return Page(
            items=[typed(item, rule) for item in list_mappings(answer.body, "items")],
            read_at=answer.read_at,
            continue_token=get_text(answer.body, "metadata.continue"),
            resource_version=get_text(answer.body, "metadata.resourceVersion"),
            unreadable=[Unreadable(ref_of(typed(one.obj, rule)), one.problem) for one in reader.unread],
            is_large=reader.is_large,
            ahead=answer.ahead,
        )

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
