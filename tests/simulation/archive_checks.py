"""The checks of archives: what must always hold, looked at whenever it could be broken.

S1 never early, also by the grace; S2 exactly the object that was read; S3 never what is kept; S6 never unarchived;
children: a document has its children stored before it; copies: one document for each version, replaced only by one
that has more; kept: what was stored of a deleted object stays; L1 in the end, always.
"""

import json
from collections import Counter
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from shared.core.archive.document import Document, Record
from shared.core.archive.layout import SUFFIX, parse_key
from shared.core.values.objects import ANNOTATION_DOMAIN, ObjectRef
from shared.devserver.apiserver.deletion import DeleteOptions
from shared.devserver.apiserver.resources import JOBS
from shared.messages import Timer
from tests.simulation.archive_people import INVALID, Item, Spec, Wish
from tests.simulation.archive_store import SimFile, SimStore
from tests.simulation.checks import STALE_SECONDS, Violation

READ_BACK_SECONDS = 10.0
"""How long before a DELETE is sent its document may have been read: 8 s for the answer, and 1 s for the decision."""

ARCHIVED_SECONDS = 400.0
"""How old the policy of an archiving may be: an attempt, and the way of a policy to a process."""

SLACK = timedelta(seconds=45)
"""What a sweep, its timers, an archiving and a DELETE may take beyond the interval of the sweeps."""

FIRES_MAX = 48
"""How often a timer of one object and purpose may fire within a minute: each write of the object sets one, too."""

SECONDS_OF_FIRES = 60.0

CALLS_MAX = 40
"""Requests about one object to one archive in peace: each sweep, and each timer that they set."""


@dataclass(frozen=True)
class Sent:
    """When a DELETE was sent, and by which policy."""

    at: float
    spec: Spec


sent: ContextVar[Sent | None] = ContextVar("sent", default=None)


