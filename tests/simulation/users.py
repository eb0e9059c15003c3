"""Users and controllers: they write objects, and say in Things what they mean by it."""

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from shared.core.objects import ANNOTATION_DOMAIN
from shared.devserver.apiserver.deletion import DeleteOptions
from shared.devserver.apiserver.resources import JOBS, PODS, Object, Resource
from shared.devserver.apiserver.versions import WriteOptions
from tests.builders import not_none
from tests.simulation.statuses import finished_status, stamp
from tests.simulation.things import Thing
from tests.simulation.wishes import draw_duration, draw_instant, draw_native

TRAIN_JOBS = Resource(
    "trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob", has_status=True, counts_generations=True, custom=True
)
RESOURCES = {"Job": JOBS, "Pod": PODS, "TrainJob": TRAIN_JOBS}
NAMESPACES = ("default", "kube-system")
_NAMES = 7
_TEAMS = ("a", "b")
_OWNED = {"Pod": 0.5, "Job": 0.5, "TrainJob": 0.0}
_WISHES = {False: (0, 1, 1, 2), True: (0, 0, 0, 1, 2)}
"""How many an object begins with, where nothing else speaks and where a policy does."""

_NATIVE = {False: 0.6, True: 0.3}
_STATUS = WriteOptions(manager="controller", subresource="status")
_MAIN = WriteOptions(manager="kubectl")


