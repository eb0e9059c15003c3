"""How fast expired Jobs go: ours, the peer's, and the limit, each on a fresh set on the same API server.

Two ways to start the clock. A sweep and the limit find a set that is long due, and begin on command. Our `run` and the
peer work by events: they have seen every Job finish, all fall due at one instant, and there the clock starts. For all
it stops when the independent watch saw the last one go; then nothing may be left but the witnesses that must stay.

Every contender deletes a set of `WARM_UP` Jobs before the measured one, so the start of its process, its imports and
its first connections do not count. What they cost is shown beside the processor time a deletion.

A machine has its moods, so the limit is measured between any two contenders, and each is compared to the limit right
before and right after it; contenders are compared by their shares of it. If these two differ by more than `UNSTEADY`,
the round is marked: it says little. The processor time a deletion is the steadier figure.
"""

import asyncio
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
WARM_UP = 300

DEFAULT_PEER_JOBS = 300
"""For the peer with its default QPS, which is a constant rate: more of them would only take longer."""

DEFAULT_PEER_WARM_UP = 30
TUNED_PEER_JOBS = 1_500

UNSTEADY = 1.25
"""Two limits, right before and right after a contender, that differ by more than this make its ratio doubtful."""

Command = Callable[[Cluster], Sequence[str]]
Begin = Callable[[], Awaitable[float]]


@dataclass(frozen=True)
class Drained:
    """One contender's drain.

    Attributes:
        calls: Requests for each deletion, by verb and resource, of every client.
        gets: GETs of objects for each deletion.
        cpu_ms: Processor time of the contender's process for each deletion, from the start of the clock.
        before_ms: The same for each Job between its creation and the start of the clock: what events cost until then.
        start_ms: Processor time of the process for its start and its warm-up, in all.
        limits: The rates of the limit right before and right after it.
        of_limit: Its rate by the mean of these.
        cpu_of_limit: Its processor time a deletion by that of the limit's own client, right before and right after.
    """

    jobs: int
    seconds: float
    calls: dict[str, float]
    gets: float
    cpu_ms: float
    before_ms: float
    start_ms: float
    limits: tuple[float, float] = (1.0, 1.0)
    of_limit: float = 1.0
    cpu_of_limit: float = 1.0

    @property
    def per_second(self) -> float:
        return self.jobs / self.seconds

    @property
    def is_steady(self) -> bool:
        return max(self.limits) <= UNSTEADY * min(self.limits)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "per_second": self.per_second, "is_steady": self.is_steady}

    def beside(self, before: "Drained", after: "Drained") -> "Drained":
        """The same with its shares of the limits that were measured around it."""
        rates, cpu = (before.per_second, after.per_second), mean((before.cpu_ms, after.cpu_ms))
        share = self.per_second / mean(rates)
        return replace(self, limits=rates, of_limit=share, cpu_of_limit=self.cpu_ms / cpu)


