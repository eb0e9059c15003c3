"""A simulated world of finished Jobs that are archived before they are deleted: a seed decides all that happens."""

import asyncio
import hashlib
import random
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from shared.core.archive.identity import Marker
from shared.core.archive.layout import parse_key
from shared.core.kinds.rule import KindRule
from shared.core.policy.limits import Limits
from shared.core.values.timing import horizon
from shared.devserver.apiserver.resources import JOBS, PODS
from shared.devserver.apiserver.store import Store
from shared.devserver.apiserver.writes import copied
from shared.errors import PermanentError, TryLaterError
from shared.evaluation.archive_check import ArchiveCheck
from shared.evaluation.archive_identity import IdentifiedArchives
from shared.evaluation.children import Children
from shared.evaluation.evaluator import Evaluator
from shared.evaluation.pod_logs import PodLogs
from shared.messages import Message, ObjectArchived, Purpose, SweepStep, Timer, TimersSet
from shared.ports import EventLevel, Propagation
from shared.safeguards.archive_ids import SharedArchiveIds
from shared.safeguards.safeguards import Safeguards
from shared.safeguards.shared_state import Runtime, SharedState
from shared.usecases.archive import archival
from shared.usecases.archives.writer import ArchiveWriter
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from shared.usecases.sweep import Sweep
from shared.usecases.timers import schedule, set_timers
from tests.builders import shipped_kinds
from tests.fakes import FakeState, FakeTelemetry, ReadClock
from tests.simulation.archive_checks import SLACK, ArchiveChecks, Sent, make_ref, sent
from tests.simulation.archive_people import KINDS, People, Spec, Wish, draw_spec
from tests.simulation.archive_store import STORES, SimArchive, SimArchives, SimStore
from tests.simulation.clocks import Clocks
from tests.simulation.faults import Faults
from tests.simulation.memory_timers import TimerStore
from tests.simulation.simcluster import Server, SimCluster
from tests.simulation.simtimers import ForgetfulTimers, TimerTarget
from tests.simulation.virtualloop import VirtualLoop
from tests.sweeps import sweep_with

ARCHIVERS = 2


class PolicyFile:
    """The policy of one function: a new one arrives at a time of its own."""

    def __init__(self, spec: Spec) -> None:
        self.put(spec)

    def put(self, spec: Spec) -> None:
        self.spec, self.policy = spec, spec.read()


class ArchiveCluster(SimCluster):
    """The connection of one function; the checks see each DELETE when it arrives."""

    def __init__(self, world: Any, file: PolicyFile) -> None:
        super().__init__(world, None)
        self.file = file

    async def delete(self, rule: KindRule, obj: dict[str, Any], *, propagation: Propagation | None = None) -> bool:
        sent.set(Sent(self.world.loop.time(), self.file.spec))
        return await super().delete(rule, obj, propagation=propagation)


@dataclass(frozen=True)
class ArchiveMutant:
    """What a process is built of.

    Attributes:
        identified: Checks the identity of the archives.
        needs_rot: Whether it shows only where documents are lost and damaged.
        needs_swaps: Whether it shows only where other volumes are mounted often, and little else goes wrong.
        rules: The checks that have to catch it.
    """

    cluster: Any = ArchiveCluster
    archive: Any = SimArchive
    evaluator: Any = Evaluator
    check: Any = ArchiveCheck
    writer: Any = ArchiveWriter
    archival: Any = Handler
    expiry: Any = Handler
    sweep: Any = Sweep
    sweep_check: Any = None
    identified: Any = IdentifiedArchives
    needs_rot: bool = False
    needs_swaps: bool = False
    rules: frozenset[str] = frozenset()


