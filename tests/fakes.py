"""In-memory fakes of the ports; a test sets beforehand which calls fail."""

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from shared.core.kinds.rule import KindRule
from shared.core.objects import ObjectRef, ref_of
from shared.errors import AbsentKindError, ConflictError, PermanentError
from shared.messages import Message, ObjectDeleted, Timer
from shared.ports import EventLevel, Page, Propagation, Snapshot, Unreadable, Verdict
from tests.builders import NOW, having, namespace


class FakeClock:
    """A clock that a test moves."""

    def __init__(self, at: datetime = NOW) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at

    def advance(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@dataclass(frozen=True, slots=True)
class Call:
    """A request to the fake API server: the verb (`get`, `delete`, `list` or `list-metadata`) and its target."""

    verb: str
    what: str


class FakeCluster:
    """An API server: objects by name, each write a new resourceVersion, preconditions, pages.

    Attributes:
        clock: The API server's clock.
        page_size: Objects on a page of a LIST.
        served_kinds: Kinds that are served; all if None.
        scopes: The scopes of kinds that are served in another scope than their rule says.
        before_get: Called with the name before a GET, so that another client can write.
        before_delete: Called with the name before a DELETE.
        on_list: Called with each LIST.
        unreadable: The problems of objects that LISTs and GETs cannot read, by name.
        namespace_reads: GETs and LISTs of namespaces, which `calls` leaves out. Each namespace exists without
            annotations, unless a test has put or removed it.
    """

    def __init__(self, clock: FakeClock | None = None, *, page_size: int = 500) -> None:
        self.clock = clock or FakeClock()
        self.page_size = page_size
        self.served_kinds: set[str] | None = None
        self.scopes: dict[str, str] = {}
        self.before_get: Callable[[str], None] = lambda _: None
        self.before_delete: Callable[[str], None] = lambda _: None
        self.on_list: Callable[[], None] = lambda: None
        self.calls: list[Call] = []
        self.namespace_reads: list[Call] = []
        self.apiservice_reads: list[Call] = []
        self.aggregated_groups: set[str] = set()
        self.without_namespaces: set[str] = set()
        self.deleted: list[dict[str, Any]] = []
        self.propagations: list[str] = []
        self.events: list[tuple[ObjectRef, str, str]] = []
        self.memory: dict[str, dict[str, Any]] = {}
        self.unreadable: dict[str, str] = {}
        self._objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._failures: list[tuple[str, str, Exception]] = []
        self._version = 1_000

    # Called by tests

    def put(self, obj: dict[str, Any]) -> dict[str, Any]:
        """Create or replace an object; returns it as stored."""
        self._version += 1
        obj = having(obj, "metadata.resourceVersion", str(self._version))
        self._objects[_key(ref_of(obj))] = obj
        return copy.deepcopy(obj)

    def write(self, name: str, path: str = "metadata.labels.touched", value: Any = "yes") -> None:
        """Another client writes the object of this name."""
        obj = next(obj for obj in self._objects.values() if obj["metadata"]["name"] == name)
        self.put(having(obj, path, value))

    def remove(self, name: str) -> None:
        """Another client deletes the object of this name."""
        self._objects = {key: obj for key, obj in self._objects.items() if key[2] != name}

    def remember(self, obj: dict[str, Any]) -> None:
        """Cache the object, as a watch in this process does."""
        self.memory[obj["metadata"]["uid"]] = copy.deepcopy(obj)

    def fail(self, verb: str, error: Exception, *, on: str = "") -> None:
        """Let the verb fail from now on, for one name or plural, or for all."""
        self._failures.append((verb, on, error))

    @property
    def names(self) -> set[str]:
        """The names of the objects that are there."""
        return {obj["metadata"]["name"] for obj in self._objects.values()}

    def counted(self) -> Counter[str]:
        """How often each verb was called."""
        return Counter(call.verb for call in self.calls)

    # The port

    async def served(self, rules: Sequence[KindRule]) -> tuple[KindRule, ...]:
        for failing, _, error in self._failures:
            if failing == "served":
                raise error
        served = [rule for rule in rules if self.served_kinds is None or rule.kind in self.served_kinds]
        return tuple(rule.model_copy(update={"scope": self.scopes.get(rule.kind, rule.scope)}) for rule in served)

    async def is_aggregated(self, rule: KindRule) -> bool:
        self._call("list-apiservices", rule.group, self.apiservice_reads)
        return rule.group in self.aggregated_groups

    async def get(self, rule: KindRule, ref: ObjectRef) -> Snapshot | None:
        if rule.kind == "Namespace":
            return self._get_namespace(ref)
        self._call("get", ref.name)
        self.before_get(ref.name)
        if ref.name in self.unreadable:
            raise PermanentError(self.unreadable[ref.name])
        obj = self._objects.get((rule.kind, ref.namespace, ref.name))
        return Snapshot(copy.deepcopy(obj), self._date()) if obj else None

    def get_cached(self, ref: ObjectRef) -> Snapshot | None:
        obj = self.memory.get(ref.uid)
        return Snapshot(copy.deepcopy(obj), self._date()) if obj else None

    async def delete(self, rule: KindRule, obj: dict[str, Any], *, propagation: Propagation | None = None) -> bool:
        ref = ref_of(obj)
        self._call("delete", ref.name)
        self.before_delete(ref.name)
        present = self._objects.get(_key(ref))
        if present is None:
            return False
        if any(present["metadata"][name] != obj["metadata"][name] for name in ("uid", "resourceVersion")):
            raise ConflictError("the object has been modified")
        self.deleted.append(self._objects.pop(_key(ref)))
        self.propagations.append(propagation or rule.propagation)
        return True

    async def patch(self, rule: KindRule, ref: ObjectRef, patch: dict[str, Any]) -> Snapshot:
        self._call("patch", ref.name)
        present = self._objects.get(_key(ref))
        if present is None or patch["metadata"]["resourceVersion"] != present["metadata"]["resourceVersion"]:
            raise ConflictError("the object has been modified")
        return Snapshot(self.put(_merged(present, patch)), self._date())

    async def list_page(
        self,
        rule: KindRule,
        *,
        namespace: str = "",
        continue_token: str = "",
        resource_version: str = "",
        metadata_only: bool = False,
    ) -> Page:
        if rule.kind == "Namespace":
            self._call("list-namespaces", "", self.namespace_reads)
            return Page(self._namespaces(), self._date(), "", str(self._version))
        self._call("list-metadata" if metadata_only else "list", rule.plural)
        self.on_list()
        if self.served_kinds is not None and rule.kind not in self.served_kinds:
            raise AbsentKindError(f"{rule.plural} are not served")
        found = [
            (f"{place}/{name}", _without_body(obj) if metadata_only else copy.deepcopy(obj))
            for (kind, place, name), obj in sorted(self._objects.items())
            if kind == rule.kind and (not namespace or place == namespace) and f"{place}/{name}" > continue_token
        ]
        token = found[self.page_size - 1][0] if len(found) > self.page_size else ""  # a DELETE meanwhile moves none
        page = [obj for _, obj in found[: self.page_size]]
        items = [obj for obj in page if obj["metadata"]["name"] not in self.unreadable]
        left_out = [ref_of(obj) for obj in page if obj["metadata"]["name"] in self.unreadable]
        unreadable = [Unreadable(ref, self.unreadable[ref.name]) for ref in left_out]
        return Page(items, self._date(), token, str(self._version), unreadable)

    async def record_event(self, ref: ObjectRef, reason: str, message: str, *, level: EventLevel = "Warning") -> None:
        self._call("event", ref.name)
        if (ref, reason, message) not in self.events:
            self.events.append((ref, reason, message))

    def _get_namespace(self, ref: ObjectRef) -> Snapshot | None:
        self._call("get-namespace", ref.name, self.namespace_reads)
        if ref.name in self.without_namespaces:
            return None
        obj = self._objects.get(("Namespace", "", ref.name)) or namespace(ref.name)
        return Snapshot(copy.deepcopy(obj), self._date())

    def _namespaces(self) -> list[dict[str, Any]]:
        places = {place for _, place, _ in self._objects if place} - self.without_namespaces
        said = {name: obj for (kind, _, name), obj in self._objects.items() if kind == "Namespace"}
        return [copy.deepcopy(said.get(name) or namespace(name)) for name in sorted(places | set(said))]

    def _call(self, verb: str, what: str, calls: list[Call] | None = None) -> None:
        (self.calls if calls is None else calls).append(Call(verb, what))
        for failing, on, error in self._failures:
            if failing == verb and on in ("", what):
                raise error

    def _date(self) -> datetime:
        """The instant in the Date header: whole seconds, rounded down."""
        return self.clock.now().replace(microsecond=0)


def _key(ref: ObjectRef) -> tuple[str, str, str]:
    return ref.kind, ref.namespace, ref.name


def _merged(obj: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    merged = {**obj} if isinstance(obj, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged


def _without_body(obj: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy({name: obj[name] for name in ("apiVersion", "kind", "metadata")})


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


@dataclass
class FakeTelemetry:
    """Stores what is recorded."""

    records: list[Recorded] = field(default_factory=list)
    deletions: list[ObjectDeleted] = field(default_factory=list)
    missed: int = 0
    problems: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    swept_kinds: list[str] = field(default_factory=list)
    sweeps: list[dict[str, int]] = field(default_factory=list)
    timers_due: list[datetime] = field(default_factory=list)
    finalizers: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    loops: list[str] = field(default_factory=list)
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
        self.records.append(Recorded(str(verdict), ref.name, str(reason), detail, by))

    def deleted(self, deleted: ObjectDeleted, *, by: str, missed: bool = False, finalizers: Sequence[str] = ()) -> None:
        self.finalizers.extend(finalizers)
        self.deletions.append(deleted)
        self.missed += missed

    def problem(self, message: str, **fields: object) -> None:
        self.problems.append((message, fields))

    def dead_letter(self, event_type: str, status: int | str, **fields: object) -> None:
        self.problem("an event went to the dead letter", type=event_type, status=status, **fields)

    def swept(self, rule: KindRule) -> None:
        self.swept_kinds.append(rule.kind)

    def sweep_ended(self, sweep_id: str, counts: Mapping[str, int], *, whole: bool) -> None:
        self.sweeps.append(dict(counts))

    def delayed(self, ref: ObjectRef, seconds: float) -> None:
        self.waits.append(seconds)

    def breaker(self, *, is_open: bool) -> None:
        self.breaker_open = is_open

    def stopped(self, *, is_stopped: bool) -> None:
        self.is_stopped = is_stopped

    def recreate_loop(self, ref: ObjectRef) -> None:
        self.loops.append(ref.name)

    def verdicts(self) -> list[tuple[str, str]]:
        return [(each.verdict, each.reason) for each in self.records]
