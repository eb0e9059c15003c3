"""Watch all enabled kinds, and send a CloudEvent for each changed object that may have to be deleted.

Each kind that the API server serves has a watch; one that fails or is forbidden does not affect the others.

The events are those of Knative's ApiServerSource in Resource mode, with two differences. An event's id is made from
uid and resourceVersion, so a receiver can recognize a duplicate. An object that `decide` ignores causes no event.

A watch does not see objects that existed before it started or that changed in a gap; a sweep of the kind finds them.
The watch requests a sweep at every start and after each lost event, and repeats the request until it is accepted.

Between a watch and its sink is an `Outbox`, a queue that keeps only the newest event of each object.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from shared.adapters.events.cloudevents import EVENT_BYTES_MAX, Event, send_traced, with_proof
from shared.adapters.kubernetes.bodies import GoneError
from shared.adapters.kubernetes.cluster import KubernetesCluster, WatchEvent
from shared.bootstrap.build import build_proofs
from shared.bootstrap.config import ProcessConfig
from shared.core.deadlines.decide_stop import StopDecision, decide_stop
from shared.core.decision.decide import Context, Decision, Ignore, Reason, decide
from shared.core.decision.facts import MISSING
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import get_text, ref_of
from shared.errors import AbsentKindError, ForbiddenError, PermanentError, TryLaterError, TtlError
from shared.evaluation.evaluator import Decide, DecisionT, Evaluation, Evaluator
from shared.evaluation.namespaces_and_owners import list_served
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
        context, now = self._cached_context(change), self.clock.now()
        is_archived = is_archived_now(change.obj, self.rule, now, context, decision)
        is_forwarded = decision.reason in MISSING or bool(decision.facts.unread) or is_archived
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
        context, now = self._cached_context(change), self.clock.now()
        if decision.facts.finish.finished is False and is_stop_near(change.obj, self.rule, context, now):
            return await self._decide_by(decide_stop, change)
        return decision

    def _cached_context(self, change: WatchEvent) -> Context:
        name = get_text(change.obj, "metadata.namespace")
        return Context(self.evaluator.policy(), self.evaluator.namespaces.get_cached(name))

    async def _decide_by(self, decide: Decide[DecisionT], change: WatchEvent) -> DecisionT:
        """Decide about a changed object; read its namespace if it matters and is not cached, but no owner or group."""
        context = self._cached_context(change)
        decision = decide(change.obj, self.rule, self.clock.now(), context)
        if decision.reason is not Reason.NAMESPACE_UNREAD:
            return decision
        try:
            name = get_text(change.obj, "metadata.namespace")
            context = replace(context, namespace=await self.evaluator.namespaces.get(name))
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


SERVED_POLL_SECONDS = 30.0
"""The interval between two reads of discovery, for all kinds together."""

RESTART_SECONDS = 10.0
"""The pause before the restart of a watch that an unexpected exception ended."""

REFUSED_SECONDS = 10.0
REFUSED_SECONDS_MAX = 600.0
"""The first and the longest pause before the next attempt to watch a forbidden kind: roles aggregate with a delay."""

_log = logging.getLogger("ttl")


class KindWatches:
    """The watches on all enabled kinds that a cluster serves.

    A watch starts when the kind's CRD appears, and ends when the CRD is removed.

    Args:
        config: The configuration of this process, with the enabled kinds.
        cluster: The cluster to watch; the same as that of `config`, if `config` has one.
        evaluator: The evaluator of this process.
        send: Sends an event.
        publish: Publishes the SweepStep that starts a sweep.
    """

    def __init__(
        self, config: ProcessConfig, cluster: KubernetesCluster, evaluator: Evaluator, *, send: Send, publish: Publish
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._evaluator = evaluator
        self._send = send
        self._publish = publish
        self._proofs = build_proofs(config, evaluator, cluster) if config.settings.proof_key else None
        self._running: list[tuple[KindWatch, asyncio.Task[None]]] = []
        self._names: set[str] | None = None
        self._refusals: dict[int, ForbiddenError] = {}  # by watch: kinds of two groups may have the same plural
        self._all_forbidden = asyncio.Event()

    async def run(self) -> ForbiddenError:
        """Watch until cancelled.

        Returns:
            The error, once every watch is forbidden.
        """
        async with asyncio.TaskGroup() as group:
            poll = group.create_task(self._poll_served(group))
            await self._all_forbidden.wait()
            refusal = next(iter(self._refusals.values()))
            poll.cancel()
            for _, task in self._running:
                task.cancel()
        return refusal

    async def _poll_served(self, group: asyncio.TaskGroup) -> None:
        """Read regularly which kinds are served; after an error, retry sooner."""
        config, failures = self._config, 0
        while True:
            try:
                served = await list_served(config.catalogue, cluster=self._cluster, namespace=config.namespace)
                self._update_watches(served, group)
                failures = 0
            except TtlError as error:
                failures += 1
                if failures == 1:
                    config.telemetry.problem("could not read which kinds are served", error=str(error))
            await asyncio.sleep(min(2.0**failures, SERVED_POLL_SECONDS) if failures else SERVED_POLL_SECONDS)

    def _update_watches(self, served: Sequence[KindRule], group: asyncio.TaskGroup) -> None:
        """End the watches on kinds that are no longer served under the same rule; start those on the other kinds."""
        self._log_changes({rule.name for rule in served})
        for watch, task in self._running.copy():
            if watch.rule not in served:
                task.cancel()
                self._running.remove((watch, task))
        watched = [watch.rule for watch, _ in self._running]
        for watch in map(self._watch_of, (rule for rule in served if rule not in watched)):
            self._running.append((watch, group.create_task(self._keep_watching(watch))))

    def _log_changes(self, names: set[str]) -> None:
        """Log each kind that is newly served or no longer served; the caller logs the kinds at the start."""
        before = names if self._names is None else self._names
        for message, kinds in (("kind is now served", names - before), ("kind is no longer served", before - names)):
            for kind in sorted(kinds):
                _log.info(message, extra={"fields": {"kind": kind}})
        self._names = names

    def _watch_of(self, rule: KindRule) -> KindWatch:
        return KindWatch(
            self._cluster,
            rule,
            send=self._send,
            publish=self._publish,
            clock=self._config.clock,
            telemetry=self._config.telemetry,
            evaluator=self._evaluator,
            namespace=self._config.namespace,
            proofs=self._proofs,
        )

    async def _keep_watching(self, watch: KindWatch) -> None:
        """Run a watch, and restart it after each end."""
        pause = REFUSED_SECONDS
        try:
            while True:
                try:
                    await watch.run()
                except ForbiddenError as error:
                    self._refuse(watch, error)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, REFUSED_SECONDS_MAX)
                    self._refusals.pop(id(watch))
                except Exception:  # noqa: BLE001 - an error of one watch must not end the others
                    _log.exception("watch failed and restarts", extra={"fields": {"kind": watch.rule.name}})
                    await asyncio.sleep(RESTART_SECONDS)
        finally:
            self._refusals.pop(id(watch), None)

    def _refuse(self, watch: KindWatch, error: ForbiddenError) -> None:
        self._config.telemetry.problem("kind not watched: a right is missing", kind=watch.rule.name, error=str(error))
        self._refusals[id(watch)] = error
        if len(self._refusals) == len(self._running):
            self._all_forbidden.set()
