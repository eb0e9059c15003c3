"""The Cluster port over the embedded API store, through a network that fails."""

import asyncio
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from email.utils import format_datetime
from typing import Any

from shared.adapters.kubernetes.discovery import Discovery
from shared.adapters.kubernetes.server_clock import ServerClock
from shared.adapters.kubernetes.watched_versions import Memory
from shared.core.kinds.rule import KindRule
from shared.core.objects import ObjectRef, get_text
from shared.devserver.apiserver.deletion import DeleteOptions
from shared.devserver.apiserver.discovery import discover
from shared.devserver.apiserver.errors import StatusError
from shared.devserver.apiserver.listing import Query
from shared.devserver.apiserver.resources import Resource
from shared.errors import AbsentKindError, ConflictError, ForbiddenError, PermanentError, TryLaterError
from shared.ports import EventLevel, Page, Propagation, Snapshot
from tests.builders import not_none
from tests.simulation.faults import TIMEOUT_SECONDS, draw_fate
from tests.simulation.judging import judged

_AWAY = 0
_FORBIDDEN = 403
_NOT_FOUND = 404
_TOO_OLD = 410


class _RefusedError(Exception):
    """An answer without success."""

    def __init__(self, code: int, message: str = "", continue_token: str = "") -> None:
        super().__init__(message)
        self.code, self.continue_token = code, continue_token


class _NoPathError(_RefusedError):
    """A 404 that is about no object."""


class SimCluster:
    """One process's connection; it dies with its process, what it has sent does not.

    Answers carry a Date as HTTP does, whole seconds rounded down, and `get_cached` uses the adapters' own ServerClock.
    """

    def __init__(self, world: Any, memory: Memory | None) -> None:
        self.world = world
        self.memory = memory
        self.server_clock = ServerClock(world.loop.time)
        self._discovery = Discovery(self._ask, world.loop.time)

    async def served(self, rules: Sequence[KindRule]) -> tuple[KindRule, ...]:
        return await self._discovery.served(rules)

    async def is_aggregated(self, rule: KindRule) -> bool:
        return False

    async def get(self, rule: KindRule, ref: ObjectRef) -> Snapshot | None:
        try:
            (obj, read_at), rule = await self._call_of(
                "GET", rule, ref, lambda one: self._read(one, ref.namespace, ref.name)
            )
        except _RefusedError as error:
            if error.code == _NOT_FOUND:
                return None
            raise _translated(error) from None
        return Snapshot(self.seen(_in_version(obj, rule)), read_at)

    def get_cached(self, ref: ObjectRef) -> Snapshot | None:
        remembered = self.memory.get(ref.uid) if self.memory else None
        read_at = self.server_clock.now()
        if remembered is None or read_at is None:
            return None
        return Snapshot(json.loads(remembered), self.time_of(read_at))

    async def delete(self, rule: KindRule, obj: dict[str, Any], *, propagation: Propagation | None = None) -> bool:
        metadata = obj["metadata"]
        if known := judged.get():
            judged.set(known.sent(self.world.loop.time()))
        options = self.options(metadata["uid"], metadata["resourceVersion"], propagation or rule.propagation)
        ref = ObjectRef(rule.api_version, rule.kind, get_text(obj, "metadata.namespace"), metadata["name"], "")
        try:
            await self._call_of("DELETE", rule, ref, lambda one: self._delete(one, ref, metadata["uid"], options))
        except _RefusedError as error:
            if error.code == _NOT_FOUND:
                return False
            if error.code == _FORBIDDEN:
                self.world.checks.refused[metadata["uid"]] += 1
            raise _translated(error) from None
        if self.memory:
            self.memory.forget(metadata["uid"])
        return True

    async def list_page(
        self,
        rule: KindRule,
        *,
        namespace: str = "",
        continue_token: str = "",
        resource_version: str = "",
        metadata_only: bool = False,
    ) -> Page:
        limit = self.world.page_limit
        query = Query(namespace=namespace, limit=limit, continue_token=continue_token)
        if resource_version and not continue_token:
            query = Query(namespace=namespace, limit=limit, resource_version=resource_version, match="Exact")
        ref = ObjectRef(rule.api_version, rule.kind, namespace, continue_token[-6:], "")
        try:
            (page, read_at), rule = await self._call_of("LIST", rule, ref, lambda one: self._list(one, query))
        except _RefusedError as error:
            if error.code == _TOO_OLD and error.continue_token not in ("", continue_token):
                return await self.list_page(
                    rule, namespace=namespace, continue_token=error.continue_token, metadata_only=metadata_only
                )
            raise _translated(error) from None
        items = [self.seen(_in_version(obj, rule)) for obj in page.items]
        if metadata_only:
            items = [{name: obj[name] for name in ("apiVersion", "kind", "metadata")} for obj in items]
        return Page(items, read_at, page.continue_token, page.resource_version)

    async def record_event(self, ref: ObjectRef, reason: str, message: str, *, level: EventLevel = "Warning") -> None:
        try:
            await self._call("POST", "Event", ref, lambda: self.world.checks.message(ref, reason, message))
        except _RefusedError as error:
            raise _translated(error) from None

    # What a mutant may get wrong.

    def options(self, uid: str, version: str, propagation: str) -> DeleteOptions:
        return DeleteOptions(uid=uid, resource_version=version, propagation=propagation)

    def seen(self, obj: dict[str, Any]) -> dict[str, Any]:
        return obj

    def time_of(self, read_at: datetime) -> datetime:
        return read_at

    # The network.

    async def _ask(self, path: str) -> Any:
        """One look at discovery."""

        def look() -> Any:
            document = discover(self.world.store.resources, path, "")
            if document is None:
                raise _NoPathError(_NOT_FOUND)
            return document

        try:
            document, _ = await self._call("LOOK", "", ObjectRef("", "", "", path, ""), look)
        except _NoPathError:
            raise AbsentKindError(path) from None
        except _RefusedError as error:
            raise _translated(error) from None
        return document

    async def _call_of(
        self, verb: str, rule: KindRule, ref: ObjectRef, act: Callable[[KindRule], Any]
    ) -> tuple[tuple[Any, datetime], KindRule]:
        """One request for objects of a kind, wherever it is."""

        async def call(served: KindRule) -> tuple[Any, datetime]:
            try:
                return await self._call(verb, served.kind, ref, lambda: act(served))
            except _NoPathError as error:
                self.world.checks.went_astray()
                raise AbsentKindError(str(error)) from None

        return await self._discovery.following(rule, call)

    async def _call(self, verb: str, kind: str, ref: ObjectRef, act: Callable[[], Any]) -> tuple[Any, datetime]:
        """One request there and back; the API server acts when it arrives, even if the client no longer waits."""
        world = self.world
        fate = draw_fate(world.faults)
        world.checks.sent(verb, kind, ref)
        answer: asyncio.Future[tuple[Any, str]] = world.loop.create_future()

        def arrive() -> None:
            if answer.cancelled() and not fate.outlives:
                return
            result = world.server.handle(verb, kind, ref, fate, act)
            date = format_datetime(world.clocks.server().replace(microsecond=0), usegmt=True)
            if not answer.done():
                answer.set_result((result, date))

        world.loop.call_later(fate.there, arrive)
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                result, date = await answer
                await asyncio.sleep(fate.back)
        except TimeoutError:
            raise TryLaterError("no answer in time") from None
        if fate.answer_lost:
            raise TryLaterError("the connection broke before the answer")
        if isinstance(result, _RefusedError) and result.code == _AWAY:
            raise TryLaterError("connection refused")
        read_at = not_none(self.server_clock.observe(date))
        if isinstance(result, _RefusedError):
            raise result
        return result, self.time_of(read_at)

    def _resource(self, rule: KindRule) -> Resource:
        resource = self.world.store.resources.find(rule.api_version, rule.plural)
        if resource is None:
            raise _NoPathError(_NOT_FOUND, "the server could not find the requested resource")
        return resource

    def _read(self, rule: KindRule, namespace: str, name: str) -> dict[str, Any]:
        return self.world.store.get(self._resource(rule), namespace, name)

    def _list(self, rule: KindRule, query: Query) -> Any:
        return self.world.store.list(self._resource(rule), query)

    def _delete(self, rule: KindRule, ref: ObjectRef, uid: str, options: DeleteOptions) -> None:
        live = self._read(rule, ref.namespace, ref.name)
        options.check(self._resource(rule), live)
        self.world.checks.deleting(live, uid, options)
        self.world.store.delete(self._resource(rule), ref.namespace, ref.name, options)


