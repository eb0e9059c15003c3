"""The objects of a cluster: what the use cases ask of the API server, and the watches of our own source."""

import hashlib
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from kubernetes.aio.client import ApiClient

from shared.adapters.following import FollowingApiServer, collection_path, object_path
from shared.adapters.memory import Memory
from shared.adapters.refusals import GoneError, TooLargeError, UnreadableError
from shared.core.kinds import KindRule
from shared.core.objects import ObjectRef, format_instant, get_in, get_text, list_mappings, ref_of
from shared.core.objects import quote as excerpt
from shared.errors import AbsentKindError, ConflictError, PermanentError, TryLaterError
from shared.ports import EventLevel, Page, Snapshot

PAGE_LIMIT = 500
PAGE_BYTES_MAX = 16 * 1024 * 1024
"""Of a LIST's answer; in memory it is several times as much. One object is at most some 9 MiB of JSON."""
_FEWER = 4
"""So many times fewer objects are asked for where a page was too large."""

WATCH_SECONDS = 300
TOLD_MAX = 10_000
"""Events this process has written lately and need not write again at every sweep."""

_log = logging.getLogger("ttl")
_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change: ADDED, MODIFIED, DELETED or BOOKMARK, and the object; UNREADABLE, and nothing."""

    type: str
    obj: dict[str, Any]


class KubernetesCluster(FollowingApiServer):
    """A cluster: what `shared.ports.Cluster` says, and watches.

    Args:
        client: Configured; this object closes it.
        memory: Where a watch in this process keeps what it brings; None where there is none.
        options: See `ApiServer`.
    """

    def __init__(self, client: ApiClient, memory: Memory | None = None, **options: Any) -> None:
        super().__init__(client, **options)
        self.memory = memory
        self._told: dict[str, None] = {}
        self._page_limits: dict[str, int] = {}

    async def get(self, rule: KindRule, ref: ObjectRef) -> Snapshot | None:
        """See `shared.ports.Cluster`."""
        answer, rule = await self.request_of(rule, "GET", lambda one: object_path(one, ref.namespace, ref.name))
        return None if answer is None else Snapshot(_typed(answer.body, rule), answer.read_at)

    def recall(self, ref: ObjectRef) -> Snapshot | None:
        """See `shared.ports.Cluster`."""
        remembered = self.memory.get(ref.uid) if self.memory else None
        read_at = self._clock.now()
        if remembered is None or read_at is None:
            return None
        try:
            return Snapshot(json.loads(remembered), read_at)
        except RecursionError:
            return None

    async def delete(self, rule: KindRule, obj: dict[str, Any]) -> bool:
        """See `shared.ports.Cluster`.

        All options stand in the body: beside a body the API server does not read query parameters.
        """
        uid, version = get_text(obj, "metadata.uid"), get_text(obj, "metadata.resourceVersion")
        if not uid or not version:
            raise PermanentError("expected metadata.uid and metadata.resourceVersion to delete by")
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid, "resourceVersion": version},
            "propagationPolicy": rule.propagation,
        }
        namespace, name = get_text(obj, "metadata.namespace"), get_text(obj, "metadata.name")
        answer, _ = await self.request_of(rule, "DELETE", lambda one: object_path(one, namespace, name), body=options)
        if self.memory:
            self.memory.forget(uid)
        return answer is not None

    async def patch(self, rule: KindRule, ref: ObjectRef, patch: dict[str, Any]) -> Snapshot:
        """See `shared.usecases.hold.Editor`."""
        path_of = partial(object_path, namespace=ref.namespace, name=ref.name)
        answer, rule = await self.request_of(rule, "PATCH", path_of, body=patch)
        if answer is None:
            raise ConflictError(f"{ref} is gone")
        return Snapshot(_typed(answer.body, rule), answer.read_at)

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

        Whoever may create large objects must not make a page that no process can hold: it is asked for in smaller ones.
        """
        ask = partial(
            self._list_page,
            rule,
            namespace=namespace,
            continue_token=continue_token,
            resource_version=resource_version,
            metadata_only=metadata_only,
        )
        while True:
            fewer = min(limit, self._page_limits.get(rule.name, limit))
            try:
                page = await ask(limit=fewer)
            except TooLargeError:
                if fewer == 1:
                    raise
                self._page_limits[rule.name] = max(1, fewer // _FEWER)
            else:
                if rule.name in self._page_limits:  # the next objects may be of the usual size
                    self._page_limits[rule.name] = min(PAGE_LIMIT, fewer * 2)
                return page

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
        accept = _METADATA_ONLY if metadata_only else "application/json"
        try:
            answer, rule = await self.request_of(
                rule, "GET", lambda one: collection_path(one, namespace, query), accept=accept, bytes_max=PAGE_BYTES_MAX
            )
        except UnreadableError:
            if metadata_only:
                raise
            return await self._list_one_by_one(rule, namespace, continue_token, resource_version, limit)
        except GoneError as gone:
            if not gone.continue_token or gone.continue_token == continue_token:
                raise
            return await self.list_page(
                rule, namespace=namespace, continue_token=gone.continue_token, metadata_only=metadata_only, limit=limit
            )
        if answer is None:
            raise AbsentKindError(f"{rule.plural} of {rule.api_version} are not served by this cluster")
        return Page(
            items=[_typed(item, rule) for item in list_mappings(answer.body, "items")],
            read_at=answer.read_at,
            continue_token=get_text(answer.body, "metadata.continue"),
            resource_version=get_text(answer.body, "metadata.resourceVersion"),
        )

    async def _list_one_by_one(
        self, rule: KindRule, namespace: str, continue_token: str, resource_version: str, limit: int
    ) -> Page:
        """A page on which one object cannot be read, without that one: whoever made it must not hide the others."""
        page = await self.list_page(
            rule,
            namespace=namespace,
            continue_token=continue_token,
            resource_version=resource_version,
            metadata_only=True,
            limit=limit,
        )
        items = []
        for ref in map(ref_of, page.items):
            try:
                snapshot = await self.get(rule, ref)
            except UnreadableError as error:
                _log.warning("object passed over", extra={"fields": {"object": str(ref), "error": str(error)}})
            else:
                items += [snapshot.obj] if snapshot else []
        return replace(page, items=items)

    async def record_event(self, ref: ObjectRef, reason: str, message: str, *, level: EventLevel = "Warning") -> None:
        """See `shared.ports.Cluster`. Its name is made from what it says, so the same one again is a 409."""
        digest = hashlib.sha256(f"{ref.uid}/{reason}/{message}".encode()).hexdigest()[:16]
        if digest in self._told:
            return
        namespace = ref.namespace or "default"
        if self._clock.now() is None:  # who writes first and reads later, as a dead letter function
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
        self._told[digest] = None
        if len(self._told) > TOLD_MAX:
            del self._told[next(iter(self._told))]

    async def watch(
        self, rule: KindRule, resource_version: str, *, namespace: str = "", seconds: int = WATCH_SECONDS
    ) -> AsyncIterator[WatchEvent]:
        """The changes after a resourceVersion, bookmarks included, until the server ends the watch.

        Raises:
            AbsentKindError: The kind is not served where it was: list anew, which finds out.
            GoneError: The resourceVersion is too old: list anew.
            TryLaterError: The connection broke; go on from the last resourceVersion.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(seconds),
        }
        rule = self.known(rule)
        path = collection_path(rule, namespace, query)
        async with aclosing(self.stream(path, idle_seconds=seconds + 30)) as lines:
            async for line in lines:
                yield _parse_watch_line(line, rule)


def _parse_watch_line(line: bytes, rule: KindRule) -> WatchEvent:
    try:
        change = json.loads(line)
    except RecursionError:
        return WatchEvent("UNREADABLE", {})
    except ValueError as error:
        raise TryLaterError(f"watch of {rule.plural} broke: {error}") from None
    obj = get_in(change, "object")
    if not isinstance(obj, dict):
        raise TryLaterError(f"watch of {rule.plural} broke: expected a change of an object, got {excerpt(change)}")
    if change.get("type") == "ERROR":
        if obj.get("code") == HTTPStatus.GONE:
            raise GoneError(get_text(obj, "message"))
        raise TryLaterError(f"watch of {rule.plural} ended: {get_text(obj, 'message')}")
    return WatchEvent(change.get("type", ""), _typed(obj, rule))


def _typed(obj: Mapping[str, Any], rule: KindRule) -> dict[str, Any]:
    """The items of a built-in kind's LIST carry no apiVersion and kind, those of a metadata LIST carry others."""
    return {**obj, "apiVersion": rule.api_version, "kind": rule.kind}
