"""A simulated world of running Jobs with deadlines: a seed decides everything that happens in it."""

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from shared.core.deadlines.deadline import STOPS_MAX
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.values.objects import ObjectRef
from shared.core.values.timing import horizon
from shared.devserver.apiserver.deletion import DeleteOptions
from shared.devserver.apiserver.store import Store
from shared.devserver.apiserver.writes import WriteOptions, copied, merge_patch
from shared.errors import ConflictError, PermanentError, TryLaterError
from shared.evaluation.evaluator import Evaluator
from shared.messages import Message, Purpose, SweepStep, Timer, TimersSet
from shared.ports import Snapshot
from shared.usecases.enforce import ENFORCEMENT
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from shared.usecases.sweep import Sweep
from shared.usecases.timers import schedule
from tests.builders import JOB
from tests.fakes import FakeTelemetry, ReadClock
from tests.simulation.checks import Violation
from tests.simulation.clocks import Clocks
from tests.simulation.deadline_people import People, Run, Settings
from tests.simulation.faults import Faults
from tests.simulation.memory_timers import TimerStore
from tests.simulation.process import pace_of
from tests.simulation.simcluster import Server, SimCluster
from tests.simulation.simtimers import ForgetfulTimers, TimerTarget
from tests.simulation.virtualloop import VirtualLoop
from tests.sweeps import sweep_with

KINDS = Catalogue((JOB,))
SLACK = timedelta(seconds=30)
"""What a sweep, its timers and the controllers may take beyond its interval."""

PROMPT_SECONDS = 10.0
"""Lateness in peace of an object whose events were not lost: seconds of clocks, reads and controllers."""

CLOCKS_APART = timedelta(seconds=15)
"""If the clock of `schedule` is further off, it cannot know which objects are new: the sweep finds them."""

FACTS_SECONDS = 60.0
"""How old the settings of a namespace may be when a stop arrives: a read, a slow request, and its cache."""

READS_MAX = 60
"""Reads of one Job in peace: its timer, its events, and each sweep."""

_WRITE = WriteOptions(manager="ttl-after-finished")


class DeadlineCluster(SimCluster):
    """One process's connection; the checks see each stop and each DELETE when it arrives."""

    async def patch(self, rule: KindRule, ref: ObjectRef, patch: dict[str, Any], *, manager: str = "") -> Snapshot:
        def act(one: KindRule) -> Any:
            live = copied(self.read_object(one, ref))
            change = merge_patch(self.sent(patch))
            stored = self.store.patch(self.resource(one), ref.namespace, ref.name, change, _WRITE)
            self.world.checks.stopped(live, stored, ref)
            return stored

        (obj, read_at), _ = await self.request_of("PATCH", rule, ref, act)
        if obj is None:
            raise ConflictError(f"{ref} no longer exists")
        return Snapshot(obj, read_at)

    def sent(self, patch: dict[str, Any]) -> dict[str, Any]:
        """What a mutant gets wrong."""
        return patch


@dataclass(frozen=True)
class DeadlineMutant:
    """What a process is built of; `rules` are the checks that have to catch it."""

    cluster: Any = DeadlineCluster
    enforcement: Any = Handler
    sweep: Any = Sweep
    rules: frozenset[str] = frozenset()


