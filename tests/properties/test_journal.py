"""The journal: however many deletions come when, few Events are written, and each deletion is accounted for."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.adapters.kubernetes.journal import JournalLimits
from shared.core.policy.limits import Rate
from shared.errors import ForbiddenError, TryLaterError
from shared.ports import JournalResult
from tests.journals import Bench, entry
from tests.simulation.virtualloop import VirtualLoop

STEPS = st.lists(
    st.tuples(st.floats(0, 200), st.integers(1, 60), st.sampled_from(["a", "b", "c", "d"])), min_size=1, max_size=30
)
"""A pause in seconds, then so many deletions in a namespace."""


def events_max(limits: JournalLimits, seconds: float) -> float:
    """The maximum number of Events that a process writes in some time, in seconds."""
    of_objects = [limits.of_process, limits.of_process, limits.of_refusals]
    singles = sum(one.burst + one.per_second * seconds for one in of_objects)
    return singles + limits.sums_max * (seconds // limits.sum_seconds + 1)


def in_virtual_time(play: Callable[[], Coroutine[Any, Any, Bench]]) -> Bench:
    """No write is late, however busy the machine is."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(0)) as runner:
        return runner.run(play())


@settings(deadline=None, max_examples=50)
@given(STEPS, st.integers(1, 10), st.integers(1, 30), st.integers(1, 3), st.integers(1, 20))
def test_number_of_events_is_bounded_and_each_deletion_is_recorded_counted_or_dropped(
    steps, of_kind, of_process, sums_max, waiting_max
):
    limits = {
        "of_kind": Rate(per_second=0.1, burst=of_kind),
        "of_process": Rate(per_second=0.5, burst=of_process),
        "sums_max": sums_max,
        "waiting_max": waiting_max,
    }

    async def play() -> Bench:
        bench = Bench(**limits)
        for step, (pause, count, namespace) in enumerate(steps):
            bench.now += pause
            for number in range(count):
                bench.journal.note(entry(f"{step}-{number}", namespace))
            for _ in range(60):  # the writer gets some turns
                await asyncio.sleep(0)
        await bench.journal.flush()
        return bench

    bench = in_virtual_time(play)
    assert bench.telemetry.journal.total() == sum(count for _, count, _ in steps)
    assert bench.cluster.writes <= events_max(bench.limits, bench.now)
    counted = sum(event.get("series", {}).get("count", 1) for event in bench.events)
    assert counted == sum(bench.telemetry.journal[one] for one in (JournalResult.RECORDED, JournalResult.COUNTED))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from([ForbiddenError("no"), TryLaterError("busy")]), max_size=40), st.integers(1, 60))
def test_each_deletion_is_accounted_for_if_writes_fail(failures, count):
    async def play() -> Bench:
        bench = Bench(*failures, of_kind=Rate(per_second=0.1, burst=10))
        for number in range(count):
            bench.journal.note(entry(str(number)))
        await bench.journal.flush(0.05)
        return bench

    bench = in_virtual_time(play)
    assert bench.telemetry.journal.total() == count
