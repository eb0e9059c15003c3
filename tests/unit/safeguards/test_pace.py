"""The pace: how many deletions of a kind are in flight, while the API server is well, slow, or refuses with 429."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from itertools import cycle
from typing import Any

import pytest

from shared.adapters.kubernetes.transport import API_CONNECTIONS_MAX
from shared.errors import ConflictError, TryLaterError
from shared.safeguards.pace import (
    PAUSE_SECONDS_MAX,
    PERMIT_SECONDS_MAX,
    PERMITS_MAX,
    PERMITS_MIN,
    ROUND_MIN,
    SLOW_SECONDS,
    Pace,
    Window,
)
from shared.usecases.handler import ATTEMPT_SECONDS_MAX
from tests.builders import JOB, POD
from tests.fakes import FakeTelemetry
from tests.simulation.virtualloop import VirtualLoop

MOST = 16
FAST, SLOW = 0.02, SLOW_SECONDS + 0.5


def run(work: Coroutine[Any, Any, None]) -> None:
    loop = VirtualLoop(seed=1)
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()


def now() -> float:
    return asyncio.get_running_loop().time()


class Load:
    """Deletions that take so long, all at once, as a sweep with as many workers sends them."""

    def __init__(self, permits_max: int = MOST) -> None:
        self.telemetry = FakeTelemetry()
        self.pace = Pace(self.telemetry, permits_max)
        self.in_flight = self.peak = 0
        self.late: list[TryLaterError] = []
        self.namespaces = cycle(["a", "b", "c", "d"])

    async def delete(
        self, seconds: float, *, rule=JOB, namespace: str | None = None, error: Exception | None = None
    ) -> None:
        """Delete one object, by default of the next namespace."""
        try:
            async with self.pace.permit(rule, next(self.namespaces) if namespace is None else namespace):
                self.in_flight += 1
                self.peak = max(self.peak, self.in_flight)
                try:
                    with self.pace.timing(rule):
                        await asyncio.sleep(seconds)
                        if error:
                            raise error
                finally:
                    self.in_flight -= 1
        except TryLaterError as problem:
            self.late.append(problem)

    async def delete_many(self, count: int, seconds: float, **options: Any) -> None:
        self.peak = 0
        await asyncio.gather(*(self.delete(seconds, **options) for _ in range(count)))

    def permits(self, rule=JOB) -> int:
        return [permits for name, permits in self.telemetry.paces if name == rule.name][-1]


def in_virtual_time(test: Callable[[Load], Awaitable[None]]) -> Callable[[], None]:
    """Run a test with a fresh load on a loop whose clock jumps."""

    def wrapped() -> None:
        async def work() -> None:
            await test(Load())

        run(work())

    wrapped.__name__, wrapped.__doc__ = test.__name__, test.__doc__
    return wrapped


# While the API server is well


@in_virtual_time
async def test_pace_of_a_server_that_is_well_lets_all_permits_be_used(load):
    await load.delete_many(5 * MOST, FAST)
    assert (load.peak, load.permits()) == (MOST, MOST)


@in_virtual_time
async def test_pace_ignores_single_slow_deletes(load):
    slow = [load.delete(SLOW) for _ in range(MOST // 4)]
    await asyncio.gather(*slow, *(load.delete(FAST) for _ in range(100 * MOST)))
    assert load.permits() == MOST


@in_virtual_time
async def test_pace_ignores_one_or_two_slow_deletes_that_are_alone_in_flight(load):
    await load.delete(SLOW)
    await load.delete(SLOW)
    assert load.permits() == MOST

    await load.delete(SLOW)
    assert load.permits() == PERMITS_MIN


@in_virtual_time
async def test_pace_of_a_server_that_is_well_lets_one_namespace_use_all_permits(load):
    await load.delete_many(5 * MOST, FAST, namespace="a")
    assert (load.peak, load.permits()) == (MOST, MOST)


def test_pace_has_as_many_permits_as_connections():
    assert PERMITS_MAX == API_CONNECTIONS_MAX


def test_pace_leaves_half_of_an_attempt_to_the_work():
    assert PAUSE_SECONDS_MAX < PERMIT_SECONDS_MAX <= ATTEMPT_SECONDS_MAX / 2


# While the API server is slow


@in_virtual_time
async def test_pace_halves_the_permits_once_for_deletes_that_were_sent_together(load):
    await load.delete_many(MOST, SLOW)
    assert load.permits() == MOST // 2


@in_virtual_time
async def test_pace_falls_to_the_least_number_of_permits_and_goes_on(load):
    for _ in range(4):
        await load.delete_many(MOST, SLOW)
    assert load.permits() == PERMITS_MIN

    await load.delete_many(MOST, SLOW)

    assert (load.peak, load.late) == (PERMITS_MIN, [])


@in_virtual_time
async def test_pace_counts_a_failed_delete_as_slow(load):
    await load.delete_many(MOST, FAST, error=TryLaterError("the API server answered 503"))
    assert load.permits() == MOST // 2


@in_virtual_time
async def test_pace_counts_a_refused_delete_by_its_time(load):
    refused = (load.delete(FAST, error=ConflictError("409")) for _ in range(MOST))
    assert all(isinstance(one, ConflictError) for one in await asyncio.gather(*refused, return_exceptions=True))
    assert load.permits() == MOST


@in_virtual_time
async def test_pace_halves_what_was_used_and_not_what_was_allowed(load):
    await load.delete_many(12, SLOW)
    assert load.permits() == 6


@in_virtual_time
async def test_pace_of_one_kind_does_not_slow_another(load):
    await asyncio.gather(load.delete_many(5 * MOST, 5.0), load.delete_many(5 * MOST, FAST, rule=POD))
    assert load.permits(JOB) < MOST
    assert load.permits(POD) == MOST


@in_virtual_time
async def test_delete_without_a_permit_in_time_is_tried_later(load):
    await load.delete_many(MOST, SLOW)
    began_at = now()
    await load.delete_many(MOST, 60.0)

    assert now() - began_at == pytest.approx(60.0)
    assert len(load.late) == MOST // 2
    assert "the API server is slow: 8 deletions of jobs.batch may be in flight" in str(load.late[0])


@in_virtual_time
async def test_delete_of_a_kind_that_is_stuck_does_not_wait_until_a_permit_is_returned(load):
    hanging = asyncio.create_task(load.delete_many(2 * MOST, 60.0))
    await asyncio.sleep(PERMIT_SECONDS_MAX + 0.1)
    assert len(load.late) == MOST

    began_at = now()
    await load.delete(FAST)
    assert (now() - began_at, len(load.late)) == (0.0, MOST + 1)

    await hanging
    await load.delete(FAST)
    assert len(load.late) == MOST + 1


@in_virtual_time
async def test_cancelled_waiter_leaves_its_permit_to_the_next(load):
    running = [asyncio.create_task(load.delete(2.0)) for _ in range(MOST)]
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(load.delete(FAST)) for _ in range(2 * MOST)]
    await asyncio.sleep(1)
    for task in waiting[::2]:
        task.cancel()
    await asyncio.gather(*running, *waiting, return_exceptions=True)

    assert load.in_flight == 0
    assert [lane.window.in_flight for lane in load.pace._lanes.values()] == [0]
    await load.delete(FAST)


@in_virtual_time
async def test_delete_that_is_cancelled_at_the_end_of_the_process_counts_for_nothing(load):
    tasks = [asyncio.create_task(load.delete(SLOW)) for _ in range(MOST)]
    await asyncio.sleep(FAST)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert load.permits() == MOST


# Namespaces


@in_virtual_time
async def test_namespace_whose_webhook_hangs_leaves_permits_to_the_others(load):
    await load.delete_many(MOST, SLOW)
    hanging = asyncio.create_task(load.delete_many(300, 20.0, namespace="hangs"))
    await asyncio.sleep(PERMIT_SECONDS_MAX + 1)
    late = len(load.late)
    assert late == 300 - MOST // 4

    for _ in range(20):
        began_at = now()
        await load.delete(FAST, namespace="fine")
        assert now() - began_at == pytest.approx(FAST)
    assert len(load.late) == late
    await hanging


@in_virtual_time
async def test_namespace_that_is_stuck_does_not_wait_while_others_return_permits(load):
    await load.delete_many(MOST, SLOW)
    hanging = asyncio.create_task(load.delete_many(MOST, 20.0, namespace="hangs"))
    await asyncio.sleep(PERMIT_SECONDS_MAX + 1)
    await load.delete(FAST, namespace="fine")

    began_at, late = now(), len(load.late)
    await load.delete(FAST, namespace="hangs")
    assert (now() - began_at, len(load.late)) == (0.0, late + 1)

    await hanging
    await load.delete(FAST, namespace="hangs")
    assert len(load.late) == late + 1


@in_virtual_time
async def test_namespaces_that_wait_take_turns(load):
    await load.delete(FAST)
    (lane,) = load.pace._lanes.values()
    for _ in range(MOST):
        lane.enter("holds")
    waiters = {
        f"{one}{number}": lane.wait(one) for one, count in (("a", 4), ("b", 2), ("c", 1)) for number in range(count)
    }

    order = []
    while waiters:
        lane.leave("holds")
        lane.admit()
        (admitted,) = [name for name, waiter in waiters.items() if waiter.done()]
        order.append(admitted)
        del waiters[admitted]
    assert order == ["a0", "b0", "c0", "a1", "b1", "a2", "a3"]


@in_virtual_time
async def test_cluster_scoped_objects_have_no_share(load):
    await load.delete_many(MOST, SLOW, namespace="")
    await load.delete_many(MOST, SLOW, namespace="")
    assert load.peak == MOST // 2


@in_virtual_time
async def test_pace_forgets_namespaces_without_deletions(load):
    await asyncio.gather(*(load.delete(20.0, namespace=f"team-{n}") for n in range(10 * MOST)))
    assert len(load.late) == 9 * MOST
    (lane,) = load.pace._lanes.values()
    assert [len(lane._in_flight), len(lane._waiting), len(lane._stuck)] == [0, 0, 0]


# When the API server is well again


@in_virtual_time
async def test_pace_recovers_by_one_permit_a_round(load):
    await load.delete_many(MOST, SLOW)
    before = load.permits()

    await load.delete_many(before, FAST)
    assert load.permits() == before + 1

    await load.delete_many(MOST * MOST, FAST)
    assert load.permits() == MOST


@in_virtual_time
async def test_pace_recovers_under_a_light_load(load):
    await load.delete_many(MOST, SLOW)
    for _ in range(ROUND_MIN * MOST):
        await load.delete(FAST)
    assert load.permits() == MOST


# After a 429


BUSY = {"error": TryLaterError("the API server answered 429", retry_after_seconds=2.0, is_overload=True)}


@in_virtual_time
async def test_429_halves_the_permits_of_all_kinds(load):
    await load.delete_many(MOST, FAST, rule=POD)
    await load.delete_many(MOST, FAST, **BUSY)
    assert (load.permits(JOB), load.permits(POD)) == (MOST // 2, MOST // 2)


@in_virtual_time
async def test_429_pauses_all_kinds_for_retry_after(load):
    await load.delete(FAST, **BUSY)
    began_at = now()
    await asyncio.gather(load.delete(FAST), load.delete(FAST, rule=POD))
    assert now() - began_at == pytest.approx(2.0 + FAST)


@in_virtual_time
async def test_429_never_pauses_longer_than_the_bound(load):
    long = TryLaterError("the API server answered 429", retry_after_seconds=3600.0, is_overload=True)
    await load.delete(FAST, error=long)
    began_at = now()
    await load.delete(FAST)
    assert now() - began_at == pytest.approx(PAUSE_SECONDS_MAX + FAST)


@in_virtual_time
async def test_429_of_an_admission_webhook_slows_its_kind_only(load):
    await load.delete_many(MOST, FAST, rule=POD)
    await load.delete_many(MOST, FAST, error=TryLaterError("the API server answered 429: admission webhook ..."))
    assert (load.permits(JOB), load.permits(POD)) == (MOST // 2, MOST)


# The rule alone


def test_window_ignores_answers_to_deletes_from_before_the_decrease():
    window = Window(MOST)
    for _ in range(MOST):
        window.enter()
    for _ in range(MOST // 2 + 1):
        window.answered(0.0, 2.0, is_slow=True)
    assert window.permits == MOST // 2
    for _ in range(MOST):
        window.answered(1.9, 2.1, is_slow=True)
    assert window.permits == MOST // 2
