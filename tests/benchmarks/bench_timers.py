"""What a timer engine can do on this machine: `python -m tests.benchmarks.bench_timers --help`.

Each size is measured in a process of its own, so that its memory is its own. Numbers depend on the disk: every set and
every completion of sqlite waits for an fsync (synchronous=FULL).
"""

import argparse
import asyncio
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import uvloop

from shared.adapters.clock import SystemClock
from shared.core.values.objects import ObjectRef
from shared.messages import Message, Purpose, Timer
from shared.ports import DurableTimers
from tests.benchmarks.timers_delivery import measure_delivery, running_engine
from tests.benchmarks.timers_stores import STORES, Store
from tests.proc import memory_kb

BATCH = 500
WAITING_AT_ONCE = 64
SPARSE = 200
SPARSE_EVERY = timedelta(milliseconds=25)
SINGLES_MAX = 20_000
FIRES_MAX = 100_000
SLOWEST_SETS_PER_SECOND = 2_000
FAR_AWAY = datetime(2100, 1, 1, tzinfo=UTC)


class InstantBroker:
    """Takes everything at once and notes how late it was."""

    def __init__(self) -> None:
        self.lateness_ms: list[float] = []
        self.expected = 0
        self.complete = asyncio.Event()

    async def publish(self, message: Message) -> None:
        assert isinstance(message, Timer)
        self.lateness_ms.append((SystemClock().now() - message.due_at) / timedelta(milliseconds=1))
        if len(self.lateness_ms) >= self.expected:
            self.complete.set()

    def expect(self, count: int) -> None:
        self.lateness_ms.clear()
        self.expected = count
        self.complete.clear()


def make_timers(count: int, due_at: datetime, *, every: timedelta = timedelta()) -> list[Timer]:
    return [
        Timer.model_construct(
            ref=ObjectRef("batch/v1", "Job", "team-a-training", f"nightly-build-{number:07}", str(uuid.uuid4())),
            purpose=Purpose.EXPIRE,
            due_at=due_at + number * every,
        )
        for number in range(count)
    ]


def chunks(timers: Sequence[Timer], size: int) -> Iterable[Sequence[Timer]]:
    return (timers[start : start + size] for start in range(0, len(timers), size))


async def set_all(engine: DurableTimers, timers: Sequence[Timer], *, batch: int, waiting: int) -> float:
    """Set them from so many callers at once; timers a second."""
    work = iter(chunks(timers, batch))

    async def caller() -> None:
        for part in work:
            await engine.set(part)

    started = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(waiting)))
    return len(timers) / (time.perf_counter() - started)


async def fill(engine: DurableTimers, count: int, due_at: datetime) -> float:
    """Timers made as they are set, so that the benchmark's own memory stays small; timers a second."""
    seconds = 0.0
    for start in range(0, count, 10 * BATCH):
        timers = make_timers(min(10 * BATCH, count - start), due_at)
        seconds += len(timers) / await set_all(engine, timers, batch=BATCH, waiting=2)
    return count / seconds


async def sparse_lateness(engine: DurableTimers, broker: InstantBroker) -> dict[str, float]:
    broker.expect(SPARSE)
    await engine.set(make_timers(SPARSE, SystemClock().now() + timedelta(milliseconds=300), every=SPARSE_EVERY))
    await broker.complete.wait()
    late = sorted(broker.lateness_ms)
    assert late[0] >= 0, f"fired {-late[0]} ms early"
    return {"late_p50_ms": percentile(late, 50), "late_p99_ms": percentile(late, 99), "late_max_ms": late[-1]}


async def drain(engine: DurableTimers, broker: InstantBroker, count: int) -> float:
    """Timers of one instant, all set before it: fired a second, until the last is gone from the file."""
    others = await engine.pending()
    broker.expect(count)
    due_at = SystemClock().now() + timedelta(seconds=max(3.0, count / SLOWEST_SETS_PER_SECOND))
    await fill(engine, count, due_at)
    assert not broker.lateness_ms, "due before all were set: measure on a faster disk, or raise the delay"
    await asyncio.sleep((due_at - SystemClock().now()).total_seconds())
    started = time.perf_counter()
    await broker.complete.wait()
    while await engine.pending() > others:
        await asyncio.sleep(0.005)
    return count / (time.perf_counter() - started)


def percentile(ordered: Sequence[float], percent: float) -> float:
    return ordered[min(len(ordered) - 1, math.ceil(len(ordered) * percent / 100) - 1)]


