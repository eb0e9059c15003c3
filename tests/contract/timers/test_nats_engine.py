"""What only the NATS engine does: several processes share the timers, and the server may die."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import nats
import pytest

from shared.adapters.timers.nats.engine import NatsTimers
from shared.core.values.objects import ObjectRef
from shared.errors import EventError, TryLaterError
from shared.messages import Purpose, Timer
from tests.contract.timers.nats_world import STREAM, world_of
from tests.contract.timers.worlds import QUICK, Target, World, until
from tests.nats_servers import NatsServer, nats_server

TIME_TO_FILL = 3.0
"""In how many seconds a timer is due that fires in a full stream."""

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NatsServer]:
    with nats_server(tmp_path / "nats") as server:
        yield server


@pytest.fixture
def world(node: NatsServer) -> World:
    return world_of(node)


async def test_several_processes_share_the_timers(world: World) -> None:
    targets = [Target(world.clock) for _ in range(3)]
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(world.running())
        for target in targets:
            stack.enter_context(_running_beside(world, target))
        await first.set([world.timer(f"uid-{n}", 3, namespace=f"n{n % 20}") for n in range(3_000)])
        every = [world.target, *targets]
        await until(lambda: sum(len(one.arrived) for one in every) >= 3_000, "all arrivals", 60)
        await asyncio.sleep(0.5)
        counts = [len(one.arrived) for one in every]
        assert sum(counts) == 3_000
        assert min(counts) > 0


class _running_beside:  # noqa: N801 - a context manager
    """Another engine over the same store, with a target of its own."""

    def __init__(self, world: World, target: Target) -> None:
        self._engine = world.build(world.clock, target, QUICK)

    def __enter__(self):
        self._task = asyncio.create_task(self._engine.run())
        return self._engine

    def __exit__(self, *_) -> None:
        self._task.cancel()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it leaves its connection as it is
async def test_timers_of_a_process_that_vanished_are_delivered_by_another(node: NatsServer) -> None:
    world = world_of(node)
    lost = Target(world.clock)
    lost.hanging["Job"] = asyncio.Event()
    dead = world.build(world.clock, lost, QUICK)
    task = asyncio.create_task(dead.run())
    await dead.set([world.timer(f"uid-{n}") for n in range(20)])
    await until(lambda: len(lost.attempts) == 20, "hanging deliveries")
    assert isinstance(dead, NatsTimers)
    transport: Any = dead._connection._client._transport  # the process is gone: nothing is sent any more
    transport.write = transport.writelines = lambda *_: None
    async with world.running():
        await world.arrival(*(f"uid-{n}" for n in range(20)), seconds=40)
    task.cancel()


async def test_killed_server_loses_no_timer(node: NatsServer, world: World) -> None:
    timers = [world.timer(f"uid-{n}", n * 0.004, namespace=f"n{n % 10}") for n in range(2_000)]
    async with world.running() as engine:
        await engine.set(timers)
        await until(lambda: len(world.target.arrived) > 200, "some arrivals", 30)
        node.kill()
        with pytest.raises(TryLaterError):
            await engine.set([world.timer("uid-refused", 60)])
        await asyncio.sleep(1)
        node.start()
        await world.arrival(*(one.ref.uid for one in timers), seconds=60)
    print(f"duplicates {sum(world.target.count().values()) - 2_000}")


@pytest.mark.smoke
async def test_acknowledged_timer_survives_kill_9_of_the_server(node: NatsServer, world: World) -> None:
    timers = [world.timer(f"uid-{n}", 1 + n / 100) for n in range(50)]
    async with world.running() as engine:
        await engine.set(timers)
        node.kill()
    node.start()
    async with world.running():
        await world.arrival(*(one.ref.uid for one in timers))
    assert world.target.early() == []


async def test_timers_replaced_while_they_fire_are_not_lost(node: NatsServer, world: World) -> None:
    """With one subject for all due times of a timer, the server removes such replacements."""
    count = 6_000
    async with world.running(replace(QUICK, in_flight=4)) as engine:
        world.target.hanging["Job"] = asyncio.Event()
        timers = [world.timer(f"uid-{n}", 5) for n in range(count)]
        await engine.set(timers)
        due_at = timers[0].due_at
        await asyncio.sleep((due_at - world.clock.now()).total_seconds() - 0.4)
        later = [one.model_copy(update={"due_at": due_at + timedelta(hours=1)}) for one in timers]
        await asyncio.gather(*(engine.set(later[n : n + 100]) for n in range(0, count, 100)))
        world.target.hanging.pop("Job").set()
        await until(_settled(engine, count), "the end of the firings", 30)
        pending = {one.ref.uid: one.due_at for one in await _all(engine)}
    assert pending == {one.ref.uid: one.due_at for one in later}


async def test_timer_that_is_set_again_while_it_fires_is_delivered_after_that(world: World) -> None:
    """The server removes the schedule of the second set if the firing of the first one has begun."""
    timers = [world.timer(f"uid-{n}", 4.0) for n in range(400)]
    set_at: dict[str, datetime] = {}
    async with world.running() as engine:
        await engine.set(timers)
        await asyncio.sleep((timers[0].due_at - world.clock.now()).total_seconds() - 0.3)

        async def set_again(timer: Timer) -> None:
            set_at[timer.ref.uid] = world.clock.now()
            await engine.set([timer])

        for n in range(0, 400, 10):  # for longer than a tick of the server, before it and after it
            await asyncio.gather(*map(set_again, timers[n : n + 10]))
            await asyncio.sleep(0.02)
        await until(_settled(engine, 0), "the end of the firings")
    last = {one.timer.ref.uid: one.at for one in world.target.arrived}
    assert {uid for uid, at in set_at.items() if last[uid] < at} == set()


def _settled(engine, count: int):
    """Whether the stream has nothing but the pending timers."""

    async def look() -> bool:
        return await engine.pending() == count

    task: list[asyncio.Task[bool]] = [asyncio.ensure_future(look())]

    def settled() -> bool:
        if task[0].done():
            if task[0].result():
                return True
            task[0] = asyncio.ensure_future(look())
        return False

    return settled


async def _all(engine) -> list[Timer]:
    found: list[Timer] = []
    after = ""
    while True:
        page = await engine.page(after)
        found += page.timers
        if not (after := page.after):
            return found


async def test_stalled_timers_beyond_the_room_of_a_process_delay_no_other(world: World) -> None:
    async with world.running() as engine:
        gate = world.target.hanging["Pod"] = asyncio.Event()
        await engine.set([world.timer(f"pod-{n}", kind="Pod") for n in range(2_500)])
        await until(lambda: len(world.target.attempts) >= 10, "hanging deliveries")
        await engine.set([world.timer("uid-1")])
        await world.arrival("uid-1", seconds=15)
        assert await engine.pending() >= 2_500  # more for the moment in which a timer is set again
        world.target.hanging.pop("Pod")
        gate.set()
        await world.arrival(*(f"pod-{n}" for n in range(2_500)), seconds=90)


async def test_full_stream_refuses_timers_and_still_fires(node: NatsServer) -> None:
    world = world_of(node, bytes_max=1024 * 1024)
    async with world.running() as engine:
        world.target.errors["Pod"] = TryLaterError("away")
        await engine.set([world.timer("pod", TIME_TO_FILL, kind="Pod")])
        stored = 0
        with suppress(TryLaterError):
            while stored < 10_000:
                await engine.set([world.timer(f"uid-{stored + n}", 3600) for n in range(100)])
                stored += 100
        with pytest.raises(TryLaterError, match="TTL_NATS_BYTES"):
            await engine.set([world.timer(f"other-{n}", 3600) for n in range(100)])
        assert 1_000 < stored < 10_000
        await until(lambda: len(world.target.attempts) >= 2, "a retry of the timer that fired")
        assert stored < await engine.pending() <= stored + 2  # the retry is stored before the ack


async def test_reference_that_is_too_long_is_refused_for_good(world: World) -> None:
    async with world.running() as engine:
        timer = world.timer("uid-1")
        huge = timer.model_copy(update={"ref": ObjectRef("batch/v1", "Job", "ci", "x" * 1_000_000, "uid-1")})
        with pytest.raises(EventError, match="bytes"):
            await engine.set([huge])


@pytest.mark.parametrize("uid", ["a.b*c>d e", "ü(ß", "x" * 490, "=", "0f8c-11"], ids=range(5))
async def test_any_uid_is_a_key(world: World, uid: str) -> None:
    async with world.running() as engine:
        await engine.set([world.timer(uid, 60)])
        await engine.set([world.timer(uid, 60, purpose=Purpose.ARCHIVE)])
        await engine.set([world.timer(uid, 0.1)])
        await world.arrival(uid)
        await until(_settled(engine, 2), "the ack")


async def test_kubernetes_uid_stays_readable_in_the_subject(node: NatsServer, world: World) -> None:
    uid = "8c7e1f4a-0b1d-4c53-9a51-1f3f0a8f3c55"
    async with world.running() as engine:
        await engine.set([world.timer(uid, 60)])
        client = await nats.connect(node.url)
        info = await client.jetstream().stream_info(STREAM, subjects_filter=f"{STREAM}.expire.{uid}.pending.*")
        await client.close()
        assert len(info.state.subjects or {}) == 1


async def test_message_of_another_program_is_dropped_with_a_log_line(
    node: NatsServer, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.running() as engine:
        await engine.pending()
        client = await nats.connect(node.url)
        await client.jetstream().publish(f"{STREAM}.expire.uid-1.fired", b"no timer")
        await client.close()
        await engine.set([world.timer("uid-2")])
        await world.arrival("uid-2")
        await asyncio.sleep(0.3)
        assert await engine.pending() == 0
    assert any(record.message == "fired message dropped" for record in caplog.records)
