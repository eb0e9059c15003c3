"""The Cluster port over the store of the embedded API server, without HTTP."""

import hashlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from email.utils import format_datetime
from functools import partial
from typing import Any

from shared.adapters.clock import ServerClock, ServerTime
from shared.adapters.kubernetes.bodies import GoneError, as_target, raise_for, typed
from shared.adapters.kubernetes.cluster import Memory
from shared.adapters.kubernetes.discovery import Discovery
from shared.adapters.kubernetes.requests import object_path
from shared.adapters.kubernetes.usage_lists import discover_listable
from shared.core.kinds.rule import KindRule
from shared.core.policy.usage import CONFIG_MAPS, SECRETS
from shared.core.references.reference import TargetKind
from shared.core.values.jsontext import parse_json
from shared.core.values.objects import ObjectRef, get_text, ref_of
from shared.devserver.apiserver import DeleteOptions, Query, Resource, StatusError, Store, WriteOptions
from shared.devserver.apiserver.discovery import AGGREGATED as DISCOVERY_TYPE
from shared.devserver.apiserver.discovery import discover
from shared.devserver.apiserver.errors import no_such_resource
from shared.devserver.apiserver.pod_logs import read_log
from shared.devserver.apiserver.resources import EVENTS
from shared.devserver.apiserver.writes import copied, merge_patch
from shared.errors import AbsentKindError, ConflictError, ForbiddenError, MissingLogError, PermanentError
from shared.ports import EventLevel, ListableKind, ListableKinds, Page, Propagation, Snapshot, Target, TargetPage

PAGE_SIZE = 500
_ANY = ObjectRef("", "", "", "", "")
_RULES = {TargetKind.SECRET: SECRETS, TargetKind.CONFIG_MAP: CONFIG_MAPS}
_WRITE = WriteOptions(manager="ttl-after-finished")


def target_of(obj: dict[str, Any], kind: TargetKind, read_at: datetime) -> Target:
    """A Secret or a ConfigMap of the store without its data, as the adapter reads it from a Table."""
    target = as_target(obj, kind)
    if kind is TargetKind.SECRET:
        target["type"] = obj.get("type") or "Opaque"
    return Target(target, read_at, len(obj.get("data") or ()) + len(obj.get("binaryData") or ()))