class DeadlineChecks:
    """What must always hold. S1 never early, S2 never another, S3 never unasked, L1 always in the end."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.violation: Violation | None = None
        self.refused: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()
        self.stops = 0
        self.resumed_stops = 0
        self.deletions = 0

    def stopped(self, live: dict[str, Any], stored: dict[str, Any], ref: ObjectRef) -> None:
        """A stop of the system was stored; `live` is what the API server had just before."""
        world, run = self.world, self.world.people.runs[live["metadata"]["uid"]]
        if ref.uid != run.uid:
            self.violate("S2", f"stopped {run.uid} instead of {ref.uid}")
        now = world.clocks.server()
        for rule, problem in self._problems(run, now):
            self.violate(rule, f"{run.uid} was stopped although {problem}")
        wanted = {"suspend": True} if run.suspends else {"activeDeadlineSeconds": 1}
        if stored["spec"] != live.get("spec", {}) | wanted:
            self.violate("action", f"{run.uid} was stopped by {stored['spec']}, expected {wanted}")
        self.stops += 1
        self.resumed_stops += bool(run.stops)
        run.stops += 1
        if run.stops > STOPS_MAX:
            self.violate("loop", f"{run.uid} was stopped {run.stops} times")
        run.is_stopped, run.stopped_at = True, now
        world.note("stop", f"{run.namespace}/{run.name} {run.uid} the {run.stops}. time")
        world.people.stopped(run)

    def _problems(self, run: Run, now: Any) -> Iterator[tuple[str, str]]:
        if run.is_held:
            yield "S3", "it is held"
        if run.is_native:
            yield "S3", "its controller enforces its deadline"
        if run.is_suspended or not run.works:
            yield "S3", "it is suspended"
        if run.finished_at is not None:
            yield "S3", "it has finished"
        found = list(self._settings(run))
        if all(settings.is_exempt for settings in found):
            yield "S3", "its namespace is exempt"
        deadlines = [after for settings in found if (after := settings.deadline_of(run.deadline)) is not None]
        if not deadlines:
            yield "S3", "it has no deadline"
        elif run.started_at is None or run.started_at + min(deadlines) > now:
            yield "S1", f"it started at {run.started_at}, {min(deadlines)} are not over at {now}"

    def _settings(self, run: Run) -> Iterator[Settings]:
        for at, settings in reversed(self.world.people.settings[run.namespace]):
            yield settings
            if at < self.world.loop.time() - FACTS_SECONDS:
                return

    def deleting(self, live: dict[str, Any], uid: str, options: DeleteOptions) -> None:
        run = self.world.people.runs[live["metadata"]["uid"]]
        if uid != run.uid or not options.resource_version:
            self.violate("S2", f"deleted {run.uid} instead of {uid}")
        if run.is_held or run.ttl is None or run.ended_at is None:
            self.violate("S3", f"{run.uid} was deleted: held {run.is_held}, ended {run.ended_at}")
        elif run.ended_at + run.ttl > self.world.clocks.server():
            self.violate("S1", f"{run.uid} was deleted before {run.ended_at + run.ttl}")
        run.is_gone = True
        self.deletions += 1

    def at_the_end(self, peace_at: datetime) -> None:
        """L1: within one sweep interval after the faults; at once for what started since, if the clocks agree."""
        world, now = self.world, self.world.clocks.server()
        lag = timedelta(seconds=world.clocks.timers_lag_max)
        by_sweep, by_event = lag + world.interval + SLACK, lag + timedelta(seconds=PROMPT_SECONDS)
        do_agree = abs(world.clocks.local() - now) < CLOCKS_APART
        for run in world.people.alive():
            if run.is_stopped and not run.suspends and run.finished_at is None and run.stopped_at <= now - SLACK:
                self.violate("L1", f"{run.uid} was stopped at {run.stopped_at}, and has not finished")
            settings = world.people.settings[run.namespace][-1][1]
            after = settings.deadline_of(run.deadline)
            is_left = run.is_held or run.is_native or settings.is_exempt or run.finished_at is not None
            is_running = run.works and not run.is_suspended and not run.is_stopped and run.started_at is not None
            is_given_up = run.stops >= STOPS_MAX or (run.stopped_at is not None and run.started_at <= run.stopped_at)
            if is_left or not is_running or is_given_up or after is None:
                continue
            is_prompt = do_agree and run.started_at > peace_at + SLACK
            if run.started_at + after <= now - (by_event if is_prompt else by_sweep):
                self.violate("L1", f"{run.uid} started at {run.started_at} and runs for longer than {after}")

    def violate(self, rule: str, problem: str) -> None:
        self.violation = self.violation or Violation(rule, problem)
        self.world.note("VIOLATION", f"{rule}: {problem}")
        self.world.over.set()

    # What SimCluster and its Server report

    def sent(self, verb: str, kind: str, ref: ObjectRef) -> None:
        if verb == "GET" and kind == "Job" and not self.world.faults.active:
            self.reads[ref.uid] += 1
            if self.reads[ref.uid] > READS_MAX:
                self.violate("storm", f"{ref.uid} was read {self.reads[ref.uid]} times in peace")

    def answered(self, *_: Any) -> None: ...
    def met_absent_path(self) -> None: ...
    def message(self, _uid: str) -> None: ...


class DeadlineProcess:
    """One life of the functions: everything that a kill -9 takes."""

    def __init__(self, world: Any) -> None:
        self.world, self._tasks = world, set[asyncio.Task[Any]]()
        mutant, self.clock = world.mutant, ReadClock(world.clocks.local)
        cluster = mutant.cluster(world, None)
        parts: dict[str, Any] = {"cluster": cluster, "catalogue": KINDS, "clock": self.clock, "dry_run": False}
        telemetry = FakeTelemetry(note=world.note)
        parts |= {"telemetry": telemetry, "pace": pace_of(world.seed, telemetry)}
        parts["evaluator"] = Evaluator(cluster, KINDS)
        self.enforcement, self.expiry = (
            mutant.enforcement(ENFORCEMENT, **parts, by="enforce"),
            Handler(DELETION, **parts),
        )
        self._sweep = sweep_with(
            Handler(DELETION, **parts, by="sweep"), self, world.interval, concurrency=3, make=mutant.sweep
        )
        self.timers = ForgetfulTimers(world, TimerTarget(self._fire), self.start)

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = self.world.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def kill(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.world.checks.violate("bug", repr(error))

    async def _fire(self, timer: Timer) -> None:
        handle = self.enforcement.handle if timer.purpose is Purpose.ENFORCE else self.expiry.handle
        with suppress(PermanentError):
            await self.publish(await handle(timer))

    async def publish(self, message: Message | None) -> None:
        """A Broker that may lose timers."""
        faults = self.world.faults
        if isinstance(message, TimersSet) and not faults.happens(faults.drop):
            await asyncio.sleep(faults.latency())
            await self.timers.set(message.timers)

    async def schedule(self, obj: dict[str, Any]) -> None:
        telemetry = FakeTelemetry(note=self.world.note)
        ahead = horizon(self.world.interval)
        await self.publish(await schedule(obj, catalogue=KINDS, clock=self.clock, telemetry=telemetry, horizon=ahead))

    async def sweep(self) -> None:
        step: SweepStep | None = SweepStep()
        with suppress(TryLaterError, PermanentError):
            while step is not None:
                step = await self._sweep.sweep(step)


class DeadlineWorld:
    """Everything there is."""

    def __init__(self, seed: int, mutant: DeadlineMutant | None = None) -> None:
        self.seed, self.mutant = seed, mutant or DeadlineMutant()
        self.rng = random.Random(f"deadlines/{seed}")
        self.trace: list[str] = []
        self.loop = VirtualLoop(seed)
        self.clocks, self.faults = Clocks(self.loop, self.rng), Faults(self.rng)
        self.faults.forbidden_for_good = frozenset()
        self.interval = timedelta(seconds=self.rng.choice((60, 120)))
        self.page_limit = self.rng.choice((3, 10))
        uids = (f"uid-{number}" for number in range(1_000_000))
        self.store = Store(self.clocks.server, new_uid=lambda: next(uids))
        self.checks, self.people = DeadlineChecks(self), People(self)
        self.users = self.people
        self.server, self.timer_store = Server(self), TimerStore()
        self.over = asyncio.Event()
        self.process = DeadlineProcess(self)
        self.store.listeners += [self.people.changed, self._changed]

    def run(self) -> "DeadlineWorld":
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

    async def _live(self) -> None:
        rng = self.rng
        self.people.begin()
        self.process.start(self.process.timers.run())
        troubles = [
            self.loop.create_task(self._repeat(lambda: rng.expovariate(1 / 2.0), self.people.act)),
            self.loop.create_task(self._repeat(lambda: rng.uniform(10, 90), self._trouble)),
        ]
        sweeps = self.loop.create_task(self._repeat(self.interval.total_seconds, self._sweep))
        await self._wait(rng.uniform(200, 600))
        for task in troubles:
            task.cancel()
        self.people.calm()
        self.faults.stop()
        self.note("director", "peace")
        peace_at = self.clocks.server()
        least = 2 * SLACK + self.interval + timedelta(seconds=self.clocks.timers_lag_max)
        await self._wait(least.total_seconds() + rng.choice((60.0, 200.0)))
        sweeps.cancel()
        if not self.over.is_set():
            self.checks.at_the_end(peace_at)

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.over.wait()

    async def _repeat(self, pause: Any, act: Any) -> None:
        while True:
            await asyncio.sleep(pause())
            act()

    def _sweep(self) -> None:
        self.process.start(self.process.sweep())

    def _trouble(self) -> None:
        trouble = self.rng.choice((self._crash, self._away, self._step))
        trouble()

    def _crash(self) -> None:
        self.note("director", "kills the process")
        self.process.kill()
        self.process = DeadlineProcess(self)
        self.process.start(self.process.timers.run())

    def _away(self) -> None:
        self.note("director", "the API server goes")
        self.faults.away = True
        self.loop.call_later(self.rng.choice((1.0, 10.0, 60.0)), self._back)

    def _back(self) -> None:
        self.faults.away = False

    def _step(self) -> None:
        self.note("director", "steps the local clock")
        self.clocks.step(self.rng.uniform(-20, 20))

    def _changed(self, resource: Any, change: Any) -> None:
        """A watch that loses, repeats and delays events."""
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
