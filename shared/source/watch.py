"""Watches one kind and tells, as events, what may have to be deleted.

The events are those of Knative's ApiServerSource in Resource mode, with two differences: their ids are made from uid
and resourceVersion, so a duplicate can be told; and only what `decide` would not ignore is told at all. What the
watch cannot know, because it existed before or changed in a gap, is left to a sweep of the kind. A sweep is asked for
at every start of a watch, and after an event was lost, until it is taken.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from shared.adapters.events.cloudevents import Event
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.adapters.kubernetes.refusals import GoneError
from shared.adapters.kubernetes.watch_events import WatchEvent
from shared.core.decide import Context, Decision, Ignore, Reason, decide
from shared.core.kinds.rule import KindRule
from shared.core.objects import get_text, ref_of
from shared.errors import AbsentKindError, ForbiddenError, PermanentError, TryLaterError, TtlError
from shared.evaluation.evaluator import Evaluator
from shared.messages import Message, SweepStep
from shared.ports import PASSED_OVER, Clock, Telemetry
from shared.source.outbox import Outbox

ABSENT_SECONDS = 10.0
"""How often a kind is tried again that is not served any more, or is somewhere else: until somebody ends its watch."""

RETRY_SECONDS_MAX = 30.0
PAUSE_SECONDS = 0.1
"""Between a watch that the server ended and the next, so that one that ends at once does no harm."""

SWEEP_PAUSE_SECONDS = 30.0
"""From one sweep of a kind that a watch asked for to the next: a Broker that loses much must not sweep all the time."""

_TYPES = {"ADDED": "add", "MODIFIED": "update"}

_UNKNOWN = frozenset({Reason.NAMESPACE_UNREAD, Reason.KEPT_LAST})

Send = Callable[[Event], Awaitable[object]]
Publish = Callable[[Message], Awaitable[object]]


@dataclass(frozen=True)
class KindWatch:
    """Watches one kind for as long as it runs.

    Attributes:
        cluster: With a memory, if what is due is to be deleted without being read again.
        rule: The kind.
        send: Takes an event; what it raises is reported, and the sweep repairs it.
        publish: Takes the SweepStep that begins a sweep of the kind; may return as late as the sweep has ended.
        clock: Tells what is worth an event, and sweeps apart.
        telemetry: Told of what goes wrong.
        evaluator: Knows the policy and the namespaces.
        namespace: Only this one; empty for all.
    """

    cluster: KubernetesCluster
    rule: KindRule
    send: Send
    publish: Publish
    clock: Clock
    telemetry: Telemetry
    evaluator: Evaluator
    namespace: str = ""
    _gap: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Watch until cancelled.

        Raises:
            ForbiddenError: A right to list or watch is missing.
        """
        async with asyncio.TaskGroup() as group:
            sweeps = group.create_task(self._sweep_after_gaps())
            outbox = Outbox(self._write_event, group)
            refusal = await self._watch_on(outbox)
            sweeps.cancel()
            outbox.cancel()
        raise refusal  # not inside the group, which would wrap it

    async def _watch_on(self, outbox: Outbox) -> ForbiddenError:
        """Start anew after whatever ends a watch, slower each time in a row; only a missing right ends it for good."""
        failures = 0
        version = ""
        while True:
            try:
                if not version:
                    version = await self._start()
                async for change in self.cluster.watch(self.rule, version, namespace=self.namespace):
                    version = get_text(change.obj, "metadata.resourceVersion") or version
                    await self._take(change, outbox)
                    failures = 0
                await asyncio.sleep(PAUSE_SECONDS)
            except GoneError as error:
                version = ""
                failures += 1
                if failures > 1:  # once is everyday; again at once means that nothing is told but by sweeps
                    self._problem(error, failures - 1)
                    await asyncio.sleep(min(2.0**failures, RETRY_SECONDS_MAX))
            except ForbiddenError as error:
                return error
            except TtlError as error:
                version = "" if isinstance(error, AbsentKindError) else version
                failures += 1
                self._problem(error, failures)
                seconds = ABSENT_SECONDS if isinstance(error, PermanentError) else min(2.0**failures, RETRY_SECONDS_MAX)
                await asyncio.sleep(seconds)

    async def _start(self) -> str:
        """The resourceVersion to watch from; all that was before it is for the sweep to find."""
        page = await self.cluster.list_page(self.rule, namespace=self.namespace, limit=1)
        self._gap.set()
        return page.resource_version

    def _problem(self, error: TtlError, failures: int) -> None:
        """Said once in a row, and not for a kind that is only not served any more."""
        if failures == 1 and not isinstance(error, AbsentKindError):
            self.telemetry.problem("watch interrupted", kind=self.rule.name, error=str(error))

    async def _take(self, change: WatchEvent, outbox: Outbox) -> None:
        ref = ref_of(change.obj)
        if change.type == "UNREADABLE":
            self.telemetry.problem(PASSED_OVER, object=str(ref), uid=ref.uid, error=change.problem)
        if change.type not in _TYPES:
            if change.type in ("DELETED", "UNREADABLE") and self.cluster.memory:
                self.cluster.memory.forget(ref.uid)
            return
        decision = await self._decide(change)
        # What only the namespace or the group can tell is looked up by whoever the event wakes.
        worth_keeping = not isinstance(decision, Ignore) or decision.reason in _UNKNOWN
        data = json.dumps(change.obj, separators=(",", ":")).encode() if worth_keeping else b""
        if self.cluster.memory:
            self.cluster.memory.remember(ref.uid, data) if worth_keeping else self.cluster.memory.forget(ref.uid)
        if worth_keeping:
            event = event_of_change(change, self.rule, server=self.cluster.server, data=data)
            await outbox.put(ref.uid, event)
        elif decision.reason in (Reason.INVALID_TTL, Reason.INVALID_POLICY):
            about = {"object": str(ref), "api_version": ref.api_version}
            self.telemetry.problem(str(decision.reason), **about, error=decision.facts.problem)

    async def _decide(self, change: WatchEvent) -> Decision:
        """The namespace is read, if it may count and is not remembered; the owner and the group are not."""
        namespaces, name = self.evaluator.namespaces, get_text(change.obj, "metadata.namespace")
        context = Context(self.evaluator.policy(), namespaces.get_cached(name))
        decision = decide(change.obj, self.rule, self.clock.now(), context)
        if decision.reason is not Reason.NAMESPACE_UNREAD:
            return decision
        try:
            context = replace(context, namespace=await namespaces.get(name))
        except TtlError:
            return decision
        return decide(change.obj, self.rule, self.clock.now(), context)

    async def _write_event(self, event: Event) -> None:
        try:
            await self.send(event)
        except TtlError as error:
            self.telemetry.problem("event lost until the next sweep", event=event.id, error=str(error))
            if isinstance(error, TryLaterError):  # what is refused for good would be refused again
                self._gap.set()

    async def _sweep_after_gaps(self) -> None:
        """One sweep at a time; a gap during one has another follow, since that one may have listed before the gap."""
        while True:
            await self._gap.wait()
            self._gap.clear()
            kind, now = f"{self.rule.api_version}/{self.rule.kind}", self.clock.now().isoformat()
            try:
                await self.publish(SweepStep(kinds=(kind,), sweep_id=f"{self.rule.name}/{now}"))
            except TtlError as error:
                self.telemetry.problem("sweep put off", kind=self.rule.name, error=str(error))
                if isinstance(error, TryLaterError):
                    self._gap.set()
            await asyncio.sleep(SWEEP_PAUSE_SECONDS)


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
