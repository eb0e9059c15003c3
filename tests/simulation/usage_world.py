"""A world of Secrets and ConfigMaps: people refer to them at the worst instant, LISTs fail, and ticks are killed."""

import asyncio
import hashlib
import random
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

from shared.core.kinds.rule import KindRule
from shared.core.policy.policy import Policy
from shared.core.values.objects import ObjectRef, get_annotations, parse_instant
from shared.devserver.apiserver import Resource, Store, WriteOptions
from shared.devserver.apiserver.errors import StatusError
from shared.devserver.apiserver.resources import CONFIG_MAPS, CRON_JOBS, NAMESPACES, PODS, SECRETS
from shared.devserver.apiserver.writes import copied, merge_patch
from shared.errors import TtlError
from shared.evaluation.namespaces_and_owners import Namespaces
from shared.evaluation.usage_reader import UsageReader
from shared.usecases.usage.handler import UsageHandler
from shared.usecases.usage.tick import Usage
from tests.builders import NOW
from tests.fakes import FakePublisher, FakeTelemetry, ReadClock
from tests.references import shipped_carriers
from tests.simulation.checks import Violation
from tests.simulation.usage_archives import UsageSimArchive, archiving_policy
from tests.simulation.virtualloop import VirtualLoop
from tests.store_cluster import StoreCluster
from tests.usage import unused_policy

INTERVAL, TTL = timedelta(minutes=10), timedelta(hours=1)
TROUBLED, QUIET = 4 * 3600.0, 3 * 3600.0
LATENCY = 1.5
PODS_WINDOW = 7.0
"""The age of a LIST of Pods at a DELETE: its answer, `CONFIRMED_SECONDS_MAX`, and the way of the DELETE."""
PASS_WINDOW = 14.0
"""The age of the LIST of any other carrier."""
OPT_OUT_WINDOW = 7.0
"""As for an exempt namespace: the age of the cached Namespace, and the way of the DELETE."""
USED_AT_FIRST = 0.8
"""The share of the objects that are used from their creation on: what was never used is never deleted."""
CARRIERS = {"Pod": PODS, "CronJob": CRON_JOBS}
SPACES = ("ci", "web")
DISCOVERIES = 2
"""Documents that are read at the start of each pass."""
DOMAIN = "ttlafterfinished.dev"
_PERSON = WriteOptions(manager="kubectl")


@dataclass(frozen=True)
class UsageMutant:
    """A system with one mistake, and the checks that find it.

    Attributes:
        rules: The checks.
        patches: What is replaced: the object, the name of its attribute, and the new value.
        cluster: The connection of the process.
    """

    rules: frozenset[str] = frozenset()
    patches: tuple[tuple[Any, str, Any], ...] = ()
    cluster: "type[UsageSimCluster] | None" = None


class UsageSimCluster(StoreCluster):
    """The connection of the process: slow, and now and then refused."""

    def __init__(self, world: "UsageWorld") -> None:
        super().__init__(world.store, world.loop.time)
        self.world = world

    async def send(self, verb: str, kind: str, ref: ObjectRef, act: Callable[[], Any]) -> tuple[Any, datetime]:
        world = self.world
        if verb == "DISCOVER":
            world.before_discovery()
        is_slow = world.rng.random() < 0.5 and not world.calm
        await asyncio.sleep(world.rng.uniform(0.001, LATENCY if is_slow else 0.05))
        if verb == "LIST" and kind in world.refused:
            return StatusError(403, "Forbidden", f"{kind} is forbidden"), world.now()
        if verb != "DISCOVER" and world.happens(0.01):
            return StatusError(500, "InternalError", "an error of the simulation"), world.now()
        if verb == "DELETE":
            world.before_delete(ref)
        result = self.answer(act)
        if verb == "LIST" and not isinstance(result, StatusError):
            world.lists[kind].append((world.loop.time(), ref.namespace))
            if world.discoveries_of_tick() <= DISCOVERIES:
                world.first_lists[kind].append((world.loop.time(), ref.namespace))
        await asyncio.sleep(world.rng.uniform(0.001, 0.05))
        return result, world.now()

    def delete_object(self, rule: KindRule, ref: ObjectRef, options: Any) -> Any:
        live = copied(self.read_object(rule, ref))
        result = super().delete_object(rule, ref, options)
        self.world.check_deleted(live)
        return result


