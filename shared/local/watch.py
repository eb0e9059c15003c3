"""Watches one kind and tells, as events, what may have to be deleted.

The events are those of Knative's ApiServerSource in Resource mode, with two differences: their ids are made from uid
and resourceVersion, so a duplicate can be told; and only what `decide` would not ignore is told at all. What the
watch cannot know, because it existed before or changed in a gap, is left to a sweep of the kind, which is asked for
at every start of a watch.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from shared.adapters.cluster import KubernetesCluster, WatchEvent
from shared.adapters.events import Event
from shared.adapters.refusals import GoneError
from shared.core.decide import Ignore, Reason, decide
from shared.core.kinds import KindRule
from shared.core.objects import get_text, ref_of
from shared.errors import AbsentKindError, ForbiddenError, PermanentError, TtlError
from shared.ports import Clock, Telemetry

ABSENT_SECONDS = 10.0
"""How often a kind is looked for whose CRD is not installed."""

RETRY_SECONDS_MAX = 30.0
PAUSE_SECONDS = 0.1
"""Between a watch that the server ended and the next, so that one that ends at once does no harm."""

LANES = 32
"""Objects told at the same time; the changes of one object always take the same lane, one after the other."""

LANE_EVENTS_MAX = 50

_TYPES = {"ADDED": "add", "MODIFIED": "update"}

Send = Callable[[Event], Awaitable[Any]]


@dataclass(frozen=True)
class KindWatch:
    """Watches one kind for as long as it runs.

    Attributes:
        cluster: With a memory, if what is due is to be deleted without being read again.
        rule: The kind.
        send: Takes an event; what it raises is reported, and the sweep repairs it.
        sweep: Asks for a sweep of the kind.
        clock: Only to tell what is worth an event.
        telemetry: Told of what goes wrong.
        namespace: Only this one; empty for all.
    """

    cluster: KubernetesCluster
    rule: KindRule
    send: Send
    sweep: Callable[[KindRule], object]
    clock: Clock
    telemetry: Telemetry
    namespace: str = ""
    _lanes: tuple[asyncio.Queue[Event], ...] = field(
        default_factory=lambda: tuple(asyncio.Queue(LANE_EVENTS_MAX) for _ in range(LANES))
    )

    async def run(self) -> None:
        """Watch until cancelled.

        Raises:
            ForbiddenError: A right to list or watch is missing.
        """
        async with asyncio.TaskGroup() as group:
            tellers = [group.create_task(self._tell(lane)) for lane in self._lanes]
            refusal = await self._watch_on()
            for teller in tellers:
                teller.cancel()
        raise refusal  # not inside the group, which would wrap it

    async def _watch_on(self) -> ForbiddenError:
        """Start anew after whatever ends a watch, slower each time in a row; only a missing right ends it for good."""
        failures = 0
        version = ""
        while True:
            try:
                if not version:
                    version = await self._start()
                async for change in self.cluster.watch(self.rule, version, namespace=self.namespace):
                    version = get_text(change.obj, "metadata.resourceVersion") or version
                    await self._take(change)
                    failures = 0
                await asyncio.sleep(PAUSE_SECONDS)
            except GoneError:
                version = ""
                failures += 1
                if failures > 1:
                    await asyncio.sleep(min(2.0**failures, RETRY_SECONDS_MAX))
            except ForbiddenError as error:
                return error
            except TtlError as error:
                failures += 1
                self._problem(error, failures)
                seconds = ABSENT_SECONDS if isinstance(error, PermanentError) else min(2.0**failures, RETRY_SECONDS_MAX)
                await asyncio.sleep(seconds)

    async def _start(self) -> str:
        """The resourceVersion to watch from; all that was before it is for the sweep to find."""
        page = await self.cluster.list_page(self.rule, namespace=self.namespace, limit=1)
        self.sweep(self.rule)
        return page.resource_version

    def _problem(self, error: TtlError, failures: int) -> None:
        """Said once in a row, and not for a kind that is only not installed."""
        if failures == 1 and not isinstance(error, AbsentKindError):
            self.telemetry.problem("watch interrupted", kind=self.rule.kind, error=str(error))

    async def _take(self, change: WatchEvent) -> None:
        ref = ref_of(change.obj)
        if change.type == "UNREADABLE":
            self.telemetry.problem("an object is nested too deeply to be read", kind=self.rule.kind)
        if change.type not in _TYPES:
            if change.type == "DELETED" and self.cluster.memory:
                self.cluster.memory.forget(ref.uid)
            return
        decision = decide(change.obj, self.rule, self.clock.now(), owner_unfinished=False)
        worth_keeping = not isinstance(decision, Ignore)
        data = json.dumps(change.obj, separators=(",", ":")).encode() if worth_keeping else b""
        if self.cluster.memory:
            self.cluster.memory.remember(ref.uid, data) if worth_keeping else self.cluster.memory.forget(ref.uid)
        if worth_keeping:
            event = event_of_change(change, self.rule, server=self.cluster.server, data=data)
            await self._lanes[hash(ref.uid) % LANES].put(event)
        elif decision.reason is Reason.INVALID_TTL:
            self.telemetry.problem(str(Reason.INVALID_TTL), object=str(ref), error=decision.facts.problem)

    async def _tell(self, lane: asyncio.Queue[Event]) -> None:
        while True:
            event = await lane.get()
            try:
                await self.send(event)
            except TtlError as error:
                self.telemetry.problem("event lost until the next sweep", event=event.id, error=str(error))


def event_of_change(change: WatchEvent, rule: KindRule, *, server: str, data: bytes) -> Event:
    """The event an ApiServerSource would send for the change, its id aside."""
    ref = ref_of(change.obj)
    verb = _TYPES[change.type]
    scope = f"namespaces/{ref.namespace}/" if ref.namespace else ""
    return Event(
        id=f"{ref.uid}/{get_text(change.obj, 'metadata.resourceVersion')}/{verb}",
        source=server,
        type=f"dev.knative.apiserver.resource.{verb}",
        subject=f"/apis/{rule.api_version}/{scope}{rule.plural}/{ref.name}",
        data=data,
        extensions={
            "kind": rule.kind,
            "apiversion": rule.api_version,
            "name": ref.name,
            **({"namespace": ref.namespace} if ref.namespace else {}),
        },
    )