class SharedConfigMap(FakeState):
    """The shared state, which the API server has."""

    def __init__(self, world: Any) -> None:
        super().__init__()
        self.world = world

    async def read(self) -> Mapping[str, str]:
        self.failure = TryLaterError("connection refused") if self.world.faults.away else None
        return await super().read()

    async def write(self, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Mapping[str, str]:
        self.failure = TryLaterError("connection refused") if self.world.faults.away else None
        return await super().write(change)


async def _no_event(_reason: str, _message: str, _level: EventLevel) -> None: ...


async def _no_count(_rule: KindRule) -> int:
    return 0


class ArchiveProcess:
    """One life of the functions: everything that a kill -9 takes.

    Attributes:
        hearsay: What events said of archives; only mutants look at it.
    """

    def __init__(self, world: Any) -> None:
        self.world, self._tasks = world, dict[asyncio.Task[Any], None]()
        self.clock, self.telemetry = ReadClock(world.clocks.local), FakeTelemetry(note=world.note)
        self.hearsay: dict[tuple[str, str], Any] = {}
        mutant = world.mutant
        self.expiry = mutant.expiry(procedure=DELETION, **self._parts("expire", mutant.check))
        self.archivals = [self._archival(f"archive-{number}") for number in range(ARCHIVERS)]
        swept = mutant.expiry(procedure=DELETION, **self._parts("sweep", mutant.sweep_check or mutant.check))
        self._sweep = sweep_with(swept, self, world.interval, concurrency=3, make=mutant.sweep)
        self.timers = ForgetfulTimers(world, TimerTarget(self._fire), self.start)

    def _parts(self, by: str, check: Any) -> dict[str, Any]:
        """What the handler of one function is built of, but for its procedure."""
        world, file = self.world, self.world.policy_files[by]
        archives = self._archives(by)
        cluster = world.mutant.cluster(world, file)
        evaluator = world.mutant.evaluator(cluster, KINDS, lambda: file.policy, archives=archives)
        evaluator.archive_check = check(archives)
        parts = {"clock": self.clock, "telemetry": self.telemetry, "dry_run": False, "by": by}
        return {"cluster": cluster, "catalogue": KINDS, "evaluator": evaluator, **parts}

    def _archives(self, by: str) -> Any:
        """The archives of one function, with its own connection to the shared state."""
        world = self.world
        runtime = Runtime(self.clock, world.loop.time, self.telemetry)
        shared_state = SharedState(world.state, runtime, write_event=_no_event)
        safeguards = Safeguards(Limits, shared_state, runtime, count_objects=_no_count, horizon=world.interval)

        async def made() -> Safeguards:
            return safeguards

        ids = SharedArchiveIds(made, self.telemetry)
        archives = SimArchives(world, by, world.mutant.archive)
        if not world.has_volumes:
            return archives
        return world.mutant.identified(archives, ids, self.clock.now, world.new_archive_id)

    def _archival(self, by: str) -> Handler:
        parts = self._parts(by, self.world.mutant.check)
        cluster = parts["cluster"]
        children = Children(cluster, shipped_kinds())
        writer = self.world.mutant.writer(parts["evaluator"].archives, children, PodLogs(cluster))
        made: Handler = self.world.mutant.archival(procedure=archival(writer), **parts)
        return made

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = self.world.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def kill(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.world.checks.violate("bug", repr(error))

    async def _fire(self, timer: Timer) -> None:
        is_doubled = self.world.faults.happens(self.world.faults.duplicate)
        self.world.checks.fired(timer)
        if is_doubled:
            self.start(self._deliver(timer))
        await self._deliver(timer)

    async def _deliver(self, timer: Timer) -> None:
        self.world.note("timers", f"fires {timer.purpose} {timer.ref.name} {timer.ref.uid} {timer.attempts}")
        archival = self.world.rng.choice(self.archivals)
        handle = archival.handle if timer.purpose is Purpose.ARCHIVE else self.expiry.handle
        try:
            await self.publish(await handle(timer))
        except PermanentError as error:
            self.world.note(timer.purpose, f"dead letter {timer.ref.uid}: {error}")

    async def publish(self, message: Message | None) -> None:
        """A Broker that loses, repeats, delays and reorders messages."""
        faults = self.world.faults
        if message is None:
            return
        await asyncio.sleep(faults.latency())
        if faults.happens(faults.drop):
            self.world.note("broker", f"drops {type(message).__name__}")
            return
        for _ in range(2 if faults.happens(faults.duplicate) else 1):
            self.world.send(message, faults.rng.uniform(0, 60) if faults.happens(faults.delay) else faults.latency())

    async def receive(self, message: Message) -> None:
        """The function `timers`."""
        if isinstance(message, ObjectArchived):
            self.hearsay[message.ref.uid, message.resource_version] = message
            if message.timer is None:
                return
            message = TimersSet(timers=(message.timer,))
        if isinstance(message, TimersSet):
            clock = ReadClock(self.world.clocks.timers)
            ahead = horizon(self.world.interval)
            await set_timers(message, timers=self.timers, clock=clock, horizon=ahead, telemetry=self.telemetry)

    async def schedule(self, obj: dict[str, Any]) -> None:
        file, evaluator = self.world.policy_files["expire"], self.expiry.evaluator
        parts: dict[str, Any] = {"catalogue": KINDS, "clock": self.clock, "telemetry": self.telemetry}
        parts |= {"policy": file.policy, "get_cached": evaluator.namespaces.get_cached}
        await self.publish(await schedule(obj, **parts, horizon=horizon(self.world.interval)))

    async def sweep(self) -> None:
        step: SweepStep | None = SweepStep()
        with suppress(TryLaterError, PermanentError):
            while step is not None:
                step = await self._sweep.sweep(step)


class ArchiveWorld:
    """Everything there is.

    Attributes:
        policy_files: By function.
        foreign: The archive behind a webhook; empty if there is none.
        specs: The policies that the operators wrote, and when; the newest may not have arrived everywhere.
        state: The shared state.
        has_volumes: Whether archives have markers, and other volumes are mounted in their place; not beside a mutant
            that shows without them.
        others: What may be mounted in place of an archive: an empty folder, and another archive.
    """

    def __init__(self, seed: int, mutant: ArchiveMutant | None = None) -> None:
        self.seed, self.mutant = seed, mutant or ArchiveMutant()
        self.has_volumes = mutant is None or mutant.needs_swaps
        self.rng = random.Random(f"archives/{seed}")
        self.trace: list[str] = []
        self.loop = VirtualLoop(seed)
        self.clocks, self.faults = Clocks(self.loop, self.rng), Faults(self.rng)
        self.faults.forbidden_for_good = frozenset()
        self.interval = timedelta(seconds=self.rng.choice((60, 120)))
        self.page_limit = self.rng.choice((3, 10))
        uids = (f"uid-{number}" for number in range(1_000_000))
        self.store = Store(self.clocks.server, new_uid=lambda: next(uids))
        is_foreign = mutant is None and random.Random(f"foreign/{seed}").random() < 0.4
        self.foreign = STORES[-1] if is_foreign else ""
        self.stores = {name: SimStore(self, name, is_foreign=name == self.foreign) for name in STORES}
        for one in self.stores.values() if self.mutant.needs_rot else ():
            one.faults.rot, one.skew = 0.4, abs(one.skew)
        ids = (f"archive-{number}" for number in range(1_000_000))
        self.new_archive_id = lambda: next(ids)
        self.state = SharedConfigMap(self)
        self.others = {name: [self._other(name, number) for number in range(2)] for name in STORES}
        self.checks, self.people = ArchiveChecks(self), People(self)
        self.users = self.people
        self.server, self.timer_store = Server(self), TimerStore()
        first = draw_spec(self.rng, self.foreign)
        if self.mutant.needs_swaps:
            first = Spec(STORES[:1], {None: Wish(STORES[0])}, timedelta(seconds=5))
            self.faults.stop()
            for one in self.stores.values():
                one.faults.stop()
        self.specs = [(0.0, first)]
        functions = ("expire", "sweep", *(f"archive-{number}" for number in range(ARCHIVERS)))
        self.policy_files = {function: PolicyFile(first) for function in functions}
        self.over = asyncio.Event()
        self.sent_messages: list[Message] = []
        self.process = ArchiveProcess(self)
        self.store.listeners += [self._changed]
        self._is_peace = False

    def _other(self, name: str, number: int) -> SimStore:
        other = SimStore(self, f"other-{name}", rng=random.Random(f"other/{self.seed}/{name}/{number}"))
        if number:
            other.mark(Marker(f"other-{name}", self.clocks.server(), "dev"))
        return other

    def run(self) -> "ArchiveWorld":
        """Live through it; raises the first Violation."""
        try:
            self.loop.run_until_complete(self._live())
        finally:
            self.loop.run_until_complete(_cancel_all())
            self.loop.close()
        if self.checks.violation:
            raise self.checks.violation
        return self

    @property
    def trace_hash(self) -> str:
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    def note(self, who: str, what: str) -> None:
        self.trace.append(f"{self.loop.time():10.3f} {who:>9} {what}")

    @contextmanager
    def acting(self, _who: str) -> Iterator[None]:
        yield

    def live_pods(self) -> list[dict[str, Any]]:
        pods = self.store.table(PODS).objects.values()
        return [pod for pod in pods if pod["metadata"]["uid"] in self.people.pods]

    def send(self, message: Message, seconds: float) -> None:
        """Deliver a message some time later."""
        self.sent_messages.append(message)
        self.loop.call_later(seconds, lambda: self.process.start(self.process.receive(message)))

    async def _live(self) -> None:
        rng = self.rng
        self.process.start(self.process.timers.run())
        people_pause = rng.choice((0.5, 1.5))
        troubles = [
            self.loop.create_task(self._repeat(lambda: rng.expovariate(1 / people_pause), self.people.act)),
            self.loop.create_task(self._repeat(lambda: rng.uniform(5, 60), self._trouble)),
            self.loop.create_task(self._repeat(lambda: rng.uniform(10, 120), self._write_policy)),
            self.loop.create_task(self._repeat(lambda: rng.uniform(1, 30), self._forge)),
        ]
        self.loop.create_task(self._repeat(self.interval.total_seconds, self._sweep))
        await self._wait(rng.uniform(200, 600))
        for task in troubles:
            task.cancel()
        self._make_peace()
        least = 2 * SLACK + 2 * self.interval + timedelta(seconds=self.clocks.timers_lag_max + 120)
        await self._wait(least.total_seconds() + rng.choice((60.0, 200.0)))
        if not self.over.is_set():
            self.checks.at_the_end()

    def _make_peace(self) -> None:
        self.note("director", "peace")
        self._is_peace = True
        self.people.calm()
        self.faults.stop()
        for store in self.stores.values():
            store.faults.stop()
            store.mounted = store
        for file in self.policy_files.values():
            file.put(self.specs[-1][1])
        self.checks.begin_peace()

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.over.wait()

    async def _repeat(self, pause: Callable[[], float], act: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(pause())
            act()

    def _sweep(self) -> None:
        self.process.start(self.process.sweep())

    # Troubles

    def _trouble(self) -> None:
        troubles = [self._crash, self._away, self._step, *(self._store_trouble,) * 4]
        if self.has_volumes:
            troubles = [self._crash, *(self._swap,) * 4] if self.mutant.needs_swaps else [*troubles, self._swap]
        trouble = self.rng.choice(troubles)
        trouble()

    def _crash(self) -> None:
        self.note("director", "kills the process")
        self.process.kill()
        self.process = ArchiveProcess(self)
        self.process.start(self.process.timers.run())

    def _away(self) -> None:
        self.note("director", "the API server goes")
        self.faults.away = True
        self.loop.call_later(self.rng.choice((1.0, 10.0, 60.0)), lambda: setattr(self.faults, "away", False))

    def _step(self) -> None:
        self.note("director", "steps the local clock")
        self.clocks.step(self.rng.uniform(-20, 20))

    def _swap(self) -> None:
        """The volume of an archive is not mounted, or another one is; so is another bucket under its name."""
        store = self.stores[STORES[0] if self.mutant.needs_swaps else self.rng.choice(STORES)]
        other = self.rng.choice(self.others[store.name])
        if (store.marker is not None or store.files) and not store.is_foreign:
            self.note("director", f"archive {store.name}: {'another archive' if other.marker else 'no volume'} mounted")
            store.mounted = other
            self.loop.call_later(self.rng.choice((2.0, 20.0, 150.0)), lambda: setattr(store, "mounted", store))

    def _store_trouble(self) -> None:
        store = self.stores[self.rng.choice(STORES)]
        what = self.rng.choice(("away", "away", "forbidden", "loses", "spoils", "spoils"))
        if what in ("away", "forbidden"):
            self.note("director", f"archive {store.name}: {what}")
            setattr(store.faults, what, True)
            self.loop.call_later(self.rng.choice((2.0, 20.0, 150.0)), lambda: setattr(store.faults, what, False))
            return
        paths = sorted(store.files) if self.rng.random() < 0.3 else list(self._needed(store))
        for path in self.rng.sample(paths, min(len(paths), 6)):
            self.note("director", f"archive {store.name} {what} {path}")
            (store.lose if what == "loses" else store.spoil)(path)

    def _needed(self, store: SimStore) -> Iterator[str]:
        """The documents of the present versions of Jobs."""
        for item in self.people.alive():
            version = self.store.get(JOBS, item.namespace, item.name)["metadata"]["resourceVersion"]
            for path in store.documents(item.uid):
                if path in store.files and parse_key(path).resource_version == version:
                    yield path

    def _write_policy(self) -> None:
        spec = self.specs[0][1] if self.mutant.needs_swaps else draw_spec(self.rng, self.foreign)
        self.note("operators", f"write {spec}")
        self.specs.append((self.loop.time(), spec))
        for file in self.policy_files.values():
            self.loop.call_later(self.rng.uniform(0, self.rng.choice((0.0, 5.0, 40.0))), self._bring_policy, file, spec)

    def _bring_policy(self, file: PolicyFile, spec: Spec) -> None:
        if not self._is_peace:
            file.put(spec)

    def _forge(self) -> None:
        """What a stranger with access to the Broker could send: forged messages, and those of others again."""
        rng, items = self.rng, list(self.people.items.values())
        if self.sent_messages and rng.random() < 0.3:
            self.send(rng.choice(self.sent_messages), 0.0)
        if not items:
            return
        item = rng.choice(items)
        ref = make_ref(item)
        due_at = self.clocks.server() + timedelta(seconds=rng.choice((-1e5, -1, 0, 5, 60)))
        purpose = rng.choice((Purpose.EXPIRE, Purpose.ARCHIVE))
        timer = Timer(ref=ref, purpose=purpose, due_at=due_at, attempts=rng.choice((0, 0, 3)))
        if rng.random() < 0.5:
            self.send(TimersSet(timers=(timer,)), 0.0)
            return
        live = self.store.table(JOBS).objects.get((item.namespace, item.name))
        version = live["metadata"]["resourceVersion"] if live else "1"
        said = {"digest": "0" * 64, "location": "file:///nowhere", "archived_at": due_at}
        timer = timer.model_copy(update={"purpose": Purpose.EXPIRE})
        forged = ObjectArchived(ref=ref, archive="main", resource_version=version, timer=timer, **said)
        self.note("forger", f"says that {item.uid} {version} is archived")
        self.send(forged, 0.0)

    def _changed(self, resource: Any, change: Any) -> None:
        """A watch that loses, repeats and delays events."""
        if resource.kind == "Job" and change.type == "DELETED":
            self.people.items[change.obj["metadata"]["uid"]].is_gone = True
        if resource.kind != "Job" or change.type == "DELETED" or self.faults.happens(self.faults.drop):
            return
        for _ in range(2 if self.faults.happens(self.faults.duplicate) else 1):
            lag = self.rng.uniform(0.001, 20.0 if self.faults.happens(self.faults.delay) else 0.05)
            self.loop.call_later(lag, self._bring, copied(change.obj))

    def _bring(self, obj: dict[str, Any]) -> None:
        self.process.start(self.process.schedule(obj))


async def _cancel_all() -> None:
    while tasks := asyncio.all_tasks() - {asyncio.current_task()}:  # a task that ends may start another one
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