class Users:
    """All who write but the system itself. Every action is one or two writes without an await between."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.rng: random.Random = world.rng
        self.active = True
        self._touches = 0
        self._actions: dict[Callable[[Thing], None], int] = {
            self.finish: 8,
            self.wish: 4,
            self.unwish: 2,
            self.hold: 1,
            self.release: 2,
            self.touch: 3,
            self.relabel: 1,
            self.beat: 3,
            self.guard: 1,
            self.unguard: 2,
            self.remove: 1,
            self.replace: 1,
            self.oust: 1,
        }

    def act(self) -> None:
        """One random action."""
        alive = self.world.things.alive()
        if not alive or self.rng.random() < 0.35:
            self.create()
            return
        action = self.rng.choices(list(self._actions), list(self._actions.values()))[0]
        with self.world.acting("users"):
            action(self.rng.choice(alive))

    def change_minds(self) -> None:
        """Let most finished objects expire at some instant of the next minutes."""
        for thing in self.world.things.alive():
            if thing.finished_at and self.rng.random() < 0.7:
                at = self.world.clocks.server().replace(microsecond=0) + timedelta(seconds=self.rng.randrange(600))
                thing.wishes["expire-at"] = at
                with self.world.acting("users"):
                    self._annotate(thing, "expire-at", stamp(at))

    def interfere(self, kind: str, namespace: str, name: str) -> None:
        """Write an object at the worst moment: between its read and its DELETE."""
        thing = self.world.things.find(kind, namespace, name)
        if thing is None or not self.active:
            return
        actions = (
            self.touch,
            self.beat,
            self.relabel,
            self.hold,
            self.wish,
            self.unwish,
            self.replace,
            self.remove,
            self.guard,
        )
        with self.world.acting("users"):
            self.rng.choice(actions)(thing)

    # Creation and end.

    def create(self) -> None:
        kind = self.rng.choice([kind for kind in RESOURCES if self.world.is_served(kind)])
        namespace, name = self.rng.choice(NAMESPACES), f"{kind.lower()}-{self.rng.randrange(_NAMES)}"
        if self.world.things.find(kind, namespace, name) is None:
            with self.world.acting("users"):
                self._create(kind, namespace, name)

    def _create(self, kind: str, namespace: str, name: str) -> None:
        rng = self.rng
        thing = Thing(kind, namespace, name, "")
        metadata: Object = {"name": name}
        spec: Object = {"containers": [{"name": "main"}]} if kind == "Pod" else {}
        if kind == "Job" and rng.random() < _NATIVE[self.world.lawgiver.active]:
            spec["ttlSecondsAfterFinished"], thing.wishes["native"] = draw_native(rng)
        if rng.random() < _OWNED[kind]:
            metadata["ownerReferences"] = self._owner(thing)
        if rng.random() < 0.7:
            metadata["labels"] = thing.labels = {"team": rng.choice(_TEAMS)}
        annotations = dict(self._draw_wish(thing) for _ in range(rng.choice(_WISHES[self.world.lawgiver.active])))
        if thing.owner and rng.random() < 0.2:
            annotations["owner"], thing.owner_ignored = "ignore", True
        metadata["annotations"] = {f"{ANNOTATION_DOMAIN}/{name}": text for name, text in annotations.items()}
        obj = self.world.store.create(RESOURCES[kind], namespace, {"metadata": metadata, "spec": spec}, _MAIN)
        thing.uid, thing.created_at = obj["metadata"]["uid"], self._server_second()
        self.world.things.all[thing.uid] = thing
        self._note("creates", thing)
        if rng.random() < 0.3:
            self.finish(thing)

    def _owner(self, thing: Thing) -> list[Object]:
        kinds = ("TrainJob",) if thing.kind == "Job" else ("Job", "TrainJob")
        owners = [t for t in self.world.things.alive() if t.kind in kinds and t.namespace == thing.namespace]
        if not owners or self.rng.random() < 0.1:
            thing.owner = "unknown"
            return [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "unknown", "controller": True}
            ]
        owner = self.rng.choice(owners)
        thing.owner = owner.uid
        api_version = RESOURCES[owner.kind].api_version
        reference = {"apiVersion": api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
        return [{**reference, "controller": True}]

    def finish(self, thing: Thing) -> None:
        """As the kind's controller writes it; some leave the time to the managed fields."""
        if thing.finished_at or thing.dying:
            return
        thing.failed = self.rng.random() < 0.3
        at = self.world.clocks.controller().replace(microsecond=0)
        thing.moves = thing.kind != "Job" and self.rng.random() < 0.3
        thing.finished_at = self._server_second() if thing.moves else at
        self._write_status(thing, finished_status(thing, at))
        self._note("finishes", thing)
        due = self.world.things.due_at(thing)
        if due is not None and self.rng.random() < 0.3:
            self._touch_around(thing, due)

    def remove(self, thing: Thing) -> None:
        """`kubectl delete`."""
        if thing.dying:
            return
        propagation = self.rng.choice(("Background", "Background", "Orphan"))
        if propagation == "Orphan":
            for other in self.world.things.alive():
                other.owner = "" if other.owner == thing.uid else other.owner
        self._note(f"deletes ({propagation})", thing)
        options = DeleteOptions(propagation=propagation)
        self.world.store.delete(RESOURCES[thing.kind], thing.namespace, thing.name, options)

    def oust(self, thing: Thing) -> None:
        """The newest of its like goes by hand: others that had newer ones beside them may have to stay now."""
        alike = [t for t in self.world.things.alive() if (t.kind, t.namespace) == (thing.kind, thing.namespace)]
        finished = [t for t in alike if t.finished_at and not t.dying]
        if finished:
            self.remove(max(finished, key=lambda t: (t.finished_at, t.uid)))

    def replace(self, thing: Thing) -> None:
        """Another object of the same name, at once."""
        self.remove(thing)
        if thing.gone:
            self._create(thing.kind, thing.namespace, thing.name)

    # Changes.

    def wish(self, thing: Thing) -> None:
        name, text = self._draw_wish(thing)
        if name == "native":
            return
        self._annotate(thing, name, text)
        self._note(f"says {name}={text}", thing)

    def unwish(self, thing: Thing) -> None:
        for name in [name for name in thing.wishes if name != "native"]:
            del thing.wishes[name]
            self._annotate(thing, name, None)
        self._note("says no more", thing)

    def hold(self, thing: Thing) -> None:
        thing.held = True
        self._annotate(thing, "hold", self.rng.choice(("post-mortem", "")))
        self._note("holds", thing)

    def release(self, thing: Thing) -> None:
        if thing.held:
            thing.held = False
            self._annotate(thing, "hold", None)
            self._note("releases", thing)

    def touch(self, thing: Thing) -> None:
        """A write that means nothing."""
        self._touches += 1
        self._write(thing, {"metadata": {"labels": {"touched": str(self._touches)}}})

    def relabel(self, thing: Thing) -> None:
        """Another team's from now on."""
        thing.labels = {"team": self.rng.choice(_TEAMS)}
        self._write(thing, {"metadata": {"labels": thing.labels}})
        self._note(f"gives team {thing.labels['team']}", thing)

    def beat(self, thing: Thing) -> None:
        """A status write that means nothing, except where the newest status write is the finish time."""
        self._touches += 1
        self._write_status(thing, {"observed": self._touches})
        if thing.moves:
            thing.finished_at = max(not_none(thing.finished_at), self._server_second())
        self._note("touches the status of", thing)

    def guard(self, thing: Thing) -> None:
        """A finalizer: what is deleted now stays for a while."""
        if not thing.dying:
            thing.finalizers = True
            self._write(thing, {"metadata": {"finalizers": ["example.com/guard"]}})

    def unguard(self, thing: Thing) -> None:
        if thing.finalizers:
            thing.finalizers = False
            self._write(thing, {"metadata": {"finalizers": None}})
            self._note("lets go of", thing)

    def _touch_around(self, thing: Thing, due: datetime) -> None:
        """Write it again just before, just after, or exactly when it is due."""
        wait = (due - self.world.clocks.server()).total_seconds() + self.rng.choice((-0.02, 0.0, 0.005, 0.05, 1.0))

        def write() -> None:
            if self.active and not thing.gone:
                with self.world.acting("users"):
                    self.rng.choice((self.touch, self.beat, self.hold, self.wish, self.unwish))(thing)

        self.world.loop.call_later(max(0.0, wait), write)

    def _draw_wish(self, thing: Thing) -> tuple[str, Any]:
        name = self.rng.choice(("ttl", "ttl", "ttl", "ttl-succeeded", "ttl-failed", "expire-at"))
        now = self.world.clocks.server()
        text, wish = draw_instant(self.rng, now) if name == "expire-at" else draw_duration(self.rng)
        thing.wishes[name] = wish
        return name, text

    def _annotate(self, thing: Thing, name: str, text: str | None) -> None:
        self._write(thing, {"metadata": {"annotations": {f"{ANNOTATION_DOMAIN}/{name}": text}}})

    def _write(self, thing: Thing, change: Object, options: WriteOptions = _MAIN) -> None:
        self.world.patch(RESOURCES[thing.kind], thing.namespace, thing.name, change, options)

    def _write_status(self, thing: Thing, change: Object) -> None:
        self._write(thing, {"status": change}, _STATUS)

    def _server_second(self) -> datetime:
        return self.world.clocks.server().replace(microsecond=0)

    def _note(self, what: str, thing: Thing) -> None:
        due = self.world.things.due_at(thing)
        until = f" due in {due - self.world.clocks.server()}" if isinstance(due, datetime) else ""
        self.world.note("users", f"{what} {thing}{until}")
