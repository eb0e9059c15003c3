"""The plot: a time of troubles, then peace, and what must be true at the end of it."""

import asyncio
import random
from datetime import datetime, timedelta
from typing import Any

from shared.adapters.config.yaml_file import FileError
from tests.simulation.faults import TIMEOUT_SECONDS
from tests.simulation.process import NoProcess, Process
from tests.simulation.sim_object import SimObject

SWEEP_SECONDS = 30.0
"""What a sweep may take beyond its interval."""

PROMPT_SECONDS = 2.5
"""Lateness in peace: the API server's clock is read in whole seconds, and calls take their time."""

PEACE_SECONDS = 900.0


class Director:
    """Starts and ends the troubles."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.rng: random.Random = world.rng
        self.peace_at: datetime | None = None
        self.peaceful_calls: dict[tuple[str, str], int] = {}
        self._over = asyncio.Event()
        self._users_pause = self.rng.choice((1.0, 3.0, 8.0))
        self._forger_pause = self.rng.choice((4.0, 20.0, 1e9))

    def stop(self) -> None:
        self._over.set()

    async def direct(self) -> None:
        world = self.world
        if self.rng.random() < 0.8:
            world.serve_train_jobs(("v1alpha1",))
        for _ in range(self.rng.randrange(20)):
            world.users.create()  # before any process watches
        world.boot()
        self._repeat(self._pause_of_ticks, world.source.tick)
        troubles = [
            self._repeat(lambda: self.rng.expovariate(1 / self._users_pause), world.users.act),
            self._repeat(lambda: self.rng.expovariate(1 / self._forger_pause), world.forger.act),
            self._repeat(lambda: self.rng.uniform(5, 90), self._trouble),
            *([self._repeat(world.operators.pause, world.operators.act)] if world.operators.active else []),
        ]
        await self._wait(world.steps or self.rng.uniform(120, 900))
        for task in troubles:
            task.cancel()
        await self._change_minds_unseen()
        self._make_peace()
        await self._wait(PEACE_SECONDS)
        if not world.stopped:
            self._check_end()

    def _pause_of_ticks(self) -> float:
        return self.world.interval.total_seconds()

    def _repeat(self, pause: Any, act: Any) -> asyncio.Task[None]:
        async def forever() -> None:
            while not self.world.stopped:
                await asyncio.sleep(pause())
                act()

        return self.world.loop.create_task(forever())

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return

    # Troubles.

    def _trouble(self) -> None:
        trouble = self.rng.choice((self._crash, self._away, self._forbid, self._gap, self._step, self._install))
        trouble()

    def _crash(self) -> None:
        world = self.world
        if not isinstance(world.process, Process):
            return
        world.note("director", "kills the process")
        world.process.kill()
        world.process = NoProcess()
        if world.broker.synchronous or self.rng.random() < 0.3:
            world.broker.crash()
        if world.broker.synchronous:
            world.source.down = True
        self._later(self.rng.choice((0.1, 5.0, 60.0)), self._restart)

    def _restart(self) -> None:
        if isinstance(self.world.process, NoProcess):
            self.world.note("director", "starts the process")
            try:
                self.world.boot()
            except FileError as error:
                self.world.note("director", f"it does not start: {error}")
                self._later(5.0, self._restart)
                return
            if self.world.broker.synchronous:
                self.world.source.relist()

    def _away(self) -> None:
        self.world.note("director", "the API server goes away")
        self.world.faults.away = True
        self._later(self.rng.choice((1.0, 20.0, 200.0)), self._back)

    def _back(self) -> None:
        self.world.note("director", "the API server is back")
        self.world.faults.away = False

    def _forbid(self) -> None:
        what = (
            self.rng.choice(("DELETE", "GET", "LIST", "POST")),
            self.rng.choice(("Job", "Pod", "TrainJob", "Event", "Namespace")),
        )
        self.world.note("director", f"forbids {what[0]} {what[1]}")
        self.world.faults.forbidden.add(what)
        self._later(self.rng.uniform(5, 200), lambda: self.world.faults.forbidden.discard(what))

    def _gap(self) -> None:
        self.world.note("director", "the watch breaks")
        self.world.source.down = True
        self._later(self.rng.choice((1.0, 30.0, 120.0)), self.world.source.relist)

    def _step(self) -> None:
        seconds = self.rng.choice((-60.0, -5.0, -0.5, 0.5, 5.0, 60.0))
        self.world.note("director", f"steps the local clock by {seconds}")
        self.world.clocks.step(seconds)

    def _install(self) -> None:
        """Or an upgrade of what is installed: a version comes, or goes."""
        versions = self.rng.choice((("v1alpha1",), ("v1alpha1", "v1beta1"), ("v1beta1",)))
        self.world.note("director", f"serves TrainJobs as {', '.join(versions)}")
        self.world.serve_train_jobs(versions)

    def _later(self, seconds: float, act: Any) -> None:
        """Act while faults are injected; peace fixes everything at once."""
        self.world.loop.call_later(seconds, lambda: self.peace_at is None and act())

    async def _change_minds_unseen(self) -> None:
        """In some seeds the last event before peace: TTLs change while no watch looks, and no later event tells."""
        if self.rng.random() < 0.5:
            self.world.note("director", "the watch breaks, and minds change")
            self.world.source.down = True
            self.world.users.change_minds()
            await self._wait(1.0)

    # Peace.

    def _make_peace(self) -> None:
        world = self.world
        world.note("director", "makes peace")
        world.faults.stop()
        world.users.active = False
        world.operators.settle()
        self._restart()
        if world.source.down:
            world.source.relist()
        self.peace_at = world.clocks.server()
        self.peaceful_calls = dict(world.checks.calls_about)

    def _check_end(self) -> None:
        for obj in list(self.world.history.all.values()):
            self._check_liveness(obj)
            self._check_calls(obj)

    def _check_liveness(self, obj: SimObject) -> None:
        """L1: gone within one sweep interval of being due and of the end of troubles; and promptly, once in peace."""
        world = self.world
        accepted = world.checks.accepted.get(obj.uid)
        due = world.history.due_at(obj)
        if self._is_refused(obj) or (accepted is None and due is None):
            return
        if accepted is not None and (accepted < self.peace_at or obj.uid not in world.checks.due_of):
            return
        due = due or world.checks.due_of[obj.uid]
        now = world.clocks.server()
        hangs = 2 * TIMEOUT_SECONDS if world.faults.hangs_for_good else 0.0
        one_sweep = world.interval + timedelta(seconds=SWEEP_SECONDS + hangs)
        jitter = world.checks.jitter_of[obj.uid] if accepted else world.history.expectation(obj).jitter
        limit = max(due, self.peace_at) + one_sweep + jitter
        if world.rates:
            limit += one_sweep + world.rates.patience(len(world.history.all))
        elif due > self.peace_at + one_sweep:
            limit = min(limit, due + timedelta(seconds=PROMPT_SECONDS + world.clocks.timers_lag_max))
        if (accepted or now) > limit:
            lateness = f"deleted {accepted - due} late" if accepted else f"not deleted {now - due} after it was due"
            world.checks.fail("L1", f"{obj} {lateness}; peace since {now - self.peace_at}")

    def _is_refused(self, obj: SimObject) -> bool:
        kinds = {kind for _, kind in self.world.faults.forbidden_for_good} | {self.world.faults.hangs_for_good}
        owner = self.world.history.all.get(obj.owner)
        return obj.kind in kinds or (owner is not None and owner.kind in kinds)

    def _check_calls(self, obj: SimObject) -> None:
        """L2 and no storm: in peace an object costs a bounded number of calls, whatever is wrong with it."""
        world = self.world
        sweeps = PEACE_SECONDS / world.interval.total_seconds() + 1
        gets = 10 + (6 if world.quotas else 4) * sweeps  # for a quota, the owners of others are read, too
        for verb, bound in (("GET", gets), ("DELETE", 8 + sweeps)):
            calls = world.checks.calls_about[obj.uid, verb] - self.peaceful_calls.get((obj.uid, verb), 0)
            if calls > bound:
                world.checks.fail("storm", f"{calls} {verb} about {obj} in peace, expected at most {bound:.0f}")
        refused = world.checks.refused[obj.uid]
        records = world.checks.telemetry.records
        if refused and not any(one.verdict == "failed" and one.uid == obj.uid for one in records):
            world.checks.fail("L2", f"{obj} was refused {refused} times, and no process reported it")
