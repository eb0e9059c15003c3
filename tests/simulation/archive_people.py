"""The clients that write Jobs with archives: people, their controllers, and the operators who write policies.

Each writer records what it means, so that the system is compared with the meaning and not with its own reading.
"""

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import Policy
from shared.core.values.objects import ANNOTATION_DOMAIN
from shared.devserver.apiserver.deletion import DeleteOptions
from shared.devserver.apiserver.errors import StatusError
from shared.devserver.apiserver.pod_logs import LOG_ANNOTATION
from shared.devserver.apiserver.resources import JOBS, NAMESPACES, PODS, Object
from shared.devserver.apiserver.writes import WriteOptions, merge_patch
from tests.builders import JOB
from tests.simulation.archive_store import STORES, url_of
from tests.simulation.written_fields import stamp

KINDS = Catalogue((JOB,))
PLACES = ("default", "kube-system")
NAMES = 8
TEAMS = ("a", "b")
INVALID = "invalid"
_BAD_NAMES = ("", "yes", "elsewhere", "True", "main ")
_PERSON = WriteOptions(manager="kubectl")
_STATUS = WriteOptions(manager="kube-controller-manager", subresource="status")


@dataclass(frozen=True)
class Wish:
    """How an object has to be archived."""

    to: str
    grace: timedelta = timedelta(0)
    children: bool = True
    logs: bool = False


@dataclass(frozen=True)
class Spec:
    """What one policy means.

    Attributes:
        archives: The archives that it has.
        wishes: By team; the key None is for all others.
        ttl: Of a Job without its own.
        foreign: The archive that is a webhook; empty if none is.
    """

    archives: tuple[str, ...] = ()
    wishes: Mapping[str | None, Wish] = field(default_factory=dict)
    ttl: timedelta | None = None
    foreign: str = ""

    def wish(self, job: "Item", place: str | None) -> Wish | str | None:
        """How a Job is archived, None for not at all, INVALID if that cannot be read; `place` is its namespace's."""
        by_rule = self.wishes.get(job.team, self.wishes.get(None))
        value = place if job.archive is None else job.archive
        if value == "false":
            return None
        if value is None:
            return by_rule
        if value == "true":
            return by_rule or (Wish(self.archives[0]) if len(self.archives) == 1 else INVALID)
        return replace(by_rule or Wish(value), to=value) if value in self.archives else INVALID

    def read(self) -> Policy:
        """The policy, as a process reads it."""
        rules: list[dict[str, Any]] = []
        for team, wish in sorted(self.wishes.items(), key=lambda one: one[0] is None):
            match = {"kinds": ["jobs"], **({"labels": {"matchLabels": {"team": team}}} if team else {})}
            archive = {"to": wish.to, "grace": f"{wish.grace.seconds}s", "children": wish.children, "logs": wish.logs}
            rules.append({"name": f"archive-{team or 'all'}", "match": match, "archive": archive})
        if self.ttl is not None:
            rules.append({"name": "ttl", "match": {"kinds": ["jobs"]}, "ttl": f"{self.ttl.seconds}s"})
        archives = {name: {"url": url_of(name)} for name in self.archives}
        if self.foreign in archives:
            archives[self.foreign] = {"webhook": "https://archiver.example.com"}
        return _parse(json.dumps({"archives": archives, "rules": rules}))


@cache
def _parse(text: str) -> Policy:
    return Policy.model_validate(json.loads(text)).of_kinds(KINDS)


def draw_spec(rng: random.Random, foreign: str = "") -> Spec:
    """A policy that archives most Jobs, or some of them, or none."""
    archives = rng.choice(((), STORES[:1], STORES[:1], STORES, STORES))
    wishes: dict[str | None, Wish] = {}
    for team in (*TEAMS[:1], None) if archives else ():
        if rng.random() < 0.85:
            grace = timedelta(seconds=rng.choice((0, 1, 5, 20, 60)))
            children = rng.random() < 0.9
            wishes[team] = Wish(rng.choice(archives), grace, children, rng.random() < 0.8)
    ttl = timedelta(seconds=rng.choice((0, 5, 30))) if rng.random() < 0.5 else None
    return Spec(archives, wishes, ttl, foreign)


@dataclass
class Item:
    """One Job, as its writers intend it.

    Attributes:
        archive: The value of its annotation; None for none.
        ttl: Its own.
        finished_at: As its controller wrote it.
        changed_at: Its newest write, by the loop's clock.
        deleted_at: When the system deleted it.
    """

    namespace: str
    name: str
    uid: str = ""
    team: str | None = None
    archive: str | None = None
    ttl: timedelta | None = None
    is_held: bool = False
    finished_at: datetime | None = None
    changed_at: float = 0.0
    is_gone: bool = False
    deleted_at: datetime | None = None


