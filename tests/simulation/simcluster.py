"""The double of the API server behind a network that fails."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

from shared.adapters.kubernetes.cluster import Memory
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ObjectRef, get_text
from shared.devserver.apiserver import DeleteOptions, StatusError
from shared.errors import AbsentKindError, ForbiddenError, TryLaterError
from shared.ports import Propagation
from tests.simulation.evaluators import evaluated
from tests.simulation.faults import TIMEOUT_SECONDS, draw_fate
from tests.store_cluster import StoreCluster


class SimCluster(StoreCluster):
    """One process's connection; it ends with its process, and a request that was sent does not."""

    def __init__(self, world: Any, memory: Memory | None) -> None:
        super().__init__(world.store, world.loop.time, memory, world.page_limit)
        self.world = world

    async def delete(self, rule: KindRule, obj: dict[str, Any], *, propagation: Propagation | None = None) -> bool:
        if known := evaluated.get():
            evaluated.set(known.sent(self.world.loop.time()))
        try:
            return await super().delete(rule, obj, propagation=propagation)
        except ForbiddenError:
            self.world.checks.refused[get_text(obj, "metadata.uid")] += 1
            raise

    async def request(self, verb: str, *call: Any, **options: Any) -> tuple[Any, datetime]:
        try:
            return await super().request(verb, *call, **options)
        except AbsentKindError:
            if verb != "DISCOVER":
                self.world.checks.met_absent_path()
            raise

    async def send(self, verb: str, kind: str, ref: ObjectRef, act: Callable[[], Any]) -> tuple[Any, datetime]:
        """One request there and back; the API server acts when it arrives, even if the client no longer waits."""
        world = self.world
        fate = draw_fate(world.faults)
        world.checks.sent(verb, kind, ref)
        answer: asyncio.Future[tuple[Any, datetime]] = world.loop.create_future()

        def arrive() -> None:
            if answer.cancelled() and not fate.outlives:
                return
            result = world.server.handle(verb, kind, ref, fate, lambda: self.answer(act))
            if not answer.done():
                answer.set_result((result, world.clocks.server()))

        world.loop.call_later(fate.there, arrive)
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                if verb == "LIST" and kind == world.faults.hangs_for_good:
                    await asyncio.sleep(2 * TIMEOUT_SECONDS)
                result, at = await answer
                await asyncio.sleep(fate.back)
        except TimeoutError:
            raise TryLaterError("no answer in time") from None
        if fate.answer_lost:
            raise TryLaterError("the connection broke before the answer")
        if result is None:
            raise TryLaterError("connection refused")
        return result, at

    def delete_object(self, rule: KindRule, ref: ObjectRef, options: DeleteOptions) -> Any:
        live = self.read_object(rule, ref)
        options.check(self.resource(rule), live)
        self.world.checks.deleting(live, ref.uid, options)
        return super().delete_object(rule, ref, options)

    def write_event(self, namespace: str, event: dict[str, Any]) -> Any:
        self.world.checks.message(event["involvedObject"]["uid"])
        return event


class Server:
    """The API server's side of the network."""

    def __init__(self, world: Any) -> None:
        self.world = world

    def handle(self, verb: str, kind: str, ref: ObjectRef, fate: Any, answer: Callable[[], Any]) -> Any:
        """Answer one request: a result, or the refusal; None if there is no API server."""
        world = self.world
        if world.faults.away:
            world.checks.answered(verb, kind, ref, 0)
            return None
        result = self._refusal(verb, kind, fate)
        if result is None:
            if verb == "LIST" and world.faults.happens(world.faults.compact):
                world.store.compact()
            if fate.interfered and verb in ("DELETE", "PATCH"):
                world.users.interfere(kind, ref.namespace, ref.name)
            with world.acting("system"):
                result = answer()
        world.checks.answered(verb, kind, ref, result.code if isinstance(result, StatusError) else 200)
        return result

    def _refusal(self, verb: str, kind: str, fate: Any) -> StatusError | None:
        if fate.refusal:
            details = {"retryAfterSeconds": 2} if fate.refusal == 429 else {}
            return StatusError(fate.refusal, "Busy", "busy", details=details)
        if self.world.faults.is_forbidden(verb, kind):
            return StatusError(403, "Forbidden", f"cannot {verb} {kind}")
        return None
