"""How fast expired Jobs go: ours, the peer's, and the limit, each on a fresh set on the same API server.

Two ways to start the clock. Who sweeps, and the limit, finds a set that is long due, and begins on command. Who works
by events (our `run`, and the peer) runs already and has seen every Job finish; all fall due at one instant, and there
the clock starts. For all it stops when the independent watch saw the last one go; then nothing may be left but the
witnesses that must stay.

A machine has its moods, so the limit is measured between any two contenders, and each is compared to the limit right
before and right after it; contenders are compared by their shares of it.
"""

import asyncio
import random
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import mean
from typing import Any

from tests.benchmarks import peer
from tests.benchmarks.cluster import BenchmarkError, Cluster, now, sleep_until
from tests.benchmarks.processes import PROGRAM, cpu_seconds, running

SECONDS_MAX = 180
DEFAULT_PEER_JOBS = 300
"""For the peer with its default QPS, which is a constant rate: more of them would only take longer."""

TUNED_PEER_JOBS = 1_500

Command = Callable[[Cluster], Sequence[str]]


@dataclass(frozen=True)
class Drained:
    """One contender's drain.

    Attributes:
        calls: Requests for each deletion, by verb and resource, of every client.
        cpu_ms: Processor time of the contender's process for each deletion.
        of_limit: Its rate by that of the limit, measured right before it and right after it.
    """

    jobs: int
    seconds: float
    calls: dict[str, float]
    cpu_ms: float
    of_limit: float = 1.0

    @property
    def per_second(self) -> float:
        return self.jobs / self.seconds

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "per_second": self.per_second}


async def measure(cluster: Cluster, jobs: int, pid: int, begin: Callable[[], Awaitable[float]]) -> Drained:
    """Drain the set that is there.

    Args:
        cluster: Where it is.
        jobs: How many they are.
        pid: The contender's process.
        begin: Returns when the clock starts, on the monotonic clock.
    """
    cluster.gone.expect(jobs)
    before = await cluster.calls()
    started = await begin()
    cpu = cpu_seconds(pid)
    await cluster.gone.wait(SECONDS_MAX)
    cpu = cpu_seconds(pid) - cpu
    if cluster.gone.first < started:
        raise BenchmarkError(f"deleted {started - cluster.gone.first:.3f} s early")
    await asyncio.sleep(0.5)  # until all that is on its way is answered
    used = await cluster.calls() - before
    await cluster.check_the_rest()
    calls = {name: count / jobs for name, count in used.most_common() if count >= jobs / 100}
    return Drained(jobs, cluster.gone.last - started, calls, 1000 * cpu / jobs)


async def drain_on_command(cluster: Cluster, jobs: int, *, command: Command) -> Drained:
    """Measure a driver that begins on a command."""
    await cluster.create_expired(jobs)
    async with running(command(cluster), cluster.server.home / "driver.log") as driver:
        await driver.ready()

        async def begin() -> float:
            driver.go()
            return time.monotonic()

        return await measure(cluster, jobs, driver.pid, begin)


async def drain_by_events(cluster: Cluster, jobs: int, *, command: Command) -> Drained:
    """A `run` that has seen all finish."""
    async with running(command(cluster), cluster.server.home / "run.log") as driver:
        return await _drain_due_at_once(cluster, jobs, driver.pid)


async def drain_by_peer(cluster: Cluster, jobs: int, *, settings: peer.Peer) -> Drained:
    """The peer, likewise."""
    with peer.running(cluster.server, settings) as pid:
        return await _drain_due_at_once(cluster, jobs, pid)


async def _drain_due_at_once(cluster: Cluster, jobs: int, pid: int) -> Drained:
    await cluster.warm_up()
    due = await cluster.create_due(cluster.new_names(jobs), per_second=jobs)
    due_at = max(due.values())

    async def begin() -> float:
        await sleep_until(due_at)
        return time.monotonic() - (now() - due_at).total_seconds()

    return await measure(cluster, jobs, pid, begin)


def raw_command(cluster: Cluster) -> list[str]:
    return [sys.executable, "-m", "tests.benchmarks.limit", str(cluster.server.kubeconfig)]


def raw_get_command(cluster: Cluster) -> list[str]:
    return [*raw_command(cluster), "--get"]


def sweep_command(cluster: Cluster) -> list[str]:
    return [sys.executable, "-m", "tests.benchmarks.ours", "sweep", f"--kubeconfig={cluster.server.kubeconfig}"]


def run_command(cluster: Cluster) -> list[str]:
    return [PROGRAM, *_run_options(cluster)]


def forgetful_command(cluster: Cluster) -> list[str]:
    return [sys.executable, "-m", "tests.benchmarks.ours", "forgetful", *_run_options(cluster)]


def _run_options(cluster: Cluster) -> list[str]:
    timers = cluster.server.home / f"timers-{time.monotonic_ns()}.db"
    return ["run", "--no-lease", f"--timers=sqlite:{timers}", f"--kubeconfig={cluster.server.kubeconfig}"]


@dataclass(frozen=True)
class Contender:
    """A way to drain.

    Attributes:
        name: In the JSON.
        title: In the table.
        jobs_max: Where fewer tell as much.
        only_once: In the first round only.
    """

    name: str
    title: str
    drain: Callable[[Cluster, int], Awaitable[Drained]]
    jobs_max: int = 1_000_000
    only_once: bool = False


LIMIT = Contender("raw", "nothing but DELETE: the limit", partial(drain_on_command, command=raw_command))
CONTENDERS = (
    Contender("sweep", "our sweep", partial(drain_on_command, command=sweep_command)),
    Contender("events", "our events", partial(drain_by_events, command=run_command)),
    Contender("peer", "the peer, tuned", partial(drain_by_peer, settings=peer.TUNED), TUNED_PEER_JOBS),
    Contender(
        "raw-get", "nothing but GET and DELETE", partial(drain_on_command, command=raw_get_command), only_once=True
    ),
    Contender(
        "events-get", "our events, not remembering", partial(drain_by_events, command=forgetful_command), only_once=True
    ),
    Contender(
        "peer-default",
        "the peer as it comes",
        partial(drain_by_peer, settings=peer.DEFAULT),
        DEFAULT_PEER_JOBS,
        only_once=True,
    ),
)


async def drain_all(
    cluster: Cluster, *, jobs: int, rounds: int, write_event: Callable[[str], None]
) -> dict[str, list[Drained]]:
    """Every contender in every round, in another order each time, and the limit between any two of them."""
    results: dict[str, list[Drained]] = defaultdict(list)

    async def run(contender: Contender) -> Drained:
        write_event(f"drain, round {number + 1} of {rounds}: {contender.title}")
        return await contender.drain(cluster, min(jobs, contender.jobs_max))

    for number in range(rounds):
        results[LIMIT.name].append(await run(LIMIT))
        for contender in _order(number):
            drained = await run(contender)
            results[LIMIT.name].append(await run(LIMIT))
            around = mean(one.per_second for one in results[LIMIT.name][-2:])
            results[contender.name].append(replace(drained, of_limit=drained.per_second / around))
    return results


def _order(number: int) -> Sequence[Contender]:
    present = [contender for contender in CONTENDERS if not (contender.only_once and number)]
    return random.Random(number).sample(present, len(present))