class ArchiveChecks:
    """Sees every DELETE, every stored file and every timer.

    Attributes:
        violation: The first one; the world stops at it.
        deletions: Accepted DELETEs; those of archived objects; and those after a change that needed another document.
    """

    def __init__(self, world: Any) -> None:
        self.world = world
        self.violation: Violation | None = None
        self.refused: Counter[str] = Counter()
        self.deletions = self.archived_deletions = self.rewritten = 0
        self._kept: list[tuple[SimStore, str, dict[str, Any]]] = []
        self._peace_at: datetime | None = None
        self._peaceful: dict[str, Counter[tuple[str, str]]] = {}
        self._fires: dict[tuple[str, str], list[float]] = {}

    def violate(self, rule: str, problem: str) -> None:
        self.violation = self.violation or Violation(rule, problem)
        self.world.note("VIOLATION", f"{rule}: {problem}")
        self.world.over.set()

    # A DELETE

    def deleting(self, live: dict[str, Any], uid: str, options: DeleteOptions) -> None:
        """At the instant of acceptance, before anything is changed."""
        world, metadata = self.world, live["metadata"]
        item, known, now = world.people.items[metadata["uid"]], sent.get(), world.clocks.server()
        assert known is not None
        if uid != item.uid or not options.resource_version or not options.uid:
            self.violate("S2", f"deleted {item.uid} instead of {uid}, by {options}")
        problems = [self._problem(item, live, known, place, now) for place in self._places(item, known)]
        if all(problems):
            rule, problem = problems[0] or ("", "")
            self.violate(rule, f"{item.uid} was deleted although {problem}")
        self.deletions += 1
        self.archived_deletions += any(True for store in world.stores.values() for _ in store.documents(item.uid))
        item.deleted_at = now
        self._check_kept(live)

    def _check_kept(self, live: dict[str, Any]) -> None:
        """Each document of a deleted object stays, unless a fault breaks it."""
        for store in self.world.stores.values():
            for path in store.documents(live["metadata"]["uid"]):
                if path in store.files and _is_copy(store.files[path], live):
                    self._kept.append((store, path, live))

    def _places(self, item: Item, known: Sent) -> Iterator[str | None]:
        """What its namespace said when that was read."""
        for at, value in reversed(self.world.people.places[item.namespace]):
            if at <= known.at:
                yield value
            if at < known.at - STALE_SECONDS:
                return

    def _problem(
        self, item: Item, live: dict[str, Any], known: Sent, place: str | None, now: datetime
    ) -> tuple[str, str] | None:
        ttl = item.ttl if item.ttl is not None else known.spec.ttl
        if item.is_held or item.finished_at is None or ttl is None:
            return "S3", f"it is held ({item.is_held}), finished at {item.finished_at}, and has the TTL {ttl}"
        due_at = item.finished_at + ttl
        wish = known.spec.wish(item, place)
        if wish == INVALID:
            return "S3", f"how it is archived cannot be read: {item.archive} in {place}"
        if isinstance(wish, Wish):
            store = self.world.stores[wish.to]
            ready = [at + wish.grace for at in self._acknowledged(store, live, known.at - READ_BACK_SECONDS, wish)]
            if not ready:
                version = live["metadata"]["resourceVersion"]
                return "S6", f"version {version} is not in archive {wish.to} with everything that {wish} names"
            due_at = max(due_at, min(ready))
        if due_at > now:
            return "S1", f"it is due in {due_at - now}, by {wish}"
        late = now - max(due_at, self._peace_at or now)
        if self._peace_at and late > self._one_sweep():
            return "L1", f"it was due at {due_at}, {late} ago, in peace since {self._peace_at}"
        return None

    def _acknowledged(self, store: SimStore, live: dict[str, Any], since: float, wish: Wish) -> Iterator[datetime]:
        """When the archive acknowledged this version, for each time that it was readable since an instant."""
        for path in store.documents(live["metadata"]["uid"]):
            for file in store.held(path, since):
                if not _is_copy(file, live):
                    continue
                at, record = _whole_second_after(file.at), Document.parse(file.data).record
                if store.is_foreign:
                    yield at
                elif _has_all(record, children=wish.children, logs=wish.logs):
                    yield max(at, record.archived_at)

    # What is stored

    def stored(self, store: SimStore, path: str) -> None:
        """A file is new in an archive."""
        if not path.endswith(SUFFIX):
            return
        document, key = Document.parse(store.files[path].data), parse_key(path)
        same = [one for one in store.documents(key.uid) if parse_key(one).resource_version == key.resource_version]
        is_replaced = store.stored[path] > 1 and not self._had_less(store, path, document.record)
        if path not in store.broken and (is_replaced or set(same) - {path}):
            self.violate("copies", f"version {key.resource_version} of {key.uid} is stored again in {store.name}")
        if not document.record.parent and key.kind == "Job":
            self.rewritten += any(
                parse_key(one).resource_version != key.resource_version for one in store.documents(key.uid)
            )
            self._check_children(store, document)

    def _had_less(self, store: SimStore, path: str, record: Record) -> bool:
        """Return whether a document that an attempt may have found lacked what the new one has."""
        children, logs = record.with_children, record.with_logs
        were = store.held(path, self.world.loop.time() - ARCHIVED_SECONDS)
        return any(
            _is_damaged(one, path) or not _has_all(_record_of(one), children=children, logs=logs) for one in were
        )

    def _check_children(self, store: SimStore, document: Document) -> None:
        """The children that were there when the object was read are stored before it, and their logs."""
        metadata, uid = document.obj["metadata"], document.obj["metadata"]["uid"]
        wishes = [wish for wish in self._wishes(document) if wish.to == store.name]
        if not wishes or not all(wish.children for wish in wishes):
            return
        for pod in self.world.live_pods():
            named = pod["metadata"]
            created_at = datetime.fromisoformat(named["creationTimestamp"])
            if self.world.people.pods[named["uid"]][0] != uid or created_at >= document.record.archived_at:
                continue
            since = self.world.loop.time() - ARCHIVED_SECONDS  # it may be lost before the object is stored
            if not any(any(store.held(path, since)) for path in store.documents(named["uid"])):
                self.violate("children", f"{metadata['name']} {uid} is stored before its child {named['name']}")
            is_asked = not store.is_foreign and all(wish.logs for wish in wishes)
            is_asked = is_asked and f"{named['name']}/main" not in document.record.log_problems
            logs = [file.data for path in store.logs(named["uid"]) for file in store.held(path, since)]
            if is_asked and f"log {named['name']}\n".encode() not in logs:
                self.violate("children", f"{metadata['name']} {uid} is stored before the log of {named['name']}")

    def _wishes(self, document: Document) -> Iterator[Wish]:
        """How the object may have had to be archived when it was read."""
        metadata, since = document.obj["metadata"], self.world.loop.time() - ARCHIVED_SECONDS
        value = metadata.get("annotations", {}).get(f"{ANNOTATION_DOMAIN}/archive")
        item = Item(metadata["namespace"], metadata["name"], team=metadata.get("labels", {}).get("team"), archive=value)
        for place in _since(self.world.people.places[item.namespace], since):
            for spec in _since(self.world.specs, since):
                if isinstance(wish := spec.wish(item, place), Wish):
                    yield wish

    # Timers and peace

    def fired(self, timer: Timer) -> None:
        """No hot loop between the timers, `archive` and `expire`."""
        now = self.world.loop.time()
        fires = self._fires.setdefault((timer.ref.uid, timer.purpose), [])
        fires[:] = [*(at for at in fires if at > now - SECONDS_OF_FIRES), now]
        if len(fires) > FIRES_MAX:
            self.violate("storm", f"{timer.ref} {timer.ref.uid} fired {len(fires)} times in {SECONDS_OF_FIRES} s")

    def begin_peace(self) -> None:
        self._peace_at = self.world.clocks.server()
        self._peaceful = {name: Counter(store.calls) for name, store in self.world.stores.items()}

    def _one_sweep(self) -> timedelta:
        lag: timedelta = self.world.interval + SLACK + timedelta(seconds=self.world.clocks.timers_lag_max)
        return lag

    def at_the_end(self) -> None:
        """L1: nothing stays unarchived, and what is due and archived is gone."""
        for item in self.world.people.alive():
            self._check_alive(item)
        for store, path, live in self._kept:
            is_kept = path in store.files and _is_copy(store.files[path], live)
            if not is_kept and path not in store.broken:
                self.violate("kept", f"the document of {live['metadata']['uid']} is gone from {store.name}")
        for name, store in self.world.stores.items():
            for about, calls in store.calls.items():
                if calls - self._peaceful[name][about] > CALLS_MAX:
                    self.violate("storm", f"{calls - self._peaceful[name][about]} requests {about} to {name} in peace")

    def _check_alive(self, item: Item) -> None:
        spec, now = self.world.specs[-1][1], self.world.clocks.server()
        wish, ttl = spec.wish(item, None), item.ttl if item.ttl is not None else spec.ttl
        if item.is_held or item.finished_at is None or wish == INVALID:
            return
        due_at = item.finished_at + ttl if ttl is not None else None
        if isinstance(wish, Wish):
            live = self.world.store.get(JOBS, item.namespace, item.name)
            store = self.world.stores[wish.to]
            # Without a TTL, what it was stored without is stored only when it is due one day.
            wanted = wish if due_at is not None else replace(wish, children=False, logs=False)
            at = min(self._acknowledged(store, live, self.world.loop.time(), wanted), default=None)
            paths = set(store.documents(item.uid))
            if at is None and (due_at is not None or not paths & store.broken):
                self.violate("L1", f"{item.uid} finished at {item.finished_at} and is not archived in {wish.to}")
            due_at = max(due_at, at + wish.grace) if due_at is not None and at is not None else None
        if due_at is not None and due_at + self._one_sweep() < now:
            self.violate("L1", f"{item.uid} is due since {due_at}, and archived as {wish}")

    # What SimCluster and its Server report

    def sent(self, *_: Any) -> None: ...
    def answered(self, *_: Any) -> None: ...
    def met_absent_path(self) -> None: ...
    def message(self, _uid: str) -> None: ...


def _is_copy(file: SimFile, live: dict[str, Any]) -> bool:
    """Return whether the object of a document is this one, byte for byte."""
    obj = {**live, "apiVersion": "batch/v1", "kind": "Job"}
    text = json.dumps(obj, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return file.data.partition(b"\n")[2] == text


def _record_of(file: SimFile) -> Record:
    return Document.parse(file.data).record


def _is_damaged(file: SimFile, path: str) -> bool:
    try:
        return Document.parse(file.data).digest != parse_key(path).digest
    except ValueError:
        return True


def _has_all(record: Record, *, children: bool, logs: bool) -> bool:
    return record.with_children >= children and record.with_logs >= logs


def _whole_second_after(at: datetime) -> datetime:
    return at.replace(microsecond=0) + timedelta(seconds=1)


def _since(were: list[tuple[float, Any]], since: float) -> Iterator[Any]:
    """How something was at some instant since another one."""
    for at, one in reversed(were):
        yield one
        if at < since:
            return


def make_ref(item: Item) -> ObjectRef:
    return ObjectRef("batch/v1", "Job", item.namespace, item.name, item.uid)