class Server:
    """The API server's side of the network."""

    def __init__(self, world: Any) -> None:
        self.world = world

    def handle(self, verb: str, kind: str, ref: ObjectRef, fate: Any, act: Callable[[], Any]) -> Any:
        """Answer one request: a result, or the refusal."""
        world = self.world
        result = self._refusal(verb, kind, fate)
        if result is None:
            if verb == "LIST" and world.faults.happens(world.faults.compact):
                world.store.compact()
            if fate.interfered and verb == "DELETE":
                world.users.interfere(kind, ref.namespace, ref.name)
            try:
                with world.acting("system"):
                    result = act()
            except StatusError as error:
                result = _RefusedError(error.code, str(error), error.metadata.get("continue", ""))
            except _RefusedError as error:
                result = error
        code = result.code if isinstance(result, _RefusedError) else 200
        world.checks.answered(verb, kind, ref, code)
        return result

    def _refusal(self, verb: str, kind: str, fate: Any) -> _RefusedError | None:
        if self.world.faults.away:
            return _RefusedError(_AWAY)
        if fate.refusal:
            return _RefusedError(fate.refusal, "busy")
        if self.world.faults.is_forbidden(verb, kind):
            return _RefusedError(_FORBIDDEN, f"cannot {verb} {kind}")
        return None


def _in_version(obj: dict[str, Any], rule: KindRule) -> dict[str, Any]:
    return obj | {"apiVersion": rule.api_version}


def _translated(error: _RefusedError) -> Exception:
    match error.code:
        case 403:
            return ForbiddenError(str(error))
        case 409:
            return ConflictError(str(error))
        case 429:
            return TryLaterError(str(error), retry_after_seconds=2)
        case 500:
            return TryLaterError(str(error))
        case _:
            return PermanentError(f"{error.code} {error}")