async def measure(count: int, engine_name: str, folder: Path) -> dict[str, Any]:
    async with STORES[engine_name](folder) as store:
        result: dict[str, Any] = {"timers": count, **await store.bare_publishes(count)}
        result |= await measure_engine(count, store)
        if "bare_per_s" in result:
            sets = max(result["sets_batch_per_s"], result["sets_64_per_s"])
            result |= {"of_bare": sets / result["bare_per_s"], "of_client": sets / result["client_per_s"]}
        return result | await measure_delivery(store.address)


async def measure_engine(count: int, store: Store) -> dict[str, Any]:
    """Without HTTP: what the engine and its store can do."""
    broker = InstantBroker()
    result: dict[str, Any] = {}
    async with running_engine(store.address, broker) as engine:
        result["rss_start_mb"] = memory_kb(os.getpid(), "VmRSS") / 1024 + store.server_rss_mb()
        result["sets_batch_per_s"] = await fill(engine, count, FAR_AWAY)
        result["rss_mb"] = memory_kb(os.getpid(), "VmRSS") / 1024 + store.server_rss_mb()
        result["disk_mb"] = sum(file.stat().st_size for file in store.folder.rglob("*") if file.is_file()) / 1024**2
        result["disk_bytes"] = result["disk_mb"] * 1024**2 / count
        result["rss_bytes"] = (result["rss_mb"] - result["rss_start_mb"]) * 1024**2 / count
        singles = min(count, SINGLES_MAX)
        result["sets_1_per_s"] = await set_all(engine, make_timers(singles // 10, FAR_AWAY), batch=1, waiting=1)
        timers = make_timers(singles, FAR_AWAY)
        result["sets_64_per_s"] = await set_all(engine, timers, batch=1, waiting=WAITING_AT_ONCE)
        result |= await sparse_lateness(engine, broker)
        result["fires_per_s"] = await drain(engine, broker, min(count, FIRES_MAX))
        result["rss_peak_mb"] = memory_kb(os.getpid(), "VmHWM") / 1024
    return result


COLUMNS = {
    "timers": "timers",
    "bare_per_s": "bare publishes/s",
    "of_bare": "sets/s of bare",
    "client_per_s": "the client's publishes/s",
    "of_client": "sets/s of the client's",
    "sets_1_per_s": "sets/s (1 caller)",
    "sets_64_per_s": "sets/s (64)",
    "sets_batch_per_s": "sets/s (of 500)",
    "fires_per_s": "fires/s",
    "http_per_s": "fires/s HTTP",
    "http_cpu_us": "CPU µs/fire HTTP",
    "in_1_s_p50_ms": "1,000 in 1 s p50 ms",
    "in_1_s_p99_ms": "1,000 in 1 s p99 ms",
    "steady_p50_ms": "500/s p50 ms",
    "steady_p99_ms": "500/s p99 ms",
    "late_p50_ms": "late p50 ms",
    "late_p99_ms": "late p99 ms",
    "rss_start_mb": "RSS empty MB",
    "rss_mb": "RSS MB",
    "rss_peak_mb": "RSS peak MB",
    "disk_mb": "disk MB",
    "disk_bytes": "disk B/timer",
    "rss_bytes": "RSS B/timer",
    "open_ms": "open ms",
}


def table(results: Sequence[dict[str, Any]]) -> str:
    """A line for each number, a column for each size."""
    measured = [name for name in COLUMNS if any(name in result for result in results)]
    rows = [[COLUMNS[name].strip(), *(cell(result[name]) for result in results)] for name in measured]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in rows)


def cell(number: float) -> str:
    return f"{number:,.{0 if number >= 100 else 1 if number >= 1 else 2}f}"


def in_own_process(count: int, engine_name: str = "sqlite") -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.benchmarks.bench_timers", "--engine", engine_name, "--one", str(count)]
    result: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", default="10000,100000,1000000", help="pending timers")
    parser.add_argument("--engine", choices=STORES, default="sqlite", help="the timer engine")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            print(json.dumps(uvloop.run(measure(options.one, options.engine, Path(folder)))))
        return
    results = []
    for count in options.counts.split(","):
        results.append(in_own_process(int(count), options.engine))
        print(json.dumps(results[-1]), file=sys.stderr, flush=True)
    print(table(results))
    text = json.dumps(results, indent=2)
    if options.json:
        options.json.write_text(text + "\n")
    else:
        print(text)


if __name__ == "__main__":
    main()
