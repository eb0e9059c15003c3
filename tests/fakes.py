"""In-memory fakes of the ports; a test sets beforehand which calls fail."""

import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from email.utils import format_datetime
from functools import cache
from typing import Any

from shared.adapters.kubernetes.cluster import Memory
from shared.core.decision.facts import Audited
from shared.core.decision.forecast import Forecast
from shared.core.kinds.rule import KindRule
from shared.core.kinds.ttl_and_deadline import TtlSourceKind
from shared.core.values.objects import ObjectRef, get_text, ref_of
from shared.devserver.apiserver import Resource, Store
from shared.devserver.apiserver.resources import BUILT_IN, EVENTS, NAMESPACES
from shared.devserver.apiserver.writes import copied
from shared.errors import PermanentError
from shared.messages import Message, ObjectArchived, ObjectDeleted, ObjectStopped, Timer
from shared.ports import EventLevel, JournalResult, Page, Propagation, Refusal, Report, Snapshot, Unreadable, Verdict
from tests.builders import NOW, having, kind_rules, namespace
from tests.store_cluster import PAGE_SIZE, StoreCluster


class FakeClock:
    """A clock that a test moves."""

    def __init__(self, at: datetime = NOW) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at

    def advance(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@dataclass(frozen=True, slots=True)
class ReadClock:
    """A clock that shows the result of a function."""

    now: Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class Call:
    """A request to the double of the API server: the verb (such as `get` or `list-metadata`) and its target."""

    verb: str
    what: str


class FakeCluster(StoreCluster):
    """The double of the API server; a test sets beforehand what is stored, what fails, and what other clients do.

    Each namespace exists without annotations, unless a test has put or removed it.

    Attributes:
        clock: The API server's clock.
        before_get: Called with the name before a GET, so that another client can write.
        before_delete: Called with the name before a DELETE.
        on_list: Called with each LIST.
        unreadable: The problems of objects that LISTs and GETs cannot read, by name.
        namespace_reads: GETs and LISTs of namespaces, which `calls` leaves out.
    """

    def __init__(self, clock: FakeClock | None = None, *, page_size: int = PAGE_SIZE) -> None:
        self.clock = clock or FakeClock()
        super().__init__(Store(self.clock.now), lambda: self.clock.now().timestamp(), Memory(), page_size)
        self.before_get: Callable[[str], None] = lambda _: None
        self.before_delete: Callable[[str], object] = lambda _: None
        self.on_list: Callable[[], None] = lambda: None
        self.calls: list[Call] = []
        self.namespace_reads: list[Call] = []
        self.apiservice_reads: list[Call] = []
        self.aggregated_groups: set[str] = set()
        self.without_namespaces: set[str] = set()
        self.deleted: list[dict[str, Any]] = []
        self.propagations: list[str] = []
        self.unreadable: dict[str, str] = {}
        self._failures: list[tuple[str, str, Exception]] = []
        for resource in _resources():
            self.store.resources.add(resource)

    # Called by tests

    def put(self, obj: dict[str, Any]) -> dict[str, Any]:
        """Create or replace an object as it is, with its uid, times and status; returns it as stored."""
        self._make_namespace(get_text(obj, "metadata.namespace"))
        obj = obj | {"metadata": {"generation": 1} | obj["metadata"]}
        return copied(self.store.restore(self._resource_of(obj), obj))

    def write(self, name: str, path: str = "metadata.labels.touched", value: Any = "yes") -> None:
        """Another client writes the object of this name."""
        self.put(having(self._find(name)[1], path, value))

    def remove(self, name: str) -> None:
        """Another client deletes the object of this name; if it has finalizers, it is only marked."""
        with suppress(StopIteration):
            resource, obj = self._find(name)
            self.store.delete(resource, get_text(obj, "metadata.namespace"), name)

    def remember(self, obj: dict[str, Any]) -> None:
        """Cache the object, as a watch in this process does."""
        assert self.memory is not None
        self.memory.remember(obj["metadata"]["uid"], json.dumps(obj).encode())
        self.server_clock.observe(format_datetime(self.clock.now().replace(microsecond=0), usegmt=True))

    def serve_only(self, *rules: KindRule) -> None:
        """Serve no other kinds than these and Namespaces."""
        before = {(resource.group, resource.kind): resource for resource in self.store.resources}
        for resource in self.store.resources:
            if resource is not NAMESPACES:
                self.store.resources.remove(resource)
        for rule in rules:
            self.store.resources.add(before.get((rule.group, rule.kind)) or _resource(rule, rule.api_version))

    def serve_cluster_scoped(self, kind: str) -> None:
        """Serve a kind in the scope Cluster, whatever its rule says."""
        for resource in self.store.resources:
            if resource.kind == kind:
                self.store.resources.add(replace(resource, namespaced=False))

    def fail(self, verb: str, error: Exception, *, on: str = "") -> None:
        """Let the verb fail from now on, for one name or plural, or for all."""
        self._failures.append((verb, on, error))

    def stop_failing(self) -> None:
        """Let no verb fail any more."""
        self._failures.clear()

    @property
    def names(self) -> set[str]:
        """The names of the objects that are there, without Namespaces and Events."""
        return {obj["metadata"]["name"] for _, obj in self._objects()}

    @property
    def events(self) -> list[tuple[ObjectRef, str, str]]:
        """The Kubernetes Events that were written: the object, the reason and the message."""
        events = self.store.table(EVENTS).objects.values()
        return [(_involved(event["involvedObject"]), event["reason"], event["message"]) for event in events]

    def counted(self) -> Counter[str]:
        """How often each verb was called."""
        return Counter(call.verb for call in self.calls)

    # The port

    async def served(self, rules: Sequence[KindRule]) -> tuple[KindRule, ...]:
        self._call("served", "", [])
        return await super().served(rules)

    async def is_aggregated(self, rule: KindRule) -> bool:
        self._call("list-apiservices", rule.group, self.apiservice_reads)
        return rule.group in self.aggregated_groups

    async def get(self, rule: KindRule, ref: ObjectRef) -> Snapshot | None:
        if rule.kind == "Namespace":
            self._call("get-namespace", ref.name, self.namespace_reads)
            self._make_namespace(ref.name)
            return await super().get(rule, ref)
        self._call("get", ref.name)
        self.before_get(ref.name)
        if ref.name in self.unreadable:
            raise PermanentError(self.unreadable[ref.name])
        return await super().get(rule, ref)

    async def delete(self, rule: KindRule, obj: dict[str, Any], *, propagation: Propagation | None = None) -> bool:
        name = obj["metadata"]["name"]
        self._call("delete", name)
        self.before_delete(name)
        accepted = await super().delete(rule, obj, propagation=propagation)
        if accepted:
            self.deleted.append(obj)
            self.propagations.append(propagation or rule.propagation)
        return accepted

    async def patch(self, rule: KindRule, ref: ObjectRef, patch: dict[str, Any], *, manager: str = "") -> Snapshot:
        self._call("patch", ref.name)
        return await super().patch(rule, ref, patch, manager=manager)

    async def list_page(self, rule: KindRule, *, metadata_only: bool = False, **options: Any) -> Page:
        if rule.kind == "Namespace":
            self._call("list-namespaces", "", self.namespace_reads)
        else:
            self._call("list-metadata" if metadata_only else "list", rule.plural)
            self.on_list()
        page = await super().list_page(rule, metadata_only=metadata_only, **options)
        refs = {ref.name: ref for ref in map(ref_of, page.items) if ref.name in self.unreadable}
        items = [obj for obj in page.items if obj["metadata"]["name"] not in refs]
        return replace(page, items=items, unreadable=[Unreadable(refs[name], self.unreadable[name]) for name in refs])

    async def logs(self, pod: ObjectRef, container: str, *, bytes_max: int) -> AsyncGenerator[bytes]:
        self._call("log", pod.name)
        async for chunk in super().logs(pod, container, bytes_max=bytes_max):
            yield chunk

    async def read_version(self) -> None:
        self._call("version", "")
        await super().read_version()

    async def record_event(self, ref: ObjectRef, reason: str, message: str, *, level: EventLevel = "Warning") -> None:
        self._call("event", ref.name)
        self._make_namespace(ref.namespace)
        await super().record_event(ref, reason, message, level=level)

    def _call(self, verb: str, what: str, calls: list[Call] | None = None) -> None:
        (self.calls if calls is None else calls).append(Call(verb, what))
        for failing, on, error in self._failures:
            if failing == verb and on in ("", what):
                raise error

    def _make_namespace(self, name: str) -> None:
        if name and name not in self.without_namespaces and ("", name) not in self.store.table(NAMESPACES).objects:
            self.store.restore(NAMESPACES, namespace(name))

    def _resource_of(self, obj: dict[str, Any]) -> Resource:
        """Return the resource of an object; a version that is not served yet is served from now on."""
        ref, resources = ref_of(obj), self.store.resources
        found = resources.find_kind(ref.api_version, ref.kind)
        if found is None:
            other = next(one for one in resources if (one.group, one.kind) == (ref.group, ref.kind))
            found = replace(other, version=ref.api_version.rpartition("/")[2])
            resources.add(found)
        return found

    def _objects(self) -> list[tuple[Resource, dict[str, Any]]]:
        resources = {one.name: one for one in self.store.resources if one not in (NAMESPACES, EVENTS)}
        return [(one, obj) for one in resources.values() for obj in self.store.table(one).objects.values()]

    def _find(self, name: str) -> tuple[Resource, dict[str, Any]]:
        return next(found for found in self._objects() if found[1]["metadata"]["name"] == name)


@cache
def _resources() -> tuple[Resource, ...]:
    """The resources of the shipped kinds, besides those of the embedded API server."""
    built_in = {(resource.group, resource.kind) for resource in BUILT_IN}
    rules = [rule for rule in kind_rules().values() if (rule.group, rule.kind) not in built_in]
    inherited = [one for rule in rules if rule.ttl and rule.ttl.inherited for one in rule.ttl.inherited.kinds]
    every: list[KindRule | TtlSourceKind] = [*rules, *inherited]
    return tuple(_resource(one, version) for one in every for version in one.api_versions)


def _resource(rule: KindRule | TtlSourceKind, api_version: str) -> Resource:
    version = api_version.rpartition("/")[2]
    return Resource(rule.group, version, rule.plural, rule.kind, namespaced=rule.scope == "Namespaced")


def _involved(about: dict[str, Any]) -> ObjectRef:
    return ObjectRef(about["apiVersion"], about["kind"], about["namespace"], about["name"], about["uid"])


@dataclass
class FakeTimers:
    """One pending timer per uid and purpose."""

    pending: dict[tuple[str, str], Timer] = field(default_factory=dict)
    failure: Exception | None = None

    async def set(self, timers: Sequence[Timer]) -> None:
        if self.failure:
            raise self.failure
        self.pending |= {(timer.ref.uid, timer.purpose): timer for timer in timers}


@dataclass
class FakeState:
    """The state that processes share.

    Attributes:
        failure: Raised by every call.
        write_failure: Raised by every write that would change something.
        before_put: Called between the read and the write, so that another process can write.
    """

    data: dict[str, str] = field(default_factory=dict)
    failure: Exception | None = None
    write_failure: Exception | None = None
    before_put: Callable[[], None] = lambda: None
    reads: int = 0
    writes: int = 0

    async def read(self) -> Mapping[str, str]:
        self.reads += 1
        if self.failure:
            raise self.failure
        return dict(self.data)

    async def write(self, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Mapping[str, str]:
        while True:
            if self.failure:
                raise self.failure
            before = dict(self.data)
            after = dict(change(dict(before)))
            if after == before:
                return after
            if self.write_failure:
                raise self.write_failure
            before_put, self.before_put = self.before_put, lambda: None
            before_put()
            if self.data == before:
                break
        self.data = after
        self.writes += 1
        return dict(after)


@dataclass
class FakePublisher:
    """A Broker that stores the published messages."""

    published: list[Message] = field(default_factory=list)
    failure: Exception | None = None

    async def publish(self, message: Message) -> None:
        if self.failure:
            raise self.failure
        self.published.append(message)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded verdict."""

    verdict: str
    name: str
    reason: str = ""
    detail: str = ""
    by: str = ""
    uid: str = ""


@dataclass
class FakeTelemetry:
    """Stores what is recorded.

    Attributes:
        note: Called with the source and the text of each record, for a trace.
    """

    note: Callable[[str, str], None] = lambda _by, _text: None
    records: list[Recorded] = field(default_factory=list)
    deletions: list[ObjectDeleted] = field(default_factory=list)
    stops: list[ObjectStopped] = field(default_factory=list)
    archives: list[ObjectArchived] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    levels: dict[str, EventLevel] = field(default_factory=dict)
    unarchived: list[tuple[str, str, bool]] = field(default_factory=list)
    missed: int = 0
    problems: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    swept_kinds: list[str] = field(default_factory=list)
    sweeps: list[dict[str, int]] = field(default_factory=list)
    wholes: list[bool] = field(default_factory=list)
    forecasts: list[dict[tuple[str, str], list[int]]] = field(default_factory=list)
    timers_due: list[datetime] = field(default_factory=list)
    finalizers: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    loops: list[str] = field(default_factory=list)
    passes: list[str] = field(default_factory=list)
    unknown_namespaces: list[dict[str, str]] = field(default_factory=list)
    usage_ticks: list[dict[str, int]] = field(default_factory=list)
    windows: list[float] = field(default_factory=list)
    paces: list[tuple[str, int]] = field(default_factory=list)
    stop_details: list[str] = field(default_factory=list)
    journal: Counter[JournalResult] = field(default_factory=Counter)
    breaker_open: bool | None = None
    is_stopped: bool | None = None

    def record(
        self,
        verdict: Verdict,
        ref: ObjectRef,
        reason: str = "",
        *,
        detail: str = "",
        by: str = "",
        due_at: datetime | None = None,
    ) -> None:
        if due_at is not None:
            self.timers_due.append(due_at)
        self.note(by, f"{verdict} {ref} {ref.uid} {reason} {detail}")
        self.records.append(Recorded(str(verdict), ref.name, str(reason), detail, by, ref.uid))

    def audited(self, verdict: Verdict, ref: ObjectRef, audited: Audited, *, by: str) -> None:
        self.note(by, f"{verdict} {ref} {ref.uid} audit-only {audited.rule}")
        self.records.append(Recorded(str(verdict), ref.name, "audit-only", audited.summary, by, ref.uid))

    def deleted(self, deleted: ObjectDeleted, *, by: str, missed: bool = False) -> None:
        self.note(by, f"deleted {deleted.ref} {deleted.ref.uid} {deleted.reason} missed={missed}")
        self.finalizers.extend(deleted.finalizers)
        self.deletions.append(deleted)
        self.missed += missed

    def object_stopped(self, stopped: ObjectStopped, *, by: str, detail: str = "") -> None:
        self.note(by, f"stopped {stopped.ref} {stopped.ref.uid}")
        self.stop_details.append(detail)
        self.stops.append(stopped)

    def archived(self, archived: ObjectArchived, *, size: int, by: str) -> None:
        self.note(by, f"archived {archived.ref} {archived.ref.uid} {archived.resource_version} {size}")
        self.archives.append(archived)

    def not_archived(self, ref: ObjectRef, archive: str, finished_at: datetime | None, *, failed: bool = False) -> None:
        self.note("archive", f"not archived {ref} {ref.uid} in {archive} failed={failed}")
        self.unarchived.append((ref.name, archive, failed))

    def refused(self, refusal: Refusal, *, by: str) -> None:
        self.note(by, f"refused {refusal.ref} {refusal.ref.uid} {refusal.message}")
        self.refusals.append(refusal)

    def reported(self, report: Report, *, by: str, level: EventLevel = "Warning") -> None:
        self.note(by, f"reported {report.ref} {report.ref.uid} {report.reason} {report.message}")
        self.reports.append(report)
        self.levels[report.id] = level

    @property
    def events(self) -> list[tuple[ObjectRef, str, str]]:
        """The reports of decisions, each once: the object, the reason and the message."""
        return list({one.id: (one.ref, str(one.reason), one.message) for one in self.reports}.values())

    def problem(self, message: str, **fields: object) -> None:
        self.note("problem", f"{message} {fields}")
        self.problems.append((message, fields))

    def dead_letter(self, event_type: str, status: int | str, **fields: object) -> None:
        self.problem("an event went to the dead letter", type=event_type, status=status, **fields)

    def swept(self, rule: KindRule) -> None:
        self.note("sweep", f"all of {rule.name}")
        self.swept_kinds.append(rule.kind)

    def sweep_ended(self, sweep_id: str, counts: Mapping[str, int], *, whole: bool) -> None:
        self.note("sweep", f"ended: {dict(counts)} whole={whole}")
        self.sweeps.append(dict(counts))
        self.wholes.append(whole)

    def forecast(self, forecast: Forecast) -> None:
        self.forecasts.append(forecast.counts)

    def delayed(self, ref: ObjectRef, seconds: float) -> None:
        self.note("budget", f"{ref} {ref.uid} in {seconds:.3f} s")
        self.waits.append(seconds)

    def paced(self, rule: KindRule, permits: int, *, before: int, most: int) -> None:
        self.note("pace", f"{rule.name} {before} -> {permits} of {most}")
        self.paces.append((rule.name, permits))

    def breaker(self, *, is_open: bool) -> None:
        self.breaker_open = is_open

    def stopped(self, *, is_stopped: bool) -> None:
        self.is_stopped = is_stopped

    def usage_pass(self, problem: str, unknown: Mapping[str, str] | None = None) -> None:
        self.note("usage", f"pass: {problem or 'complete'}")
        self.passes.append(problem)
        self.unknown_namespaces.append(dict(unknown or {}))

    def usage_ended(self, counts: Mapping[str, int], *, window_seconds: float) -> None:
        self.note("usage", f"ended: {dict(counts)}")
        self.usage_ticks.append(dict(counts))
        self.windows.append(window_seconds)

    def recreate_loop(self, ref: ObjectRef) -> None:
        self.note("recreation", f"{ref} {ref.uid}")
        self.loops.append(ref.name)

    def journaled(self, result: JournalResult, count: int = 1) -> None:
        self.journal[result] += count

    def verdicts(self) -> list[tuple[str, str]]:
        return [(each.verdict, each.reason) for each in self.records]
