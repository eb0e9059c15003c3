"""Watch one kind and send a CloudEvent for each changed object that may have to be deleted.

The events are those of Knative's ApiServerSource in Resource mode, with two differences. An event's id is made from
uid and resourceVersion, so a receiver can recognize a duplicate. An object that `decide` ignores causes no event.

The watch does not see objects that existed before it started or that changed in a gap; a sweep of the kind finds them.
The watch requests a sweep at every start and after each lost event, and repeats the request until it is accepted.

Between the watch and its sink is an `Outbox`, a queue that keeps only the newest event of each object.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from shared.adapters.events.cloudevents import EVENT_BYTES_MAX, Event
from shared.adapters.events.inputs import with_proof
from shared.adapters.events.traced import send_traced
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.adapters.kubernetes.refusals import GoneError
from shared.adapters.kubernetes.watch_lines import WatchEvent
from shared.core.deadlines.decide_stop import StopDecision, decide_stop
from shared.core.decision.decide import Context, Decision, Ignore, Reason, decide
from shared.core.decision.facts import MISSING
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import get_text, ref_of
from shared.errors import AbsentKindError, ForbiddenError, PermanentError, TryLaterError, TtlError
from shared.evaluation.evaluator import Decide, DecisionT, Evaluation, Evaluator
from shared.evaluation.proofs import Proofs
from shared.messages import Message, SweepStep
from shared.ports import PASSED_OVER, Clock, Telemetry
from shared.usecases.reports import is_reported_at_once
from shared.usecases.timers import is_archived_now, is_stop_near

ABSENT_PAUSE_SECONDS = 10.0
"""The pause before the next attempt to watch a kind that is no longer served, or only in another way."""

RETRY_SECONDS_MAX = 30.0
WATCH_PAUSE_SECONDS = 0.1
"""The pause between a watch that the server ended and the next one, in case the server ends each watch at once."""

SWEEP_PAUSE_SECONDS = 30.0
"""The pause between two sweeps that a watch requests, in case a Broker loses many events."""

_TYPES = {"ADDED": "add", "MODIFIED": "update"}

_INVALID = frozenset({Reason.INVALID_TTL, Reason.INVALID_POLICY, Reason.INVALID_ARCHIVE})

Send = Callable[[Event], Awaitable[object]]
Publish = Callable[[Message], Awaitable[object]]

EVENTS_IN_FLIGHT_MAX = 32
"""Events in flight at the same time, each of another object."""

OUTBOX_BYTES_MAX = 16 * 1024 * 1024
"""The limit of event data that waits or is in flight; one further event may exceed it."""


class Outbox:
    """Sends events: those of different objects in parallel, those of one object in order.

    A slow event delays no other object. A newer event replaces an event of the same object that still waits. If the
    sink accepts nothing, `put` waits, and so the watch stops reading.

    Args:
        send: Sends one event; it must not raise.
        group: The task group that the sending tasks run in.
    """

    def __init__(self, send: Callable[[Event], Awaitable[None]], group: asyncio.TaskGroup) -> None:
        self._send = send
        self._group = group
        self._waiting: dict[str, Event] = {}
        self._in_flight: dict[str, asyncio.Task[None]] = {}
        self._bytes = 0
        self._freed = asyncio.Event()

    async def put(self, uid: str, event: Event) -> None:
        """Queue the newest event of an object; wait until there is room for it.

        Args:
            uid: The object's uid.
            event: The event; it replaces an event of the same object that still waits.
        """
        while self._bytes > OUTBOX_BYTES_MAX:
            self._freed.clear()
            await self._freed.wait()
        outdated = self._waiting.pop(uid, None)
        self._bytes += len(event.data) - (len(outdated.data) if outdated else 0)
        self._waiting[uid] = event
        self._start_sends()

    def cancel(self) -> None:
        """Cancel the events in flight; the waiting events are not sent."""
        for task in self._in_flight.values():
            task.cancel()

    def _start_sends(self) -> None:
        while len(self._in_flight) < EVENTS_IN_FLIGHT_MAX:
            uid = next((one for one in self._waiting if one not in self._in_flight), None)
            if uid is None:
                return
            task = self._group.create_task(self._send_one(uid, self._waiting.pop(uid)))
            self._in_flight[uid] = task

    async def _send_one(self, uid: str, event: Event) -> None:
        await self._send(event)
        del self._in_flight[uid]
        self._bytes -= len(event.data)
        self._freed.set()
        self._start_sends()


@dataclass(frozen=True)
class KindWatch:
    """The watch on one kind.

    Attributes:
        cluster: The cluster; with a memory, `expire` can delete an object without reading it again.
        rule: The rule of the kind.
        send: Sends an event. If it raises, the watch reports the error, and a sweep finds the object.
        publish: Publishes the SweepStep that starts a sweep of the kind; it may return only after the sweep.
        clock: The clock for decisions and for the ids of sweeps.
        telemetry: Reports problems.
        evaluator: Provides the policy and the namespaces.
        namespace: The only namespace to watch; empty for all namespaces.
        proofs: Makes the proof that an event carries; None without a key.
    """

    cluster: KubernetesCluster
    rule: KindRule
    send: Send
    publish: Publish
    clock: Clock
    telemetry: Telemetry
    evaluator: Evaluator
    namespace: str = ""
    proofs: Proofs | None = None
    _gap: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Watch until cancelled.

        Raises:
            ForbiddenError: A right to list or watch is missing.
        """
        async with asyncio.TaskGroup() as group:
            sweeps = group.create_task(self._sweep_after_gaps())
            outbox = Outbox(self._write_event, group)
            refusal = await self._watch_until_forbidden(outbox)
            sweeps.cancel()
            outbox.cancel()
        raise refusal  # outside the group, which would wrap the error

    async def _watch_until_forbidden(self, outbox: Outbox) -> ForbiddenError:
        """Restart the watch after each end, with a growing pause; only a missing right ends the loop."""
        failures = 0
        version = ""
        while True:
            try:
                if not version:
                    version = await self._start()
                async for change in self.cluster.watch(self.rule, version, namespace=self.namespace):
                    version = get_text(change.obj, "metadata.resourceVersion") or version
                    await self._handle(change, outbox)
                    failures = 0
                await asyncio.sleep(WATCH_PAUSE_SECONDS)
            except GoneError as error:
                version = ""
                failures += 1
                if failures > 1:  # once is normal; twice in a row means that only sweeps find changes
                    self._problem(error, failures - 1)
                    await asyncio.sleep(min(2.0**failures, RETRY_SECONDS_MAX))
            except ForbiddenError as error:
                return error
            except TtlError as error:
                version = "" if isinstance(error, AbsentKindError) else version
                failures += 1
                self._problem(error, failures)
                is_absent = isinstance(error, PermanentError)
                seconds = ABSENT_PAUSE_SECONDS if is_absent else min(2.0**failures, RETRY_SECONDS_MAX)
                await asyncio.sleep(seconds)

    async def _start(self) -> str:
        """Return the resourceVersion to watch from, and request a sweep for the objects that exist already."""
        page = await self.cluster.list_page(self.rule, namespace=self.namespace, limit=1)
        self._gap.set()
        return page.resource_version

    def _problem(self, error: TtlError, failures: int) -> None:
        """Report the first failure in a row; a kind that is no longer served is not reported."""
        if failures == 1 and not isinstance(error, AbsentKindError):
            self.telemetry.problem("watch interrupted", kind=self.rule.name, error=str(error))

    async def _handle(self, change: WatchEvent, outbox: Outbox) -> None:
        ref = ref_of(change.obj)
        if change.type == "UNREADABLE":
            self.telemetry.problem(PASSED_OVER, object=str(ref), uid=ref.uid, error=change.problem)
        if change.type not in _TYPES:
            if change.type in ("DELETED", "UNREADABLE") and self.cluster.memory:
                self.cluster.memory.forget(ref.uid)
            return
        decision = await self._decide(change)
        is_forwarded = decision.reason in MISSING or bool(decision.facts.unread) or self._is_archived(change, decision)
        is_reported = is_reported_at_once(decision, change.obj, self.rule)
        is_relevant = not isinstance(decision, Ignore) or is_forwarded or is_reported
        data = _data_of(change) if is_relevant else b""
        if self.cluster.memory:
            self.cluster.memory.remember(ref.uid, data) if is_relevant else self.cluster.memory.forget(ref.uid)
        if is_relevant:
            event = event_of_change(change, self.rule, server=self.cluster.server, data=data)
            await outbox.put(ref.uid, self._prove(event, change))
        elif decision.reason in _INVALID:
            about = {"object": str(ref), "api_version": ref.api_version}
            self.telemetry.problem(str(decision.reason), **about, error=decision.facts.problem)

    def _prove(self, event: Event, change: WatchEvent) -> Event:
        """Add the proof of the decision about a version that this process has just received, if there is one."""
        if self.proofs is None:
            return event
        context = self._cached_context(change)
        evaluation = Evaluation(decide(change.obj, self.rule, self.clock.now(), context), context=context)
        proof = self.proofs.make(evaluation, self.rule, change.obj)
        return with_proof(event, proof) if proof else event

    async def _decide(self, change: WatchEvent) -> Decision | StopDecision:
        """Decide about the deadline of a running object if it may have one; about the TTL of any other object."""
        decision = await self._decide_by(decide, change)
        if decision.facts.finish.finished is False and self._is_stop_near(change):
            return await self._decide_by(decide_stop, change)
        return decision

    def _is_stop_near(self, change: WatchEvent) -> bool:
        return is_stop_near(change.obj, self.rule, self._cached_context(change), self.clock.now())

    def _is_archived(self, change: WatchEvent, decision: Decision | StopDecision) -> bool:
        """Return whether the object has finished and has to be archived, with or without a TTL."""
        return is_archived_now(change.obj, self.rule, self.clock.now(), self._cached_context(change), decision)

    def _cached_context(self, change: WatchEvent) -> Context:
        name = get_text(change.obj, "metadata.namespace")
        return Context(self.evaluator.policy(), self.evaluator.namespaces.get_cached(name))

    async def _decide_by(self, decide: Decide[DecisionT], change: WatchEvent) -> DecisionT:
        """Decide about a changed object; read its namespace if it matters and is not cached, but no owner or group."""
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
            await send_traced(self.send, event)
        except TtlError as error:
            self.telemetry.problem("event dropped; the next sweep handles its object", event=event.id, error=str(error))
            if isinstance(error, TryLaterError):  # after a permanent error, a sweep would fail in the same way
                self._gap.set()

    async def _sweep_after_gaps(self) -> None:
        """Request one sweep at a time; after a gap during a sweep request another, as the first may not see the gap."""
        while True:
            await self._gap.wait()
            self._gap.clear()
            kind, now = f"{self.rule.api_version}/{self.rule.kind}", self.clock.now().isoformat()
            try:
                await self.publish(SweepStep(kinds=(kind,), sweep_id=f"{self.rule.name}/{now}"))
            except TtlError as error:
                self.telemetry.problem("sweep not started", kind=self.rule.name, error=str(error))
                if isinstance(error, TryLaterError):
                    self._gap.set()
            await asyncio.sleep(SWEEP_PAUSE_SECONDS)


def _data_of(change: WatchEvent) -> bytes:
    """The JSON of an object: as the API server wrote it, unless its escapes exceed the limit of an event's data."""
    if 0 < len(change.raw) <= EVENT_BYTES_MAX:
        return change.raw
    return json.dumps(change.obj, separators=(",", ":")).encode()


def event_of_change(change: WatchEvent, rule: KindRule, *, server: str, data: bytes) -> Event:
    """Make the event that an ApiServerSource would send for a change; only the id differs."""
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
