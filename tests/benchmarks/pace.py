"""What the pace does on a slow etcd: `nice python -m tests.benchmarks.pace --help`.

    python -m tests.benchmarks.pace --slow kube-apiserver --jobs 1200 --slow-seconds 20

A real server, kube-apiserver or its etcd, runs only in slices: another process stops it (SIGSTOP) for most of the
time, as if its node were busy. A sweep deletes expired Jobs with 64 workers, first without and then with the pace.
After the slow time the server runs as usual, and the sweep ends. Meanwhile, another client writes a ConfigMap again and
again, as any controller of the cluster would.

Each line is a second: accepted DELETEs, the permits at its end, the DELETEs in flight at once, and the median latency
of the DELETEs and of the other client's writes. A write without an answer at its end counts with its age.
"""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from statistics import median, quantiles
from typing import Any

import uvloop

from shared.adapters.clock import SystemClock
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.adapters.kubernetes.connect import connect
from shared.adapters.telemetry.logs import LogTelemetry
from shared.core.kinds.rule import Catalogue, KindRule
from shared.devserver.real_servers import RealServer, find_assets, real_server
from shared.evaluation.evaluator import Evaluator
from shared.messages import SweepStep
from shared.safeguards.pace import PERMITS_MAX, Pace
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from tests.benchmarks.cluster import NAMESPACE, BenchmarkError, Cluster, connected
from tests.builders import JOB
from tests.fakes import FakePublisher
from tests.sweeps import sweep_with

CONCURRENCY = 64
SLICES = {"kube-apiserver": (0.05, 0.003), "etcd": (0.2, 0.003)}
"""Seconds that a server is stopped and runs, by turns."""
PROBE_PAUSE_SECONDS = 0.05
CONFIG_MAP = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


@dataclass
class Measured:
    """The requests of one client.

    Attributes:
        seconds: The latency of each answer, since the last line.
        all_slow: The latency of each answer while the server was slow.
        open: When each request in flight was sent, on the monotonic clock.
    """

    seconds: list[float] = field(default_factory=list)
    all_slow: list[float] = field(default_factory=list)
    open: dict[object, float] = field(default_factory=dict)
    peak: int = 0
    is_slow: bool = True

    async def measure(self, request: Awaitable[Any]) -> Any:
        key, sent_at = object(), time.monotonic()
        self.open[key] = sent_at
        self.peak = max(self.peak, len(self.open))
        try:
            return await request
        finally:
            del self.open[key]
            self.seconds.append(time.monotonic() - sent_at)
            if self.is_slow:
                self.all_slow.append(self.seconds[-1])

    def take(self) -> tuple[int, int, float]:
        """Return the answers since the last call, the most in flight, and the median latency in milliseconds."""
        now = time.monotonic()
        shown = [*self.seconds, *(now - at for at in self.open.values())]
        taken = len(self.seconds), self.peak, 1000 * median(shown) if shown else 0.0
        self.seconds, self.peak = [], len(self.open)
        return taken


class Telemetry(LogTelemetry):
    """Remembers the permits."""

    permits = PERMITS_MAX

    def paced(self, rule: KindRule, permits: int, *, before: int, most: int) -> None:
        super().paced(rule, permits, before=before, most=most)
        self.permits = permits


_SLICES = """
import os, signal, sys, time
pid, stopped, running = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
while os.getppid() != 1:
    os.kill(pid, signal.SIGSTOP)
    time.sleep(stopped)
    os.kill(pid, signal.SIGCONT)
    time.sleep(running)
"""


@asynccontextmanager
async def slowed(server: RealServer, name: str) -> AsyncIterator[None]:
    """Let a server run in slices until the block ends."""
    pid = server.pid(name)
    command = (sys.executable, "-c", _SLICES, str(pid), *map(str, SLICES[name]))
    slicer = await asyncio.create_subprocess_exec(*command)
    try:
        yield
    finally:
        slicer.kill()
        await slicer.wait()
        os.kill(pid, signal.SIGCONT)


async def write_on(cluster: Cluster, probe: Measured) -> None:
    """The other client."""
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"probe-{time.monotonic_ns()}"}}
    await cluster.call("POST", CONFIG_MAP, manifest)
    path, number = f"{CONFIG_MAP}/{manifest['metadata']['name']}", 0  # type: ignore[index]
    while True:
        number += 1
        patch = {"data": {"number": str(number)}}
        headers = {"Content-Type": "application/merge-patch+json"}
        try:
            await probe.measure(cluster.call("PATCH", path, patch, **headers))
        except BenchmarkError as error:
            print(f"    the other client: {error}")
        await asyncio.sleep(PROBE_PAUSE_SECONDS)


