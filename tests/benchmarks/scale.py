"""Many finished Jobs that wait: what each costs while nothing is due, and what a start with all of them takes.

    python -m tests.benchmarks --only scale --scale-jobs 100000

All have finished, and fall due evenly within one hour, which begins long after the measurement. So every timer is set
and none fires. On one API server, one after the other, each a process of its own:

- `run` before there is a Job, and with half of them: what does not depend on their number, such as the memory of one
  page of a LIST, is in both.
- A sweep whose horizon ends before the first is due: it lists and decides, and sets no timer. Then the same again.
- `run` with a horizon that reaches all of them: its start sets every timer. Then it is idle.
- `run` again with the same timer file: a restart.

A start is over when the log has a line about each timer and the process rests: it uses less than `RESTING` of a core in
each of `RESTS` windows of `REST_SECONDS`.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from shared.ports import Verdict
from tests.benchmarks.cluster import BenchmarkError, Cluster, complete, for_each, now
from tests.benchmarks.drain import sweep_command
from tests.benchmarks.processes import PROGRAM, Contender, cpu_seconds, running
from tests.proc import memory_kb

JOBS = 5_000
DUE_WITHIN = timedelta(hours=1)
DUE_IN_AT_LEAST = timedelta(hours=3)
INTERVAL = "150m"
"""The sweep interval of the `run` that sets all timers: its horizon is twice as long."""

REST_SECONDS = 3
RESTS = 3
RESTING = 0.1
IDLE_SECONDS = 30
SECONDS_MAX = 600

RSS_AIM_KB = 0.5
SWEEP_AIM_MS = 0.15


@dataclass(frozen=True)
class Figure:
    """One figure.

    Attributes:
        most: The aim; None for none.
    """

    name: str
    value: float
    unit: str
    most: float | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Started:
    """A `run` that rests.

    Attributes:
        seconds: From the start of the process until it rested.
        cpu_seconds: Its processor time until then.
        rss_kb: Its memory then.
        peak_kb: The most that it had.
        idle_cpu: Its processor time while idle, in cores.
    """

    seconds: float
    cpu_seconds: float
    rss_kb: int
    peak_kb: int
    idle_cpu: float


async def measure(cluster: Cluster, jobs: int, write_event: Callable[[str], None]) -> dict[str, Sequence[Figure]]:
    """All figures of one number of Jobs."""
    write_event("scale: `run` without Jobs")
    empty = await _start(cluster, cluster.server.home / "empty.db")
    write_event(f"scale: creating {jobs:,} Jobs, half of them first")
    await _create(cluster, range(0, jobs, 2), jobs)
    half = await _start(cluster, cluster.server.home / "half.db", (jobs + 1) // 2)
    write_event("scale: creating the other half")
    await _create(cluster, range(1, jobs, 2), jobs)
    write_event("scale: two sweeps with nothing due")
    sweeps = await _sweep(cluster)
    write_event("scale: the start of `run`")
    file = cluster.server.home / "all.db"
    full = await _start(cluster, file, jobs)
    write_event("scale: a restart")
    again = await _start(cluster, file, jobs)
    disk_kb = sum(one.stat().st_size for one in file.parent.glob(f"{file.name}*")) / 1024
    others = jobs // 2
    return {
        "figures": [
            Figure("Jobs that wait", jobs, ""),
            Figure("a sweep with nothing due: CPU an object", 1000 * sweeps[1][1] / jobs, "ms", SWEEP_AIM_MS),
            Figure("the same, wall clock", 1000 * sweeps[1][0] / jobs, "ms"),
            Figure("`run`: start until all timers are set", full.seconds, "s"),
            Figure("the same without a Job", empty.seconds, "s"),
            Figure("start: CPU an object", 1000 * (full.cpu_seconds - half.cpu_seconds) / others, "ms"),
            Figure("restart: CPU an object", 1000 * (again.cpu_seconds - empty.cpu_seconds) / jobs, "ms"),
            Figure("restart until it rests", again.seconds, "s"),
            Figure("RSS without a Job", empty.rss_kb / 1024, "MB"),
            Figure("RSS with half of them pending", half.rss_kb / 1024, "MB"),
            Figure("RSS with all pending", full.rss_kb / 1024, "MB"),
            Figure("RSS a pending object, of the other half", (full.rss_kb - half.rss_kb) / others, "KB", RSS_AIM_KB),
            Figure("RSS at its highest", full.peak_kb / 1024, "MB"),
            Figure("RSS after the restart", again.rss_kb / 1024, "MB"),
            Figure("timer file, an object", disk_kb / jobs, "KB"),
            Figure("idle without a Job", 100 * empty.idle_cpu, "% of a core"),
            Figure("idle with all pending", 100 * full.idle_cpu, "% of a core"),
        ]
    }


async def _create(cluster: Cluster, numbers: range, jobs: int) -> None:
    """Finished Jobs, these of all; all are due evenly within `DUE_WITHIN`."""
    finished_at = now().replace(microsecond=0)

    async def make(name: str) -> None:
        number = int(name.rpartition("-")[2])
        await cluster.create_finished(name, DUE_IN_AT_LEAST + DUE_WITHIN * number / jobs, {"status": complete(now())})

    await for_each([f"later-{number}" for number in numbers], make)
    if now() > finished_at + DUE_IN_AT_LEAST - timedelta(hours=2):
        raise BenchmarkError("the Jobs took more than an hour to create")


async def _sweep(cluster: Cluster) -> list[tuple[float, float]]:
    """The seconds and the processor seconds of two sweeps in one process."""
    async with running(sweep_command(cluster), cluster.server.home / "driver.log") as driver:
        await driver.ready()
        found = []
        for _ in range(2):
            started, cpu = time.monotonic(), cpu_seconds(driver.pid)
            driver.send("go")
            await driver.done(SECONDS_MAX)
            found.append((time.monotonic() - started, cpu_seconds(driver.pid) - cpu))
    return found


async def _start(cluster: Cluster, file: Path, pending: int = 0) -> Started:
    options = ("--no-lease", f"--timers=sqlite:{file}", f"--sweep-interval={INTERVAL}")
    command = [PROGRAM, "run", *options, f"--kubeconfig={cluster.server.kubeconfig}"]
    log = file.with_suffix(f".{time.monotonic_ns()}.log")
    started = time.monotonic()
    async with running(command, log) as process:
        rested_at = await _rest(process, log, pending)
        if (stored := _pending(file)) != pending:
            raise BenchmarkError(f"expected {pending} pending timers, got {stored}")
        cpu, rss = cpu_seconds(process.pid), memory_kb(process.pid, "VmRSS")
        await asyncio.sleep(IDLE_SECONDS)
        idle = (cpu_seconds(process.pid) - cpu) / IDLE_SECONDS
        return Started(rested_at - started, cpu, rss, memory_kb(process.pid, "VmHWM"), idle)


async def _rest(process: Contender, log: Path, timers: int) -> float:
    """Wait until a process has set so many timers and rests; returns since when."""
    deadline, rests, rested_at = time.monotonic() + SECONDS_MAX, 0, 0.0
    while time.monotonic() < deadline:
        since, cpu = time.monotonic(), cpu_seconds(process.pid)
        await asyncio.sleep(REST_SECONDS)
        is_resting = cpu_seconds(process.pid) - cpu < RESTING * REST_SECONDS
        rests = rests + 1 if is_resting and _timers_set(log) >= timers else 0
        rested_at = since if rests == 1 else rested_at
        if rests == RESTS:
            return rested_at
    raise BenchmarkError(f"after {SECONDS_MAX} s `run` still works, or has not set {timers} timers")


def _timers_set(log: Path) -> int:
    return log.read_text().count(f" {Verdict.TIMER_SET} ")


def _pending(file: Path) -> int:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        return int(db.execute("SELECT count(*) FROM timers").fetchone()[0])