class Cpu:
    """The processor time of one process, by the parts of a measurement."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen = 0.0

    def since(self) -> float:
        """Milliseconds since the last call; at first, since the process started."""
        seen, self._seen = self._seen, cpu_seconds(self._pid)
        return 1000 * (self._seen - seen)


async def measure(cluster: Cluster, jobs: int, cpu: Cpu, begin: Begin, *, start_ms: float) -> Drained:
    """Drain the set that is there.

    Args:
        cluster: Where it is.
        jobs: How many they are.
        cpu: That of the contender's process.
        begin: Returns when the clock starts, on the monotonic clock.
        start_ms: See `Drained`.
    """
    cluster.gone.expect(jobs)
    before = await cluster.calls()
    started = await begin()
    before_ms = cpu.since() / jobs
    await cluster.gone.wait(SECONDS_MAX)
    if cluster.gone.first < started:
        raise BenchmarkError(f"deleted {started - cluster.gone.first:.3f} s early")
    await asyncio.sleep(0.5)  # until all that is on its way is answered, and written
    cpu_ms = cpu.since() / jobs
    used = await cluster.calls() - before
    await cluster.check_the_rest()
    calls = {name: count / jobs for name, count in used.most_common() if count >= jobs / 100}
    gets = sum(count for name, count in used.items() if name.startswith("GET ")) / jobs
    return Drained(jobs, cluster.gone.last - started, calls, gets, cpu_ms, before_ms, start_ms)


async def drain_on_command(cluster: Cluster, jobs: int, warm_up: int, *, command: Command) -> Drained:
    """Measure a driver that begins on a command."""
    async with running(command(cluster), cluster.server.home / "driver.log") as driver:
        await driver.ready()
        cpu = Cpu(driver.pid)

        async def prepare(count: int) -> None:
            await cluster.create_expired(count)
            driver.send("prepare")
            await driver.done(SECONDS_MAX)

        await prepare(warm_up)
        driver.send("go")
        await driver.done(SECONDS_MAX)
        start_ms = cpu.since()
        await prepare(jobs)

        async def begin() -> float:
            driver.send("go")
            return time.monotonic()

        drained = await measure(cluster, jobs, cpu, begin, start_ms=start_ms)
        await driver.done(SECONDS_MAX)
        return drained


async def drain_by_events(cluster: Cluster, jobs: int, warm_up: int, *, command: Command) -> Drained:
    """A `run` that has seen all finish."""
    async with running(command(cluster), cluster.server.home / "run.log") as driver:
        return await _drain_due_at_once(cluster, jobs, warm_up, driver.pid)


async def drain_by_peer(cluster: Cluster, jobs: int, warm_up: int, *, settings: peer.Peer) -> Drained:
    """The peer, likewise."""
    with peer.running(cluster.server, settings) as pid:
        return await _drain_due_at_once(cluster, jobs, warm_up, pid)


async def _drain_due_at_once(cluster: Cluster, jobs: int, warm_up: int, pid: int) -> Drained:
    cpu = Cpu(pid)
    await cluster.warm_up(warm_up)
    await asyncio.sleep(0.5)
    start_ms = cpu.since()
    due = await cluster.create_due(cluster.new_names(jobs), per_second=jobs)
    due_at = max(due.values())

    async def begin() -> float:
        await sleep_until(due_at)
        return time.monotonic() - (now() - due_at).total_seconds()

    return await measure(cluster, jobs, cpu, begin, start_ms=start_ms)


def bare_command(*flags: str) -> Command:
    return lambda cluster: [sys.executable, "-m", "tests.benchmarks.limit", str(cluster.server.kubeconfig), *flags]


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
        warm_up: Jobs that it deletes before the measured ones.
        only_once: In the first round only, after all others.
    """

    name: str
    title: str
    drain: Callable[[Cluster, int, int], Awaitable[Drained]]
    jobs_max: int = 1_000_000
    warm_up: int = WARM_UP
    only_once: bool = False


LIMIT = Contender(
    "raw", "DELETE by a client that knows every name: the limit", partial(drain_on_command, command=bare_command())
)
SWEEP = Contender("sweep", "our sweep", partial(drain_on_command, command=sweep_command))
EVENTS = Contender("events", "our events", partial(drain_by_events, command=run_command))
OURS = (SWEEP, EVENTS)
CONTENDERS = (
    *OURS,
    Contender("peer", "the peer, tuned", partial(drain_by_peer, settings=peer.TUNED), TUNED_PEER_JOBS),
    Contender("raw-list", "the same client with its LIST", partial(drain_on_command, command=bare_command("--list"))),
    Contender(
        "raw-get",
        "the same client with a GET before each",
        partial(drain_on_command, command=bare_command("--get")),
        only_once=True,
    ),
    Contender(
        "events-get", "our events, not remembering", partial(drain_by_events, command=forgetful_command), only_once=True
    ),
    Contender(
        "peer-default",
        "the peer as it comes",
        partial(drain_by_peer, settings=peer.DEFAULT),
        DEFAULT_PEER_JOBS,
        DEFAULT_PEER_WARM_UP,
        only_once=True,
    ),
)


async def drain_all(
    cluster: Cluster,
    *,
    jobs: int,
    rounds: int,
    write_event: Callable[[str], None],
    contenders: Sequence[Contender] = CONTENDERS,
) -> dict[str, list[Drained]]:
    """Every contender in every round, in counterbalanced order, and the limit between any two of them."""
    results: dict[str, list[Drained]] = defaultdict(list)

    async def run(contender: Contender) -> Drained:
        write_event(f"drain, round {number + 1} of {rounds}: {contender.title}")
        return await contender.drain(cluster, min(jobs, contender.jobs_max), contender.warm_up)

    for number in range(rounds):
        results[LIMIT.name].append(await run(LIMIT))
        always, once = ([one for one in contenders if one.only_once is only] for only in (False, True))
        for contender in (*in_turn(always, number), *([] if number else once)):
            drained = await run(contender)
            results[LIMIT.name].append(await run(LIMIT))
            results[contender.name].append(drained.beside(*results[LIMIT.name][-2:]))
    return results


def in_turn(contenders: Sequence[Any], number: int) -> list[Any]:
    """The order of one round: each is as often early as late, and any two are in both orders equally often."""
    first = number // 2 % len(contenders)
    rotated = [*contenders[first:], *contenders[:first]]
    return rotated[::-1] if number % 2 else rotated
