"""What a timer engine delivers over HTTP: events a second, and how late each is.

The engine is in this process, with the publisher of `timers`; the target is a process of its own that does nothing.
"""

import asyncio
import json
import sys
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

import aiohttp

from shared.adapters.clock import SystemClock
from shared.adapters.config.settings import Settings
from shared.adapters.config.timers_address import parse_timers_address
from shared.adapters.events.publisher import HttpPublisher
from shared.bootstrap.timer_engine import build_timers
from shared.core.values.objects import ObjectRef
from shared.messages import Purpose, Timer
from shared.ports import DurableTimers, Publisher
from tests.benchmarks.lateness import percentile

BURST = 20_000
"""Timers that are due at one instant."""

PER_SECOND, STEADY_PER_SECOND, STEADY_SECONDS = 1_000, 500, 20
LEAD_SECONDS = 3.0
"""From the start of setting the timers to the first due time, at least."""

SLOWEST_SETS_PER_SECOND = 1_500

WAIT_SECONDS = 120.0
KINDS, NAMESPACES = ("Job", "Pod", "TrainJob"), 20
"""A kind may use half of the places, and a namespace of it a third: so what a cluster has is more than one."""


class Receiver:
    """The target in its own process."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/"

    async def report(self) -> dict[str, Any]:
        """What arrived since the last report."""
        async with aiohttp.ClientSession() as session, session.get(self.url) as answer:
            report: dict[str, Any] = json.loads(await answer.read())
            return report


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """The target, until the block ends."""
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "tests.benchmarks.noop_target")
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert process.stdin
    assert process.stdout
    try:
        yield Receiver(int(await process.stdout.readline()))
    finally:
        process.stdin.close()
        await process.wait()


@asynccontextmanager
async def running_engine(address: str, publisher: Publisher) -> AsyncIterator[DurableTimers]:
    """The engine of an address, until the block ends."""
    engine = build_timers(Settings(TTL_TIMERS=parse_timers_address(address)), SystemClock(), publisher)
    running = asyncio.create_task(engine.run())
    try:
        yield engine
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await engine.close()


async def measure_delivery(address: str) -> dict[str, float]:
    """The rate of a burst, and the lateness of timers that are due one after the other; other timers may be pending."""
    async with receiving() as receiver, AsyncExitStack() as stack:
        publisher = HttpPublisher(receiver.url, source="benchmark")
        stack.push_async_callback(publisher.close)
        started = time.perf_counter()
        engine = await stack.enter_async_context(running_engine(address, publisher))
        result = {"open_ms": (time.perf_counter() - started) * 1000}
        due_at = SystemClock().now() + _lead(BURST)
        cpu_seconds = time.process_time()
        report = await _deliver(engine, receiver, [due_at] * BURST)
        result["http_cpu_us"] = 1e6 * (time.process_time() - cpu_seconds) / BURST
        result["http_per_s"] = BURST / (report["last_at"] - due_at.timestamp())
        for name, per_second, seconds in (("in_1_s", PER_SECOND, 1), ("steady", STEADY_PER_SECOND, STEADY_SECONDS)):
            start = SystemClock().now() + _lead(per_second * seconds)
            due = [start + timedelta(seconds=number / per_second) for number in range(per_second * seconds)]
            late = (await _deliver(engine, receiver, due))["late_ms"]
            assert late[0] >= 0, f"fired {-late[0]} ms early"
            result |= {f"{name}_p50_ms": percentile(late, 50), f"{name}_p99_ms": percentile(late, 99)}
        return result


async def _deliver(engine: DurableTimers, receiver: Receiver, due: Sequence[datetime]) -> dict[str, Any]:
    """Set the timers, and wait until all have arrived."""
    others = await engine.pending()
    timers = [_timer(number, due_at) for number, due_at in enumerate(due)]
    for start in range(0, len(timers), 500):
        await engine.set(timers[start : start + 500])
    assert SystemClock().now() < due[0], "due before all were set: measure on a faster disk, or raise LEAD_SECONDS"
    await asyncio.sleep((due[-1] - SystemClock().now()).total_seconds())
    until = time.monotonic() + WAIT_SECONDS
    while await engine.pending() > others:
        assert time.monotonic() < until, "not all timers were delivered"
        await asyncio.sleep(0.05)
    report = await receiver.report()
    assert report["count"] >= len(due)
    return report


def _lead(count: int) -> timedelta:
    return timedelta(seconds=LEAD_SECONDS + count / SLOWEST_SETS_PER_SECOND)


def _timer(number: int, due_at: datetime) -> Timer:
    kind, namespace = KINDS[number % len(KINDS)], f"team-{number % NAMESPACES}"
    ref = ObjectRef("batch/v1", kind, namespace, f"nightly-build-{number:07}", str(uuid.uuid4()))
    return Timer.model_construct(ref=ref, purpose=Purpose.EXPIRE, due_at=due_at, attempts=0)