async def print_lines(deletes: Measured, probe: Measured, telemetry: Telemetry, *, has_pace: bool) -> None:
    started = time.monotonic()
    while True:
        await asyncio.sleep(1)
        count, peak, seconds = deletes.take()
        _, _, other = probe.take()
        permits = str(telemetry.permits) if has_pace else "-"
        state = "slow" if deletes.is_slow else "well"
        print(
            f"  {time.monotonic() - started:5.0f} s  {state}  {count:5} DELETEs  permits {permits:>3}  "
            f"in flight {peak:3}  DELETE p50 {seconds:6.0f} ms  other client p50 {other:6.0f} ms"
        )


async def sweep_all(client: KubernetesCluster, telemetry: Telemetry, pace: Pace | None) -> None:
    """Sweep until nothing is due."""
    kinds = Catalogue((JOB,))
    evaluator = Evaluator(client, kinds, telemetry=telemetry)
    expiry = Handler(DELETION, client, kinds, evaluator, SystemClock(), telemetry, dry_run=False, by="sweep")
    publisher = FakePublisher()
    sweep = sweep_with(replace(expiry, pace=pace), publisher, timedelta(minutes=5), concurrency=CONCURRENCY)
    while True:
        step: SweepStep | None = SweepStep()
        while step is not None:
            step = await sweep.sweep(step)
        if not (await client.list_page(JOB, namespace=NAMESPACE)).items[3:]:  # the three witnesses stay
            return


async def measure(server: RealServer, cluster: Cluster, options: argparse.Namespace, *, has_pace: bool) -> str:
    """Make expired Jobs, and sweep them; returns the summary of this turn."""
    await cluster.create_expired(options.jobs)
    client, telemetry = await connect(kubeconfig=str(server.kubeconfig)), Telemetry()
    deletes, probe = Measured(), Measured()
    delete: Callable[..., Awaitable[bool]] = client.delete
    client.delete = lambda *args, **named: deletes.measure(delete(*args, **named))  # type: ignore[method-assign]
    started = time.monotonic()
    helpers = [
        asyncio.create_task(write_on(cluster, probe)),
        asyncio.create_task(print_lines(deletes, probe, telemetry, has_pace=has_pace)),
    ]
    async with slowed(server, options.slow):
        sweep = asyncio.create_task(sweep_all(client, telemetry, Pace(telemetry) if has_pace else None))
        await asyncio.wait({sweep}, timeout=options.slow_seconds)
    deletes.is_slow = probe.is_slow = False
    accepted, well_at = len(deletes.all_slow), time.monotonic()
    await sweep
    ended_at = time.monotonic()
    for helper in helpers:
        helper.cancel()
    await asyncio.gather(*helpers, return_exceptions=True)
    await client.close()
    await cluster.check_the_rest()
    return (
        f"{'with' if has_pace else 'without'} the pace: while {options.slow} was slow, {accepted} DELETEs in "
        f"{well_at - started:.0f} s, {_latencies(deletes)}; other client {_latencies(probe)}. "
        f"After it was well, the rest took {ended_at - well_at:.1f} s"
    )


def _latencies(measured: Measured) -> str:
    parts = quantiles(measured.all_slow, n=100) if len(measured.all_slow) > 1 else [0.0] * 99
    return f"p50 {1000 * parts[49]:.0f} ms and p99 {1000 * parts[98]:.0f} ms"


async def main(options: argparse.Namespace) -> None:
    """Measure both turns on one server."""
    assets = find_assets()
    if assets is None:
        raise BenchmarkError("no kube-apiserver and etcd were found")
    with real_server(assets) as server:
        async with connected(server) as cluster:
            summaries = []
            for has_pace in (False, True):
                print(f"{'with' if has_pace else 'without'} the pace")
                summaries.append(await measure(server, cluster, options, has_pace=has_pace))
    print("\n".join(summaries))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slow", choices=SLICES, default="kube-apiserver", help="the server that is slow")
    parser.add_argument("--jobs", type=int, default=1_200, help="expired Jobs in each turn")
    parser.add_argument("--slow-seconds", type=float, default=20.0, help="how long the server is slow")
    uvloop.run(main(parser.parse_args()))
