"""`make bench`: measures this project beside its peer and the raw limit, all on one real API server, in one run.

    python -m tests.benchmarks --only drain,lateness --jobs 500 --rounds 1 --json results.json

The servers are real (etcd with fsync), everything is on loopback, and each contender is a process of its own. What
was hoped for is shown beside what was measured, and never makes the run fail. A deletion that takes much more processor
time than was recorded makes it fail: see `regression`. The modules say how each is measured.
"""

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console

from shared.devserver.real_servers import ASSETS_VARIABLE, RealServer, find_assets, real_server
from tests.benchmarks import (
    bench_timers,
    coldstart,
    deadlines,
    decide,
    drain,
    guard,
    lateness,
    plan,
    regression,
    report,
    scale,
    schedule,
    trainjobs,
)
from tests.benchmarks.cluster import BenchmarkError, connected

ALL = (
    "drain",
    "cpu",
    "lateness",
    "deadlines",
    "timers",
    "schedule",
    "coldstart",
    "decide",
    "plan",
    "guard",
    "trainjobs",
)
CHOICES = (*ALL, "scale")
TIMERS = (10_000, 100_000, 1_000_000)
LATENESS_SECONDS = 20
ROUNDS = 5
CPU_JOBS, CPU_ROUNDS = 1_000, 2
"""Of `cpu`, the cheap part of `drain`: `make bench-guard`."""


@contextmanager
def _server(*arguments: str) -> Iterator[RealServer]:
    assets = find_assets()
    if assets is None:
        raise BenchmarkError(f"no kube-apiserver and etcd in ${ASSETS_VARIABLE}, nor in /usr/local/kubebuilder/bin")
    with real_server(assets, apiserver_args=arguments) as server:
        if not server.has_controllers():
            raise BenchmarkError(f"no kube-controller-manager beside kube-apiserver in {assets}: it is the peer")
        yield server


async def _measure(options: argparse.Namespace, folder: Path, write_event: Callable[[str], None]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    if {"drain", "cpu"} & set(options.only):
        results["drain"] = await _measure_drain(options, write_event)
    for name in sorted({"lateness", "deadlines"} & set(options.only)):
        results[name] = await _measure_audited(name, options.rounds, folder, write_event)
    if "schedule" in options.only:
        results["schedule"] = await schedule.measure(folder, write_event)
    if "decide" in options.only:
        write_event("decide")
        results["decide"] = {"decide": decide.measure()}
    for name in sorted({"coldstart", "plan", "guard", "scale", "trainjobs"} & set(options.only)):
        results[name] = await _measure_processes(name, folder, options, write_event)
    if "timers" in options.only:
        results["timers"] = []
        for count in TIMERS:
            write_event(f"timers: {count:,}")
            results["timers"].append(await asyncio.to_thread(bench_timers.in_own_process, count))
    return results


async def _measure_drain(options: argparse.Namespace, write_event: Callable[[str], None]) -> Any:
    """All contenders, or for `cpu` only what `regression` compares."""
    with _server() as server:
        async with connected(server) as cluster:
            if "drain" in options.only:
                return await drain.drain_all(cluster, jobs=options.jobs, rounds=options.rounds, write_event=write_event)
            return await drain.drain_all(
                cluster, jobs=CPU_JOBS, rounds=CPU_ROUNDS, write_event=write_event, contenders=drain.OURS
            )


async def _measure_audited(name: str, rounds: int, folder: Path, write_event: Callable[[str], None]) -> Any:
    """What is read from the audit log of an API server that nothing else has used."""
    module = {"lateness": lateness, "deadlines": deadlines}[name]
    with _server(*module.audit_arguments(folder)) as server:
        async with connected(server) as cluster:
            return await module.measure_all(
                cluster, folder, seconds=LATENESS_SECONDS, rounds=rounds, write_event=write_event
            )


async def _measure_processes(
    name: str, folder: Path, options: argparse.Namespace, write_event: Callable[[str], None]
) -> Any:
    """What starts processes of its own, on a server that nothing else has used."""
    if name == "trainjobs":
        return await trainjobs.measure_all(folder / name, options.trainjobs, write_event)
    with _server() as server:
        async with connected(server) as cluster:
            if name == "scale":
                return await scale.measure(cluster, options.scale_jobs, write_event)
            return await {"coldstart": coldstart, "plan": plan, "guard": guard}[name].measure(
                cluster, folder, write_event
            )


def _facts(options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    return {
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "pinned": schedule.can_pin(),
        "jobs": options.jobs,
        "rounds": options.rounds,
        "seconds": round(seconds),
    }


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=_names, default=ALL, metavar="NAMES", help=f"some of {','.join(CHOICES)}")
    parser.add_argument("--jobs", type=int, default=3_000, help="in each drain (%(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of drains and of lateness (%(default)s)")
    parser.add_argument("--scale-jobs", type=int, default=scale.JOBS, help="in the benchmark scale (%(default)s)")
    parser.add_argument(
        "--trainjobs", type=int, default=trainjobs.TRAINJOBS, help="in the benchmark trainjobs (%(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here; - for standard output")
    return parser.parse_args()


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if wrong := set(names) - set(CHOICES):
        raise argparse.ArgumentTypeError(f"expected some of {','.join(CHOICES)}, got {','.join(sorted(wrong))}")
    return names


def main() -> int:
    options = _parse()
    progress, started = Console(stderr=True), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ttl-bench-") as folder, progress.status("starting") as status:

        def write_event(text: str) -> None:
            status.update(f"{time.monotonic() - started:4.0f} s  {text}")
            if not progress.is_terminal:
                progress.print(f"{time.monotonic() - started:4.0f} s  {text}")

        try:
            results = uvloop.run(_measure(options, Path(folder), write_event))
        except (BenchmarkError, ExceptionGroup) as error:
            progress.print(f"[red]{_benchmark_error(error)}")
            return 1
    document = json.dumps(report.as_json(results, _facts(options, time.monotonic() - started)), indent=2)
    if options.json == Path("-"):
        print(document)
    else:
        report.show(Console(width=None if sys.stdout.isatty() else 200), results)
    if options.json and options.json != Path("-"):
        options.json.write_text(f"{document}\n")
    worse = list(regression.regressions(results["drain"])) if "drain" in results else []
    for one in worse:
        progress.print(f"[red]{one}")
    return 1 if worse else 0


def _benchmark_error(error: Exception) -> BenchmarkError:
    """The one in a task group's; anything else goes on."""
    if isinstance(error, BenchmarkError):
        return error
    assert isinstance(error, ExceptionGroup)
    found, rest = error.split(BenchmarkError)
    if found is None or rest is not None:
        raise error
    return _benchmark_error(found.exceptions[0])


if __name__ == "__main__":
    sys.exit(main())
