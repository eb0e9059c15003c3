"""Users and controllers: they write objects, and record in History what they intend."""

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from shared.core.values.objects import ANNOTATION_DOMAIN
from shared.devserver.apiserver.deletion import DeleteOptions
from shared.devserver.apiserver.resources import JOBS, PODS, Object, Resource
from shared.devserver.apiserver.writes import WriteOptions
from tests.builders import not_none
from tests.simulation.sim_object import REPLICA_SET, UNKNOWN_OWNER, SimObject
from tests.simulation.written_fields import draw_duration, draw_instant, draw_native, finished_status, stamp

TRAIN_JOBS = Resource(
    "trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob", has_status=True, counts_generations=True, custom=True
)
REPLICA_SETS = (REPLICA_SET, "apps/v1")
OF_ANOTHER_GROUP = (UNKNOWN_OWNER, "example.com/v1")
"""Two owners by uid, with their versions: both are a ReplicaSet, and only that of `apps` is of a known kind."""

RESOURCES = {"Job": JOBS, "Pod": PODS, "TrainJob": TRAIN_JOBS}
NAMESPACES = ("default", "kube-system")
_NAMES = 7
_TEAMS = ("a", "b")
_OWNED = {"Pod": 0.5, "Job": 0.5, "TrainJob": 0.0}
_TTLS = {False: (0, 1, 1, 2), True: (0, 0, 0, 1, 2)}
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
        self._actions: dict[Callable[[SimObject], None], int] = {
            self.finish: 8,
            self.set_ttl: 4,
            self.remove_ttls: 2,
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
        alive = self.world.history.alive()
        if not alive or self.rng.random() < 0.35:
            self.create()
            return
        action = self.rng.choices(list(self._actions), list(self._actions.values()))[0]
        with self.world.acting("users"):
            action(self.rng.choice(alive))

    def change_minds(self) -> None:
        """Let most finished objects expire at some instant of the next minutes."""
        for obj in self.world.history.alive():
            if obj.finished_at and self.rng.random() < 0.7:
                at = self.world.clocks.server().replace(microsecond=0) + timedelta(seconds=self.rng.randrange(600))
                obj.ttls["expire-at"] = at
                with self.world.acting("users"):
                    self._annotate(obj, "expire-at", stamp(at))

    def interfere(self, kind: str, namespace: str, name: str) -> None:
        """Write an object at the worst moment: between its read and its DELETE."""
        obj = self.world.history.find(kind, namespace, name)
        if obj is None or not self.active:
            return
        actions = (
            self.touch,
            self.beat,
            self.relabel,
            self.hold,
            self.set_ttl,
            self.remove_ttls,
            self.replace,
            self.remove,
            self.guard,
        )
        with self.world.acting("users"):
            self.rng.choice(actions)(obj)

    # Creation and end.

    def create(self) -> None:
        kind = self.rng.choice([kind for kind in RESOURCES if self.world.is_served(kind)])
        namespace, name = self.rng.choice(NAMESPACES), f"{kind.lower()}-{self.rng.randrange(_NAMES)}"
        if self.world.history.find(kind, namespace, name) is None:
            with self.world.acting("users"):
                self._create(kind, namespace, name)

    def _create(self, kind: str, namespace: str, name: str) -> None:
        rng = self.rng
        obj = SimObject(kind, namespace, name, "")
        metadata: Object = {"name": name}
        spec: Object = {"containers": [{"name": "main"}]} if kind == "Pod" else {}
        if kind == "Job" and rng.random() < _NATIVE[self.world.operators.active]:
            spec["ttlSecondsAfterFinished"], obj.ttls["native"] = draw_native(rng)
        if rng.random() < _OWNED[kind]:
            metadata["ownerReferences"] = self._owner(obj)
        if rng.random() < 0.7:
            metadata["labels"] = obj.labels = {"team": rng.choice(_TEAMS)}
        annotations = dict(self._draw_ttl(obj) for _ in range(rng.choice(_TTLS[self.world.operators.active])))
        if obj.owner and rng.random() < 0.2:
            annotations["owner"], obj.owner_ignored = "ignore", True
        metadata["annotations"] = {f"{ANNOTATION_DOMAIN}/{name}": text for name, text in annotations.items()}
        stored = self.world.store.create(RESOURCES[kind], namespace, {"metadata": metadata, "spec": spec}, _MAIN)
        obj.uid, obj.created_at = stored["metadata"]["uid"], self._server_second()
        self.world.history.all[obj.uid] = obj
        self._note("creates", obj)
        if rng.random() < 0.3:
            self.finish(obj)

    def _owner(self, obj: SimObject) -> list[Object]:
        kinds = ("TrainJob",) if obj.kind == "Job" else ("Job", "TrainJob")
        owners = [t for t in self.world.history.alive() if t.kind in kinds and t.namespace == obj.namespace]
        if not owners or self.rng.random() < 0.1:
            # By its name, since a further draw would change what each seed does.
            obj.owner, api_version = REPLICA_SETS if obj.name[-1] in "02468" else OF_ANOTHER_GROUP
            reference = {"apiVersion": api_version, "kind": "ReplicaSet", "name": "web", "uid": obj.owner}
            return [{**reference, "controller": True}]
        owner = self.rng.choice(owners)
        obj.owner = owner.uid
        api_version = RESOURCES[owner.kind].api_version
        reference = {"apiVersion": api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
        return [{**reference, "controller": True}]

    def finish(self, obj: SimObject) -> None:
        """As the kind's controller writes it; some leave the time to the managed fields."""
        if obj.finished_at or obj.dying:
            return
        obj.failed = self.rng.random() < 0.3
        at = self.world.clocks.controller().replace(microsecond=0)
        obj.moves = obj.kind != "Job" and self.rng.random() < 0.3
        obj.finished_at = self._server_second() if obj.moves else at
        self._write_status(obj, finished_status(obj, at))
        self._note("finishes", obj)
        due = self.world.history.due_at(obj)
        if due is not None and self.rng.random() < 0.3:
            self._touch_around(obj, due)

    def remove(self, obj: SimObject) -> None:
        """`kubectl delete`."""
        if obj.dying:
            return
        propagation = self.rng.choice(("Background", "Background", "Orphan"))
        if propagation == "Orphan":
            for other in self.world.history.alive():
                other.owner = "" if other.owner == obj.uid else other.owner
        self._note(f"deletes ({propagation})", obj)
        options = DeleteOptions(propagation=propagation)
        self.world.store.delete(RESOURCES[obj.kind], obj.namespace, obj.name, options)

    def oust(self, obj: SimObject) -> None:
        """The newest of its like goes by hand: others that had newer ones beside them may have to stay now."""
        alike = [t for t in self.world.history.alive() if (t.kind, t.namespace) == (obj.kind, obj.namespace)]
        finished = [t for t in alike if t.finished_at and not t.dying]
        if finished:
            self.remove(max(finished, key=lambda t: (t.finished_at, t.uid)))

    def replace(self, obj: SimObject) -> None:
        """Another object of the same name, at once."""
        self.remove(obj)
        if obj.gone:
            self._create(obj.kind, obj.namespace, obj.name)

    # Changes.

    def set_ttl(self, obj: SimObject) -> None:
        name, text = self._draw_ttl(obj)
        if name == "native":
            return
        self._annotate(obj, name, text)
        self._note(f"says {name}={text}", obj)

    def remove_ttls(self, obj: SimObject) -> None:
        for name in [name for name in obj.ttls if name != "native"]:
            del obj.ttls[name]
            self._annotate(obj, name, None)
        self._note("says no more", obj)

    def hold(self, obj: SimObject) -> None:
        obj.held = True
        self._annotate(obj, "hold", self.rng.choice(("post-mortem", "")))
        self._note("holds", obj)

    def release(self, obj: SimObject) -> None:
        if obj.held:
            obj.held = False
            self._annotate(obj, "hold", None)
            self._note("releases", obj)

    def touch(self, obj: SimObject) -> None:
        """A write that means nothing."""
        self._touches += 1
        self._write(obj, {"metadata": {"labels": {"touched": str(self._touches)}}})

    def relabel(self, obj: SimObject) -> None:
        """Another team's from now on."""
        obj.labels = {"team": self.rng.choice(_TEAMS)}
        self._write(obj, {"metadata": {"labels": obj.labels}})
        self._note(f"gives team {obj.labels['team']}", obj)

    def beat(self, obj: SimObject) -> None:
        """A status write that means nothing, except where the newest status write is the finish time."""
        self._touches += 1
        self._write_status(obj, {"observed": self._touches})
        if obj.moves:
            obj.finished_at = max(not_none(obj.finished_at), self._server_second())
        self._note("touches the status of", obj)

    def guard(self, obj: SimObject) -> None:
        """A finalizer: what is deleted now stays for a while."""
        if not obj.dying:
            obj.finalizers = True
            self._write(obj, {"metadata": {"finalizers": ["example.com/guard"]}})

    def unguard(self, obj: SimObject) -> None:
        if obj.finalizers:
            obj.finalizers = False
            self._write(obj, {"metadata": {"finalizers": None}})
            self._note("lets go of", obj)

    def _touch_around(self, obj: SimObject, due: datetime) -> None:
        """Write it again just before, just after, or exactly when it is due."""
        wait = (due - self.world.clocks.server()).total_seconds() + self.rng.choice((-0.02, 0.0, 0.005, 0.05, 1.0))

        def write() -> None:
            if self.active and not obj.gone:
                with self.world.acting("users"):
                    self.rng.choice((self.touch, self.beat, self.hold, self.set_ttl, self.remove_ttls))(obj)

        self.world.loop.call_later(max(0.0, wait), write)

    def _draw_ttl(self, obj: SimObject) -> tuple[str, Any]:
        name = self.rng.choice(("ttl", "ttl", "ttl", "ttl-succeeded", "ttl-failed", "expire-at"))
        now = self.world.clocks.server()
        text, ttl = draw_instant(self.rng, now) if name == "expire-at" else draw_duration(self.rng)
        obj.ttls[name] = ttl
        return name, text

    def _annotate(self, obj: SimObject, name: str, text: str | None) -> None:
        self._write(obj, {"metadata": {"annotations": {f"{ANNOTATION_DOMAIN}/{name}": text}}})

    def _write(self, obj: SimObject, change: Object, options: WriteOptions = _MAIN) -> None:
        self.world.patch(RESOURCES[obj.kind], obj.namespace, obj.name, change, options)

    def _write_status(self, obj: SimObject, change: Object) -> None:
        self._write(obj, {"status": change}, _STATUS)

    def _server_second(self) -> datetime:
        return self.world.clocks.server().replace(microsecond=0)

    def _note(self, what: str, obj: SimObject) -> None:
        due = self.world.history.due_at(obj)
        until = f" due in {due - self.world.clocks.server()}" if isinstance(due, datetime) else ""
        self.world.note("users", f"{what} {obj}{until}")