class StoreCluster:
    """The double of `shared.ports.Cluster` and `UsageCluster`: the contract suite compares it with KubernetesCluster.

    Discovery, the clock and the errors are those of the adapter. Subclasses override `send` for a network, and the
    other methods for what a test injects.

    Args:
        store: The objects.
        monotonic: A monotonic clock, in seconds.
        memory: The objects that a watch in this process received; None if it has no watch.
        page_size: Objects on a page of a LIST.
    """

    def __init__(
        self, store: Store, monotonic: Callable[[], float], memory: Memory | None = None, page_size: int = PAGE_SIZE
    ) -> None:
        self.store = store
        self.memory = memory
        self.journaled: list[dict[str, Any]] = []
        self.page_size = page_size
        self.server_clock = ServerClock(monotonic)
        self._discovery = Discovery(self._ask, monotonic)
        self._time = ServerTime(self.server_clock, self.read_version, monotonic)

    async def served(self, rules: Sequence[KindRule]) -> tuple[KindRule, ...]:
        return await self._discovery.served(rules)

    async def is_aggregated(self, rule: KindRule) -> bool:
        """The embedded API server has no APIServices."""
        return False

    async def get(self, rule: KindRule, ref: ObjectRef) -> Snapshot | None:
        (obj, read_at), rule = await self.request_of("GET", rule, ref, lambda one: self.read_object(one, ref))
        return None if obj is None else Snapshot(self.seen(typed(obj, rule)), read_at)

    async def get_cached(self, ref: ObjectRef, *, due_at: datetime) -> Snapshot | None:
        if self.memory is None or self.memory.get(ref.uid) is None:
            return None
        read_at, cached = await self._time.now(due_at), self.memory.get(ref.uid)
        return None if cached is None or read_at is None else Snapshot(parse_json(cached), self.time_of(read_at))

    async def present(self, obj: dict[str, Any], *, due_at: datetime) -> Snapshot | None:
        read_at = await self._time.now(due_at)
        return None if read_at is None else Snapshot(obj, self.time_of(read_at))

    async def delete(self, rule: KindRule, obj: dict[str, Any], *, propagation: Propagation | None = None) -> bool:
        uid, version = get_text(obj, "metadata.uid"), get_text(obj, "metadata.resourceVersion")
        if not uid or not version:
            raise PermanentError("DELETE: expected metadata.uid and metadata.resourceVersion")
        ref, options = ref_of(obj), self.options(uid, version, propagation or rule.propagation)
        (deleted, _), _ = await self.request_of("DELETE", rule, ref, lambda one: self.delete_object(one, ref, options))
        if self.memory:
            self.memory.forget(uid)
        return deleted is not None

    async def patch(self, rule: KindRule, ref: ObjectRef, patch: dict[str, Any], *, manager: str = "") -> Snapshot:
        """See `shared.usecases.hold.Editor`."""

        def act(one: KindRule) -> Any:
            return self.store.patch(self.resource(one), ref.namespace, ref.name, merge_patch(patch), options)

        options = WriteOptions(manager=manager) if manager else _WRITE
        (obj, read_at), rule = await self.request_of("PATCH", rule, ref, act)
        if obj is None:
            raise ConflictError(f"{ref} no longer exists")
        return Snapshot(typed(obj, rule), read_at)

    async def list_page(
        self,
        rule: KindRule,
        *,
        namespace: str = "",
        continue_token: str = "",
        resource_version: str = "",
        metadata_only: bool = False,
    ) -> Page:
        exact = {} if continue_token or not resource_version else {"resource_version": resource_version}
        query = Query(namespace, limit=self.page_size, continue_token=continue_token, **exact)
        ref = ObjectRef(rule.api_version, rule.kind, namespace, continue_token[-6:], "")
        try:
            (page, read_at), rule = await self.request_of(
                "LIST", rule, ref, lambda one: self.store.list(self.resource(one), query)
            )
        except GoneError as gone:
            if gone.continue_token in ("", continue_token):
                raise
            return await self.list_page(
                rule, namespace=namespace, continue_token=gone.continue_token, metadata_only=metadata_only
            )
        items = [self.seen(typed(copied(obj), rule)) for obj in page.items]
        if metadata_only:
            items = [{name: obj[name] for name in ("apiVersion", "kind", "metadata")} for obj in items]
        return Page(items, read_at, page.continue_token, page.resource_version)

    # What finds references: `shared.ports.cluster.UsageCluster`

    async def list_kinds(self) -> ListableKinds:
        core, read_at = await self.request("DISCOVER", "", _ANY, partial(self._discover, "/api"))
        named, _ = await self.request("DISCOVER", "", _ANY, partial(self._discover, "/apis"))
        return await discover_listable(core, named, self._ask, read_at)

    async def list_objects(self, kind: ListableKind, *, namespace: str = "", continue_token: str = "") -> Page:
        if kind.target is not None:
            raise PermanentError(f"{kind.name}: expected another kind, since the data of these is never read")
        page, read_at = await self._list(kind, namespace, continue_token)
        items = [self.seen(typed(copied(obj), kind)) for obj in page.items]
        return Page(items, read_at, page.continue_token, page.resource_version)

    async def list_targets(self, kind: TargetKind, *, namespace: str = "", continue_token: str = "") -> TargetPage:
        page, read_at = await self._list(_RULES[kind], namespace, continue_token)
        targets = [target_of(self.seen(copied(obj)), kind, read_at) for obj in page.items]
        return TargetPage(targets, read_at, page.continue_token, page.resource_version)

    async def get_target(self, kind: TargetKind, namespace: str, name: str) -> Target | None:
        rule, ref = _RULES[kind], ObjectRef("v1", kind, namespace, name, "")
        object_path(rule, namespace, name)
        obj, read_at = await self.request("GET", kind, ref, lambda: self.read_object(rule, ref), missing_ok=True)
        return None if obj is None else target_of(self.seen(obj), kind, read_at)

    async def get_with_data(self, kind: TargetKind, namespace: str, name: str) -> Snapshot | None:
        rule, ref = _RULES[kind], ObjectRef("v1", kind, namespace, name, "")
        obj, read_at = await self.request("GET", kind, ref, lambda: self.read_object(rule, ref), missing_ok=True)
        return None if obj is None else Snapshot(self.seen(obj), read_at)

    async def _list(self, kind: Any, namespace: str, token: str) -> tuple[Any, datetime]:
        query = Query(namespace, limit=self.page_size, continue_token=token)
        ref = ObjectRef(kind.api_version, kind.kind, namespace, token[-6:], "")
        try:
            act = partial(self._list_now, kind, query)
            return await self.request("LIST", kind.kind, ref, act, missing_ok=True)
        except GoneError as gone:
            if gone.continue_token in ("", token):
                raise
            return await self._list(kind, namespace, gone.continue_token)

    def _list_now(self, kind: Any, query: Query) -> Any:
        return self.store.list(self.resource(kind), query)

    def _discover(self, path: str) -> Any:
        return discover(self.store.resources, path, DISCOVERY_TYPE)

    async def logs(self, pod: ObjectRef, container: str, *, bytes_max: int) -> AsyncGenerator[bytes]:
        def act() -> Any:
            return read_log(self.store, pod.namespace, pod.name, container, bytes_max=bytes_max)

        try:
            text, _ = await self.request("LOG", "Pod", pod, act)
        except ForbiddenError:
            raise
        except PermanentError as error:
            raise MissingLogError(str(error)) from None
        if text:
            yield text

    async def record_event(self, ref: ObjectRef, reason: str, message: str, *, level: EventLevel = "Warning") -> None:
        digest = hashlib.sha256(f"{ref}/{ref.uid}/{reason}/{message}".encode()).hexdigest()[:16]
        names = {"apiVersion": ref.api_version, "kind": ref.kind, "namespace": ref.namespace, "name": ref.name}
        event = {
            "metadata": {"name": f"{ref.name[:200].rstrip('.-')}.{digest}"},
            "involvedObject": names | {"uid": ref.uid},
            "type": level,
            "reason": reason,
            "message": message[:1_000],
        }
        with suppress(ConflictError):
            await self.request("POST", "Event", ref, lambda: self.write_event(ref.namespace or "default", event))

    async def create_event(self, event: Mapping[str, Any]) -> None:
        self.journaled.append(dict(event))

    async def read_version(self) -> None:
        """GET /version, as `KubernetesCluster.check` does."""
        await self.request("VERSION", "", _ANY, dict)

    # One request

    async def request_of(
        self, verb: str, rule: KindRule, ref: ObjectRef, act: Callable[[KindRule], Any]
    ) -> tuple[tuple[Any, datetime], KindRule]:
        """Make one request for objects of a kind, as `VersionedApiServer.request_of` does; the result may be None."""

        async def request(served: KindRule) -> tuple[Any, datetime]:
            if verb != "LIST":
                object_path(served, ref.namespace, ref.name)  # raises for a name that no object can have
            return await self.request(verb, served.kind, ref, lambda: act(served), missing_ok=True)

        return await self._discovery.call_as_served(rule, request)

    async def request(
        self, verb: str, kind: str, ref: ObjectRef, act: Callable[[], Any], *, missing_ok: bool = False
    ) -> tuple[Any, datetime]:
        """Make one request; return a copy of the result and the time of the answer, as `ApiServer.request` does."""
        result, at = await self.send(verb, kind, ref, act)
        read_at = self.server_clock.observe(format_datetime(at.replace(microsecond=0), usegmt=True))
        assert read_at is not None
        if not isinstance(result, StatusError):
            return (copied(result) if isinstance(result, dict) else result), self.time_of(read_at)
        details = result.details or {}
        if result.code == 404 and missing_ok:
            if "name" not in details:
                raise AbsentKindError(str(result))
            return None, read_at
        headers = {"retry-after": str(details.get("retryAfterSeconds", 1))}
        raise_for(result.code, result.as_status(), headers=headers, path=f"{verb} {kind}")
        raise AssertionError(result)

    async def send(self, verb: str, kind: str, ref: ObjectRef, act: Callable[[], Any]) -> tuple[Any, datetime]:
        """Send one request; return its result or the refusal, and the time of the API server when it answered."""
        return self.answer(act), self.store.clock()

    def answer(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except StatusError as refusal:
            return refusal

    async def _ask(self, path: str) -> Any:
        """Read a document of discovery."""

        def look() -> Any:
            document = discover(self.store.resources, path, "")
            if document is None:
                raise no_such_resource()
            return document

        document, _ = await self.request("DISCOVER", "", ObjectRef("", "", "", path, ""), look, missing_ok=True)
        return document

    # What the API server does

    def resource(self, rule: KindRule) -> Resource:
        """Return the resource at the path of a rule."""
        resource = self.store.resources.find(rule.api_version, rule.plural)
        if resource is None:
            raise no_such_resource()
        return resource

    def read_object(self, rule: KindRule, ref: ObjectRef) -> Any:
        return self.store.get(self.resource(rule), ref.namespace, ref.name)

    def delete_object(self, rule: KindRule, ref: ObjectRef, options: DeleteOptions) -> Any:
        return self.store.delete(self.resource(rule), ref.namespace, ref.name, options)

    def write_event(self, namespace: str, event: dict[str, Any]) -> Any:
        return self.store.create(EVENTS, namespace, event, _WRITE)

    # What a mutant of the simulation gets wrong

    def options(self, uid: str, version: str, propagation: str) -> DeleteOptions:
        return DeleteOptions(uid=uid, resource_version=version, propagation=propagation)

    def seen(self, obj: dict[str, Any]) -> dict[str, Any]:
        return obj

    def time_of(self, read_at: datetime) -> datetime:
        return read_at
