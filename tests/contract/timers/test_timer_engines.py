"""What every timer engine does, whatever it stores timers in."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shared.core.values.timing import backoff_seconds
from shared.errors import PermanentError, TryLaterError
from shared.messages import Proof, Purpose, Timer
from shared.ports import DurableTimers, TimerFilter
from tests.builders import NOW
from tests.contract.timers.cloudtasks_world import cloudtasks
from tests.contract.timers.nats_world import nats
from tests.contract.timers.worlds import QUICK, Engine, World, memory, sqlite, until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

TIME_TO_CHANGE = 3.0
"""In how many seconds a timer is due that a test sets again before then, also on a busy machine."""

ENGINES: dict[str, Engine] = {"memory": memory, "sqlite": sqlite, "cloudtasks": cloudtasks, "nats": nats}


@pytest.fixture(params=ENGINES)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with ENGINES[request.param](tmp_path) as world:
        yield world
        assert world.target.early() == []


async def pages(engine: DurableTimers, limit: int = 500, wanted: TimerFilter | None = None) -> list[Timer]:
    """All pending timers, page by page."""
    found: list[Timer] = []
    after = ""
    while True:
        page = await engine.page(after, limit=limit, wanted=wanted or TimerFilter())
        found += page.timers
        if not (after := page.after):
            return found


async def until_pending(engine: DurableTimers, count: int) -> None:
    """Wait until the results of deliveries are stored."""
    async with asyncio.timeout(60):
        while await engine.pending() != count:
            await asyncio.sleep(0.01)


async def pass_due_time(world: World, engine: DurableTimers, seconds: float = 0.5) -> None:
    """Wait until a timer that is set now has arrived: a timer that was due before would have arrived too."""
    await engine.set([world.timer("later", seconds)])
    await world.arrival("later")


def arrived(world: World, uid: str) -> list[Timer]:
    """The timers of an object that arrived and were accepted."""
    return [one.timer for one in world.target.arrived if one.timer.ref.uid == uid]


@pytest.mark.smoke
async def test_timer_fires_once_after_it_is_due(world: World) -> None:
    async with world.running() as engine:
        timer = world.timer("uid-1", 0.5)
        await engine.set([timer])
        await world.arrival("uid-1")
        await until_pending(engine, 0)
        assert [one.timer for one in world.target.arrived] == [timer]
        assert world.target.early() == []


async def test_overdue_timer_fires_at_once(world: World) -> None:
    async with world.running() as engine:
        await engine.set([world.timer("uid-1", -3600)])
        await world.arrival("uid-1")


@pytest.mark.parametrize(
    ("first", "second"),
    [(TIME_TO_CHANGE, TIME_TO_CHANGE + 1), pytest.param(3600.0, 0.5, marks=pytest.mark.smoke)],
    ids=["later", "earlier"],
)
async def test_newest_timer_fires(world: World, first: float, second: float) -> None:
    async with world.running() as engine:
        await engine.set([world.timer("uid-1", first)])
        newest = world.timer("uid-1", second)
        await engine.set([newest])
        await until(lambda: newest in arrived(world, "uid-1"), "the newest timer")


async def test_first_timer_fires_that_is_set_again_after_another_one(world: World) -> None:
    async with world.running() as engine:
        timer, other = world.timer("uid-1", 1.0), world.timer("uid-1", 3600)
        for one in (timer, other, timer):
            await engine.set([one])
        await until(lambda: timer in arrived(world, "uid-1"), "the timer")


@pytest.mark.parametrize("error", [None, TryLaterError("away")], ids=["accepted", "refused"])
async def test_timer_that_is_set_during_a_delivery_outlives_it(world: World, error: TryLaterError | None) -> None:
    async with world.running() as engine:
        gate = world.target.hanging["Job"] = asyncio.Event()
        await engine.set([world.timer("uid-1")])
        await until(lambda: world.target.attempts, "the delivery that hangs")
        later = world.timer("uid-1", 1.5)
        await engine.set([later])
        del world.target.hanging["Job"]
        if error:
            world.target.errors["Job"] = error
        gate.set()
        await asyncio.sleep(0.3)
        world.target.errors.clear()
        await until(lambda: later in arrived(world, "uid-1"), "the later timer")


async def test_last_timer_of_one_set_wins(world: World) -> None:
    async with world.running() as engine:
        last = world.timer("uid-1", 0.3)
        await engine.set([world.timer("uid-1", 0.1), world.timer("uid-1", 60), last])
        await world.arrival("uid-1")
        assert [one.timer for one in world.target.arrived] == [last]


async def test_same_timer_set_twice_fires_once(world: World) -> None:
    async with world.running() as engine:
        timer = world.timer("uid-1", TIME_TO_CHANGE)
        await asyncio.gather(*(engine.set([timer]) for _ in range(5)))
        await world.arrival("uid-1")
        await pass_due_time(world, engine)
        assert world.target.count()["uid-1"] == 1


async def test_purposes_of_one_object_have_their_own_timers(world: World) -> None:
    async with world.running() as engine:
        await engine.set([world.timer("uid-1", 0.5, purpose=purpose) for purpose in Purpose])
        await until(lambda: {one.purpose for one in arrived(world, "uid-1")} == {*Purpose}, "an arrival of each")


async def test_timer_in_years_is_kept_as_it_is(world: World) -> None:
    async with world.running() as engine:
        due = [datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), world.clock.now() + timedelta(days=400)]
        timers = [world.timer(f"uid-{n}").model_copy(update={"due_at": one}) for n, one in enumerate(due)]
        await engine.set(timers)
        await pass_due_time(world, engine)
        await until_pending(engine, 2)
        assert {one.timer.ref.uid for one in world.target.attempts} == {"later"}
        assert {one.ref.uid: one.due_at for one in await pages(engine)} == {"uid-0": due[0], "uid-1": due[1]}


async def test_clock_set_back_delays_timers(world: World) -> None:
    async with world.running() as engine:
        timer = world.timer("uid-1", 2.5)
        await engine.set([timer])
        world.clock.shift = timedelta(seconds=-6)
        await pass_due_time(world, engine, 3.5)
        assert {one.timer.ref.uid for one in world.target.attempts} == {"later"}
        world.clock.shift = timedelta()
        await world.arrival("uid-1", seconds=20)


async def test_clock_set_forward_makes_no_timer_early_or_lost(world: World) -> None:
    async with world.running() as engine:
        await engine.set([world.timer("uid-1", 1.5)])
        world.clock.shift = timedelta(hours=1)
        await world.arrival("uid-1")


async def test_refused_delivery_is_retried_with_back_off(world: World) -> None:
    async with world.running() as engine:
        world.target.errors["Job"] = TryLaterError("away")
        await engine.set([world.timer("uid-1")])
        await until(lambda: len(world.target.attempts) == 2, "the second attempt")
        world.target.errors.clear()
        await world.arrival("uid-1")
        first, second, third = (one.at for one in world.target.attempts)
        assert second - first >= timedelta(seconds=0.75 * backoff_seconds(0))
        assert third - second >= timedelta(seconds=0.75 * backoff_seconds(1))
        assert [one.timer.attempts for one in world.target.attempts] == [0, 1, 2]


async def test_timer_with_failed_attempts_waits_for_its_back_off(world: World) -> None:
    async with world.running() as engine:
        await asyncio.sleep(0.3)  # the engine has started
        set_at = world.clock.now()
        await engine.set([world.timer("uid-1", attempts=1), world.timer("uid-2")])
        await world.arrival("uid-1", "uid-2")
        at = {one.timer.ref.uid: one.at for one in world.target.arrived}
        assert at["uid-1"] - set_at >= timedelta(seconds=0.5 * backoff_seconds(0))


async def test_refused_timer_is_kept_and_delays_no_other(world: World) -> None:
    """What can never be delivered is kept with the longest back-off: its reason may be fixed."""
    async with world.running() as engine:
        world.target.errors["Pod"] = PermanentError("no right")
        await engine.set([world.timer(f"pod-{n}", kind="Pod") for n in range(100)])
        await engine.set([world.timer("uid-1", 0.5)])
        await world.arrival("uid-1")
        await until(lambda: len(world.target.attempts) >= 101, "an attempt for each", 30)
        await until_pending(engine, 100)


async def test_target_that_hangs_delays_no_other(world: World) -> None:
    async with world.running() as engine:
        world.target.hanging["Pod"] = asyncio.Event()
        await engine.set([world.timer(f"pod-{n}", kind="Pod") for n in range(300)])
        await until(lambda: len(world.target.attempts) >= 10, "hanging deliveries")
        await engine.set([world.timer("uid-1"), world.timer("uid-2", purpose=Purpose.ENFORCE)])
        await world.arrival("uid-1", "uid-2")
        world.target.hanging.pop("Pod").set()
        await world.arrival(*(f"pod-{n}" for n in range(300)), seconds=30)


async def test_pages_have_each_pending_timer_once(world: World) -> None:
    async with world.running() as engine:
        timers = [world.timer(f"uid-{n:03}", 3600 + n) for n in range(57)]
        await engine.set(timers)
        found = await pages(engine, limit=10)
        assert sorted(found, key=lambda one: one.ref.uid) == timers
        assert await engine.pending() == 57


async def test_pages_have_only_the_wanted_timers(world: World) -> None:
    async with world.running() as engine:
        await engine.set(
            [
                world.timer("uid-1", 60),
                world.timer("uid-2", 60, kind="Pod"),
                world.timer("uid-3", 60, namespace="web"),
                world.timer("uid-4", 60, purpose=Purpose.ENFORCE),
                world.timer("uid-5", 7200),
            ]
        )
        for wanted, uids in {
            TimerFilter(kind="Pod"): {"uid-2"},
            TimerFilter(namespace="web"): {"uid-3"},
            TimerFilter(purpose=Purpose.ENFORCE): {"uid-4"},
            TimerFilter(due_by=world.clock.now() + timedelta(hours=1)): {"uid-1", "uid-2", "uid-3", "uid-4"},
            TimerFilter(kind="Job", namespace="ci", purpose=Purpose.EXPIRE): {"uid-1", "uid-5"},
        }.items():
            assert {one.ref.uid for one in await pages(engine, limit=2, wanted=wanted)} == uids, wanted


async def test_position_of_another_engine_is_an_error(world: World) -> None:
    async with world.running() as engine:
        with pytest.raises(ValueError, match="position"):
            await engine.page("not a position")


async def test_next_due_is_known_where_the_engine_knows_it(world: World) -> None:
    async with world.running() as engine:
        assert await engine.next_due() is None
        timer = world.timer("uid-1", 60)
        await engine.set([timer, world.timer("uid-2", 120)])
        assert await engine.next_due() == (timer.due_at if world.knows_next_due else None)


async def test_next_due_of_an_overdue_timer_is_in_the_past(world: World) -> None:
    async with world.running(replace(QUICK, in_flight=1)) as engine:
        world.target.hanging["Job"] = asyncio.Event()
        await engine.set([world.timer("uid-1")])
        await until(lambda: world.target.attempts, "the delivery")
        due_at = await engine.next_due()
        assert due_at is not None
        assert due_at <= world.clock.now()


async def test_stopped_engine_lets_deliveries_end(world: World) -> None:
    async with world.running() as engine:
        world.target.hanging["Job"] = asyncio.Event()
        await engine.set([world.timer("uid-1")])
        await until(lambda: world.target.attempts, "the delivery")
    assert world.target.count() == {"uid-1": 1}
    async with world.running() as engine:
        await pass_due_time(world, engine)
        await until_pending(engine, 0)
    assert world.target.count() == {"uid-1": 1, "later": 1}


@pytest.mark.smoke
async def test_next_process_has_all_timers(world: World) -> None:
    timers = [world.timer(f"uid-{n}", 2 + n / 100) for n in range(50)]
    async with world.running() as engine:
        await engine.set(timers)
    before = {one.timer.ref.uid for one in world.target.attempts}  # none, unless the machine is slow
    async with world.running() as engine:
        await world.arrival(*(one.ref.uid for one in timers))
        await until_pending(engine, 0)
    assert {world.target.count()[one.ref.uid] for one in timers if one.ref.uid not in before} <= {1}


async def test_overdue_timers_fire_after_a_restart_within_the_limit(world: World) -> None:
    timers = [world.timer(f"uid-{n:03}", 2.5 + n / 1000, namespace=f"n{n % 40}") for n in range(200)]
    async with world.running() as engine:
        await engine.set(timers)
    before = len(world.target.attempts)  # none, unless the machine is slow
    await until(lambda: world.clock.now() > timers[-1].due_at, "the last due time")
    gate = world.target.hanging["Job"] = asyncio.Event()
    async with world.running():
        await until(lambda: len(world.target.attempts) > before, "the first deliveries")
        await asyncio.sleep(0.5)
        assert len(world.target.attempts) - before <= QUICK.in_flight
        gate.set()
        await world.arrival(*(one.ref.uid for one in timers), seconds=30)


async def test_oldest_overdue_timer_starts_first_after_a_restart(world: World) -> None:
    apart = 0.3  # longer than a tick of a NATS server
    timers = [world.timer(f"uid-{n:02}", 1.5 + n * apart) for n in range(12)]
    async with world.running() as engine:
        await engine.set(random.Random(4).sample(timers, len(timers)))
    before = len(world.target.attempts)  # none, unless the machine is slow
    await until(lambda: world.clock.now() > timers[-1].due_at + world.resolution, "the last due time")
    async with world.running(replace(QUICK, in_flight=1)):
        await world.arrival(*(one.ref.uid for one in timers), seconds=30)
    started = [one.timer for one in world.target.attempts[before:]]
    if world.keeps_order:
        assert started == timers[before:]
    assert {one.ref.uid for one in started} | {one.timer.ref.uid for one in world.target.attempts[:before]} == {
        one.ref.uid for one in timers
    }


async def test_newest_timer_fires_if_another_process_sets_it(world: World) -> None:
    async with world.running() as engine:
        await engine.set([world.timer("uid-1", 2 * TIME_TO_CHANGE)])
    async with world.running() as engine:
        newest = world.timer("uid-1", 0.5)
        await engine.set([newest])
        await until(lambda: newest in arrived(world, "uid-1"), "the newest timer")


async def test_many_sets_at_once_are_all_stored(world: World) -> None:
    async with world.running() as engine:
        timers = [world.timer(f"uid-{n}", 3600) for n in range(2_000)]
        await asyncio.gather(*(engine.set(timers[n : n + 50]) for n in range(0, 2_000, 50)))
        assert await engine.pending() == 2_000


@pytest.mark.smoke
async def test_closed_engine_refuses_to_store(world: World) -> None:
    async with world.running() as engine:
        await engine.set([world.timer("uid-1", 60)])
    with pytest.raises(TryLaterError):
        await engine.set([world.timer("uid-2", 60)])


async def test_traceparent_of_a_timer_survives_a_restart_and_is_its_own(world: World) -> None:
    traces = [f"00-{digit * 32}-{digit * 16}-01" for digit in "ab"]
    first, second = (
        world.timer("uid-1", seconds).model_copy(update={"traceparent": one})
        for seconds, one in zip((2.0, 3.0), traces, strict=True)  # in one second, they may be one timer
    )
    async with world.running() as engine:
        await engine.set([first])
        await engine.set([second])
    async with world.running():
        await until(lambda: second in arrived(world, "uid-1"), "the newest timer")
    traced = {(one.due_at, one.traceparent) for one in arrived(world, "uid-1")}
    assert traced <= {(one.due_at, one.traceparent) for one in (first, second)}


async def test_proof_of_a_timer_survives_a_restart(world: World) -> None:
    plain, proof = world.timer("uid-1", 2.0), Proof(resource_version="7", due_at=NOW, signature="a" * 64)
    timer = plain.model_copy(update={"proof": proof})
    async with world.running() as engine:
        await engine.set([timer])
        assert await pages(engine) == [timer]
    async with world.running():
        await world.arrival("uid-1")
    assert [one.timer for one in world.target.arrived] == [timer]