class People:
    """All clients except the system; each action is one write and its intention, without an await between."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.rng: random.Random = world.rng
        self.active = True
        self.items: dict[str, Item] = {}
        self.places: dict[str, list[tuple[float, str | None]]] = {place: [(0.0, None)] for place in PLACES}
        self.pods: dict[str, tuple[str, float]] = {}
        self._touches = 0
        self._actions: dict[Callable[[Item], None], int] = {
            self.finish: 24,
            self.set_ttl: 2,
            self.opt: 3,
            self.relabel: 1,
            self.hold: 1,
            self.release: 2,
            self.touch: 3,
            self.beat: 1,
            self.write_pod: 2,
            self.remove: 1,
            self.replace: 1,
        }

    def act(self) -> None:
        alive, roll = self.alive(), self.rng.random()
        if not alive or roll < 0.35:
            self.create()
        elif roll < 0.38:
            self.govern(self.rng.choice(PLACES))
        elif roll < 0.48:
            self.restore()
        else:
            self.rng.choices(list(self._actions), list(self._actions.values()))[0](self.rng.choice(alive))

    def interfere(self, kind: str, namespace: str, name: str) -> None:
        """Write a Job between its read and its DELETE."""
        changes = (self.touch, self.opt, self.hold, self.relabel, self.beat, self.set_ttl, self.replace)
        for item in self.alive():
            if self.active and (kind, namespace, name) == ("Job", item.namespace, item.name):
                self.rng.choice(changes)(item)

    def alive(self) -> list[Item]:
        return [item for item in self.items.values() if not item.is_gone]

    def govern(self, place: str, value: str | None = None) -> None:
        """Set or remove the annotation of a namespace."""
        if self.active:
            value = self.rng.choice((None, None, "true", "false", *STORES, self.rng.choice(_BAD_NAMES)))
        change = {"metadata": {"annotations": {f"{ANNOTATION_DOMAIN}/archive": value}}}
        self.world.store.patch(NAMESPACES, "", place, merge_patch(change), _PERSON)
        self.places[place].append((self.world.loop.time(), value))
        self.world.note("people", f"set archive={value} on {place}")

    # Jobs

    def create(self) -> None:
        place, name = self.rng.choice(PLACES), f"job-{self.rng.randrange(NAMES)}"
        if self._find(place, name) is None:
            self._create(Item(place, name))

    def restore(self) -> None:
        """Create a Job again as an archive has it: with another uid."""
        store = self.world.stores[self.rng.choice(STORES)]
        gone = [item for item in self.items.values() if item.is_gone and self._find(item.namespace, item.name) is None]
        known = [item for item in gone if any(True for _ in store.documents(item.uid))]
        if known:
            old = self.rng.choice(known)
            self.world.note("people", f"restores {old.uid}")
            item = replace(old, uid="", is_gone=False, is_held=False, deleted_at=None, finished_at=None)
            self._create(item, is_restored=True)

    def _find(self, place: str, name: str) -> Item | None:
        return next((one for one in self.alive() if (one.namespace, one.name) == (place, name)), None)

    def _create(self, item: Item, *, is_restored: bool = False) -> None:
        rng = self.rng
        if not is_restored:
            item.team = rng.choice((None, *TEAMS))
            item.ttl = timedelta(seconds=rng.choice((0, 3, 15, 60))) if rng.random() < 0.8 else None
            item.archive = self._draw_value() if rng.random() < 0.25 else None
        said = {"ttl": f"{item.ttl.seconds}s" if item.ttl is not None else None, "archive": item.archive}
        annotations = {f"{ANNOTATION_DOMAIN}/{name}": text for name, text in said.items() if text is not None}
        labels = {"team": item.team} if item.team else {}
        obj = {"metadata": {"name": item.name, "annotations": annotations, "labels": labels}, "spec": {}}
        item.uid = self.world.store.create(JOBS, item.namespace, obj, _PERSON)["metadata"]["uid"]
        self.items[item.uid] = item
        self._note("create", item)
        for number in range(rng.choice((0, 1, 1, 2, 4))):
            self._create_pod(item, number)

    def _create_pod(self, item: Item, number: int) -> None:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": item.name, "uid": item.uid, "controller": True}
        self._touches += 1
        name = f"{item.name}-{number}-{self._touches}"
        metadata = {"name": name, "ownerReferences": [owner], "annotations": {f"{LOG_ANNOTATION}main": f"log {name}\n"}}
        pod = {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}}
        uid = self.world.store.create(PODS, item.namespace, pod, _PERSON)["metadata"]["uid"]
        self.pods[uid] = item.uid, self.world.loop.time()
        self.world.store.patch(PODS, item.namespace, name, merge_patch({"status": {"phase": "Succeeded"}}), _STATUS)

    def finish(self, item: Item) -> None:
        if item.finished_at is None:
            self._touches += 1
            item.finished_at = self._second()
            kind = "Failed" if self.rng.random() < 0.3 else "Complete"
            condition = {"type": kind, "status": "True", "lastTransitionTime": stamp(item.finished_at)}
            self._write(item, {"status": {"conditions": [condition]}}, _STATUS)

    def set_ttl(self, item: Item) -> None:
        item.ttl = timedelta(seconds=self.rng.choice((0, 3, 15, 60))) if self.rng.random() < 0.8 else None
        self._annotate(item, "ttl", f"{item.ttl.seconds}s" if item.ttl is not None else None)

    def opt(self, item: Item) -> None:
        """Opt in to an archive, or out of it; some write nonsense."""
        item.archive = self._draw_value()
        self._annotate(item, "archive", item.archive)

    def _draw_value(self) -> str | None:
        value: str | None = self.rng.choice((None, None, "true", "false", *STORES, self.rng.choice(_BAD_NAMES)))
        return value

    def relabel(self, item: Item) -> None:
        item.team = self.rng.choice((None, *TEAMS))
        self._write(item, {"metadata": {"labels": {"team": item.team}}})

    def hold(self, item: Item) -> None:
        item.is_held = True
        self._annotate(item, "hold", "look")

    def release(self, item: Item) -> None:
        if item.is_held:
            item.is_held = False
            self._annotate(item, "hold", None)

    def touch(self, item: Item) -> None:
        """A write that means nothing, and needs another document."""
        self._touches += 1
        self._write(item, {"metadata": {"labels": {"touched": str(self._touches)}}})

    def beat(self, item: Item) -> None:
        self._touches += 1
        self._write(item, {"status": {"ready": self._touches}}, _STATUS)

    def write_pod(self, item: Item) -> None:
        """A Pod of the Job changes, or goes; the Job does not change."""
        pods = [pod for pod in self.world.live_pods() if self.pods[pod["metadata"]["uid"]][0] == item.uid]
        if pods:
            name = self.rng.choice(pods)["metadata"]["name"]
            if self.rng.random() < 0.3:
                self.world.store.delete(PODS, item.namespace, name, DeleteOptions())
            else:
                self._touches += 1
                change = merge_patch({"metadata": {"labels": {"touched": str(self._touches)}}})
                self.world.store.patch(PODS, item.namespace, name, change, _PERSON)

    def remove(self, item: Item) -> None:
        item.is_gone = True
        self._note("delete", item)
        self.world.store.delete(JOBS, item.namespace, item.name, DeleteOptions(propagation="Background"))

    def replace(self, item: Item) -> None:
        """Replace a Job by another Job of the same name."""
        self.remove(item)
        self._create(Item(item.namespace, item.name))

    def calm(self) -> None:
        """From now on no person writes; most holds and unreadable annotations end."""
        self.active = False
        for place in PLACES:
            self.govern(place, None)
        for item in self.alive():
            if self.rng.random() < 0.7:
                self.release(item)
            if self.rng.random() < 0.5 and item.archive in _BAD_NAMES:
                item.archive = None
                self._annotate(item, "archive", None)

    # Writes

    def _second(self) -> datetime:
        at: datetime = self.world.clocks.controller()
        return at.replace(microsecond=0) + timedelta(seconds=1)

    def _annotate(self, item: Item, name: str, text: str | None) -> None:
        self._write(item, {"metadata": {"annotations": {f"{ANNOTATION_DOMAIN}/{name}": text}}})

    def _write(self, item: Item, change: Object, options: WriteOptions = _PERSON) -> None:
        self._note(str(change), item)
        item.changed_at = self.world.loop.time()
        try:
            self.world.store.patch(JOBS, item.namespace, item.name, merge_patch(change), options)
        except StatusError as error:
            raise AssertionError(error) from error

    def _note(self, what: str, item: Item) -> None:
        self.world.note("people", f"{what} {item.namespace}/{item.name} {item.uid}")