@dataclass
class Life:
    """A reference: from when until when it was there."""

    target: tuple[str, str, str]
    source: str
    born: float
    died: float = float("inf")

    def is_there(self, at: float) -> bool:
        return self.born <= at < self.died


@dataclass
class UsageWorld:
    """One seed."""

    seed: int
    mutant: UsageMutant = field(default_factory=UsageMutant)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"usage/{self.seed}")
        self.loop = VirtualLoop(self.seed)
        self.calm = self.seed % 3 == 0
        self.active = not self.calm
        self.store = Store(self.now, new_uid=lambda: f"{self.rng.getrandbits(64):016x}")
        self.trace: list[str] = []
        self.lists: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
        self.first_lists: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
        self.refused: set[str] = set()
        self.lives: dict[tuple[str, str, str], Life] = {}
        self.since: dict[str, tuple[float, str]] = {}
        self.held_late = self.deletions = self.raced = self.between = 0
        self.tick_started = 0.0
        self.windows: list[float] = []
        """Of each tick that deleted: the seconds from the start of the second pass to its last accepted DELETE."""
        self.ages_of_pods: list[float] = []
        """Of each DELETE: the age of the LIST of Pods when the API server accepts it."""
        self.discovered: list[float] = []
        self.archive = UsageSimArchive(self) if self.seed % 2 else None
        self._names = 0

    # Time and chance

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.loop.time())

    def happens(self, probability: float) -> bool:
        return self.rng.random() < probability and self.active

    def note(self, text: str) -> None:
        self.trace.append(f"{self.loop.time():9.2f} {text}")

    @property
    def trace_hash(self) -> str:
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    def run(self) -> "UsageWorld":
        with ExitStack() as stack:
            stack.callback(self.loop.close)
            for target, name, value in self.mutant.patches:
                stack.enter_context(patch.object(target, name, value))
            self.loop.run_until_complete(self._live())
        return self

    async def _live(self) -> None:
        for name in SPACES:
            annotations = {f"{DOMAIN}/unused": "true"}
            self.store.create(NAMESPACES, "", {"metadata": {"name": name, "annotations": annotations}})
        for _ in range(40):
            self.create_target()
        self.policy: Policy = archiving_policy() if self.archive else unused_policy(unused={"ttl": "1h"})
        people = asyncio.create_task(self._people())
        ticks = asyncio.create_task(self._ticks())
        await asyncio.sleep(TROUBLED)
        self.active = False
        self.refused.clear()
        people.cancel()
        await asyncio.sleep(QUIET)
        ticks.cancel()
        await asyncio.gather(people, ticks, return_exceptions=True)
        for task in (people, ticks):
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        self.check_left()

    # The process

    async def _ticks(self) -> None:
        while True:
            usage, self.tick_started = self._usage(), self.loop.time()
            try:
                limit = self.rng.uniform(0.1, 10) if self.happens(0.2) else 300
                async with asyncio.timeout(limit):
                    await usage.tick()
            except TimeoutError:
                self.note("the process is killed")
            except TtlError as error:
                self.note(f"tick failed: {error}")
            await asyncio.sleep(INTERVAL.total_seconds())

    def _usage(self) -> Usage:
        telemetry = FakeTelemetry(note=lambda by, text: self.note(f"{by}: {text}"), windows=self.windows)
        cluster = (self.mutant.cluster or UsageSimCluster)(self)
        namespaces, clock = Namespaces(cluster, telemetry), ReadClock(self.now)
        archive = self.archive.open(cluster, telemetry) if self.archive else None
        handler = UsageHandler(cluster, lambda: self.policy, namespaces, clock, telemetry, INTERVAL, archive=archive)
        return Usage(handler, UsageReader(cluster, shipped_carriers()), FakePublisher(), concurrency=4)

    # The people

    async def _people(self) -> None:
        ends, others = (self.unrefer,) * 4, (self.hold, self.touch, self.create_target, self.opt)
        acts = (self.refer, self.refer, *ends, *others)
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / 90))
            self.rng.choice(acts)()
            if self.happens(0.05):
                self.refused ^= {self.rng.choice(("Pod", "CronJob", "Job"))}
                self.note(f"refused: {sorted(self.refused)}")

    def targets(self) -> list[tuple[Resource, dict[str, Any]]]:
        found = [(one, obj) for one in (CONFIG_MAPS, SECRETS) for obj in self.store.table(one).objects.values()]
        return sorted(found, key=lambda one: (one[0].kind, one[1]["metadata"]["name"]))

    def create_target(self) -> None:
        self._names += 1
        resource, space = self.rng.choice((CONFIG_MAPS, SECRETS)), self.rng.choice(SPACES)
        obj = {"metadata": {"name": f"one{self._names:03}"}, "data": {"a": "b"}}
        made = self.store.create(resource, space, obj, _PERSON)
        self.since[made["metadata"]["uid"]] = self.loop.time(), "created"
        if self.rng.random() < USED_AT_FIRST:
            self.refer((resource.kind, space, made["metadata"]["name"]))

    def refer(self, target: tuple[str, str, str] | None = None) -> None:
        if target is None:
            if not (found := self.targets()):
                return
            resource, obj = self.rng.choice(found)
            target = resource.kind, obj["metadata"]["namespace"], obj["metadata"]["name"]
        kind, space, name = target
        self._names += 1
        source = self.rng.choice(tuple(CARRIERS))
        ref = {"secretRef" if kind == "Secret" else "configMapRef": {"name": name}}
        pod = {"containers": [{"name": "main", "image": "none", "envFrom": [ref]}]}
        spec = pod if source == "Pod" else {"jobTemplate": {"spec": {"template": {"spec": pod}}}}
        user = f"user-{self._names:03}"
        self.store.create(CARRIERS[source], space, {"metadata": {"name": user}, "spec": spec}, _PERSON)
        self.lives[source, space, user] = Life(target, source, self.loop.time())
        self.note(f"{source} {space}/{user} refers to {kind} {name}")

    def unrefer(self) -> None:
        alive = sorted(key for key, life in self.lives.items() if life.died == float("inf"))
        if alive:
            source, space, user = key = self.rng.choice(alive)
            self.store.delete(CARRIERS[source], space, user)
            self.lives[key].died = self.loop.time()
            self.note(f"{source} {space}/{user} is gone")

    def change(self, resource: Resource, obj: dict[str, Any], annotations: dict[str, Any], why: str) -> None:
        metadata = obj["metadata"]
        change = merge_patch({"metadata": {"annotations": annotations}})
        self.store.patch(resource, metadata.get("namespace", ""), metadata["name"], change, _PERSON)
        self.since[metadata["uid"]] = self.loop.time(), why
        self.note(f"{why}: {metadata['name']}")

    def hold(self) -> None:
        if found := self.targets():
            resource, obj = self.rng.choice(found)
            value = None if "hold" in get_annotations(obj) else "a person keeps it"
            self.change(resource, obj, {f"{DOMAIN}/hold": value}, "hold" if value else "unhold")

    def touch(self) -> None:
        if found := self.targets():
            resource, obj = self.rng.choice(found)
            self.change(resource, obj, {"touched": str(self.loop.time())}, "touched")

    def opt(self) -> None:
        space = self.store.get(NAMESPACES, "", self.rng.choice(SPACES))
        value = "false" if get_annotations(space).get("unused") == "true" else "true"
        if value == "true" or self.rng.random() < 0.2:
            self.change(NAMESPACES, space, {f"{DOMAIN}/unused": value}, f"unused: {value}")

    def discoveries_of_tick(self) -> int:
        return sum(at >= self.tick_started for at in self.discovered[-2 * DISCOVERIES - 1 :])

    def before_discovery(self) -> None:
        """The second pass of a tick begins: now and then a due object is used since the first one."""
        is_second = self.discoveries_of_tick() == DISCOVERIES
        self.discovered.append(self.loop.time())
        if is_second and self.rng.random() < 0.2:
            due = [
                (one.kind, obj["metadata"]) for one, obj in self.targets() if "deleted-after" in get_annotations(obj)
            ]
            if due:
                kind, metadata = self.rng.choice(due)
                self.between += 1
                self.refer((kind, metadata["namespace"], metadata["name"]))

    def before_delete(self, ref: ObjectRef) -> None:
        """The worst instant: the DELETE is on its way, and its object is used, held or touched."""
        choice = self.rng.random()
        if choice < 0.1:
            self.raced += 1
            self.refer((ref.kind, ref.namespace, ref.name))
        elif choice < 0.2:
            resource = SECRETS if ref.kind == "Secret" else CONFIG_MAPS
            if (obj := self.store.table(resource).objects.get((ref.namespace, ref.name))) is not None:
                self.held_late += 1
                self.change(resource, obj, {f"{DOMAIN}/hold": "at the last instant"}, "hold")

    # The checks

    def fail(self, rule: str, text: str) -> None:
        self.note(f"VIOLATION {rule}: {text}")
        raise Violation(rule, text)

    def check_deleted(self, live: dict[str, Any]) -> None:
        """Check an object at the instant of its DELETE."""
        self.deletions += 1
        metadata, at = live["metadata"], self.loop.time()
        name, space = metadata["name"], metadata["namespace"]
        self.note(f"deleted {live['kind']} {space}/{name}")
        notes = get_annotations(live)
        if "hold" in notes:
            self.fail("held", name)
        if self._opted_out(space):
            opted_at, _ = self.since[self.store.get(NAMESPACES, "", space)["metadata"]["uid"]]
            if at - opted_at > OPT_OUT_WINDOW:
                self.fail("opted-out", f"{name}: {at - opted_at:.1f} s before")
        self._check_times(name, notes)
        pods_listed = [when for when, where in self.lists["Pod"] if where in ("", space)]
        self.ages_of_pods += [at - when for when in pods_listed[-1:]]
        lives = [one for one in self.lives.values() if one.target == (live["kind"], space, name)]
        self._check_passes(name, space, lives)
        if self.archive and live["kind"] == "ConfigMap" and (problem := self.archive.find_problem(live)):
            self.fail("archived", f"{name}: {problem}")
        if not any(self._was_seen(one) for one in lives):
            self.fail("never-used", f"{name} was deleted, and no pass has ever seen it used")
        changed, why = self.since[metadata["uid"]]
        if at - changed < TTL.total_seconds():
            self.fail("ttl", f"{name} was {why} {at - changed:.0f} s before")

    def _was_seen(self, one: Life) -> bool:
        """Return whether a first pass listed the object that refers while it was there."""
        space = one.target[1]
        return any(one.is_there(when) for when, where in self.first_lists[one.source] if where in ("", space))

    def _opted_out(self, space: str) -> bool:
        return get_annotations(self.store.get(NAMESPACES, "", space)).get("unused") == "false"

    def _check_times(self, name: str, notes: dict[str, Any]) -> None:
        if "unused-since" not in notes or self.now() < parse_instant(notes["unused-since"]) + TTL:
            self.fail("ttl", f"{name}: {notes}")
        if "deleted-after" not in notes or self.now() < parse_instant(notes["deleted-after"]):
            self.fail("announced", f"{name}: {notes}")

    def _check_passes(self, name: str, space: str, lives: list[Life]) -> None:
        at = self.loop.time()
        started = self.discovered[-DISCOVERIES]
        for source, window in (("Pod", PODS_WINDOW), ("CronJob", PASS_WINDOW)):
            listed = [when for when, where in self.lists[source] if where in ("", space)][-2:]
            if len(listed) < 2 or at - listed[-1] > window:
                self.fail("window", f"{name}: {source}s were listed at {listed}")
            if sum(when >= self.tick_started for when in listed) < 2:
                self.fail("window", f"{name}: only one pass of the tick listed {source}s, at {listed}")
            mine = [one for one in lives if one.source == source]
            if any(one.is_there(at) and one.born < started for one in mine):
                self.fail("used", f"{name}: a {source} referred to it when the last pass started")
            if any(one.is_there(when) for one in mine for when in listed):
                self.fail("used", f"{name}: a {source} referred to it in one of the last two passes")
            # A pass that confirms deletions is only about the objects that are deleted then.
            passes = [when for when, where in self.first_lists[source] if where in ("", space)]
            recent = [when for when in passes if at - when < TTL.total_seconds()]
            if self.calm and any(one.is_there(when) for one in mine for when in recent):
                self.fail("reset", f"{name}: a {source} referred to it within the TTL")
            if any(one.is_there(at) and at - one.born > window for one in mine):
                self.fail("window", f"{name}: a {source} has referred to it for longer than the window")

    def check_left(self) -> None:
        """After hours without trouble, the use of what is used is recorded, and what was used before is gone."""
        used = {one.target for one in self.lives.values() if one.died == float("inf")}
        for resource, obj in self.targets():
            metadata, notes = obj["metadata"], get_annotations(obj)
            if "hold" in notes or self._opted_out(metadata["namespace"]):
                continue
            is_used = (resource.kind, metadata["namespace"], metadata["name"]) in used
            if is_used and "used-at" not in notes:
                self.fail("unrecorded", f"{resource.kind} {metadata['name']} is used, and that is not recorded")
            if not is_used and "used-at" in notes:
                self.fail("left", f"{resource.kind} {metadata['name']} is unused and still there")
