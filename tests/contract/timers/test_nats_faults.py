"""What the NATS engine does if the stream or a consumer is deleted, and if servers differ for a moment."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import nats
import pytest

from shared.adapters.timers.nats import heads as heads_module
from shared.adapters.timers.nats.acks import AbsentJetStreamError
from shared.adapters.timers.nats.connection import StreamMessage
from shared.adapters.timers.nats.engine import NatsTimers
from shared.adapters.timers.nats.heads import Heads, Standing
from shared.adapters.timers.nats.records import SCHEDULER_HEADER
from shared.adapters.timers.nats.subjects import subjects_of
from shared.messages import TimerKey
from tests.contract.timers.nats_world import STREAM, world_of
from tests.contract.timers.worlds import QUICK, ShiftedClock, Target, World, until
from tests.nats_servers import NatsServer, nats_cluster, nats_server

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

KEY = subjects_of(STREAM, TimerKey("uid-1", "expire"))
NOW = datetime(2030, 1, 1, tzinfo=UTC)
OLDER, OWN, NEWER, CANCELLED = KEY.pending(4), KEY.pending(5), KEY.pending(6), KEY.cancelled(6)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NatsServer]:
    with nats_server(tmp_path / "nats") as server:
        yield server


@pytest.fixture
def world(node: NatsServer) -> World:
    return world_of(node)


async def test_deleted_consumer_is_made_again(node: NatsServer, world: World) -> None:
    async with world.running() as engine:
        await engine.set([world.timer("before")])
        await world.arrival("before")
        client = await nats.connect(node.url)
        await client.jetstream().delete_consumer(STREAM, "expire")
        await engine.set([world.timer("after")])
        await world.arrival("after", seconds=30)
        await client.close()


async def test_timers_fire_after_a_restart_of_another_server_than_the_connected_one(tmp_path: Path) -> None:
    """The process keeps its connection, and loses only its request for fired timers."""
    with nats_cluster(tmp_path) as servers:
        for connected in servers:
            world = world_of(connected)
            async with world.running() as engine:
                assert isinstance(engine, NatsTimers)
                await _set_once_elected(engine, world)
                leader = (await engine._connection.api(f"STREAM.INFO.{STREAM}"))["cluster"]["leader"]
                if leader == connected.folder.name:
                    continue
                killed = next(one for one in servers if one.folder.name == leader)
                killed.kill()
                await asyncio.sleep(1)
                killed.start(wait=False)
                await world.arrival("uid-1", seconds=60)
                return


async def _set_once_elected(engine: NatsTimers, world: World) -> None:
    """Set a timer as a sender does that tries again: the new stream has no leader yet."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await engine.set([world.timer("uid-1", 8)])
            except AbsentJetStreamError:
                await asyncio.sleep(0.2)


async def test_timers_of_a_stream_that_was_made_again_fire(node: NatsServer, world: World) -> None:
    """Its sequences begin again, and are not those of the timers that were delivered before."""
    async with world.running() as engine:
        await engine.set([world.timer(f"before-{n}") for n in range(4)])
        await world.arrival(*(f"before-{n}" for n in range(4)))
        client = await nats.connect(node.url)
        await client.jetstream().delete_stream(STREAM)
        beside = world.build(world.clock, Target(world.clock), QUICK)
        await beside.open(creates=True)  # type: ignore[attr-defined]
        await beside.close()
        await engine.set([world.timer(f"after-{n}") for n in range(4)])
        await world.arrival(*(f"after-{n}" for n in range(4)), seconds=30)
        await client.close()


async def test_timer_that_waits_is_not_delivered_after_what_replaced_it_has_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads_module, "CANCELLED_FOR", timedelta(seconds=1))
    async with world.running(replace(QUICK, in_flight=2)) as engine:
        world.target.hanging["Job"] = asyncio.Event()
        await engine.set([world.timer("blocker")])
        await until(lambda: world.target.attempts, "the delivery that hangs")
        await engine.set([world.timer("replaced")])
        await asyncio.sleep(1.0)  # it has fired, and waits for a place
        replacement = world.timer("replaced", 1.0)
        await engine.set([replacement])
        await asyncio.sleep(3.0)  # the replacement has fired
        world.target.hanging.pop("Job").set()
        await world.arrival("blocker", "replaced")
        await asyncio.sleep(1.0)
        arrived = {one.timer.ref.uid: one.timer for one in world.target.arrived}
        assert arrived.keys() == {"blocker", "replaced"}
        assert arrived["replaced"] == replacement
        assert world.target.count()["replaced"] == 1


def fired(sequence: int, schedule: str) -> StreamMessage:
    """The message of a schedule that fired."""
    return StreamMessage(KEY.fired, sequence, headers={SCHEDULER_HEADER: schedule})


@pytest.mark.parametrize(
    ("messages", "standing"),
    [
        ([fired(7, OWN)], Standing.CURRENT),
        ([StreamMessage(OWN, 5)], Standing.CURRENT),  # the leader has not stored the firing yet
        ([StreamMessage(OWN, 5), fired(7, OWN)], Standing.CURRENT),  # it has not removed the schedule yet
        ([StreamMessage(OLDER, 3), fired(7, OWN)], Standing.CURRENT),  # a server brought back what it had replaced
        ([fired(7, OWN), fired(9, OLDER)], Standing.CURRENT),  # and fired it later
        ([fired(6, OLDER), fired(7, OWN), fired(9, OLDER)], Standing.CURRENT),
        ([StreamMessage(NEWER, 6), fired(7, OWN)], Standing.REPLACED),  # the firing had begun when it was replaced
        ([StreamMessage(CANCELLED, 6), fired(7, OWN)], Standing.REPLACED),
        ([fired(6, NEWER), fired(7, OWN)], Standing.REPLACED),  # this one is what a server brought back
        ([fired(6, CANCELLED), fired(7, OWN)], Standing.REPLACED),
        ([fired(4, OLDER), fired(6, NEWER), fired(7, OWN)], Standing.REPLACED),
        ([fired(7, OWN), StreamMessage(NEWER, 8)], Standing.REPLACED),
        ([fired(7, OWN), StreamMessage(OLDER, 8)], Standing.REPLACED),  # set later, by a clock that is behind
        ([fired(7, OWN), fired(9, OWN)], Standing.REPLACED),  # a server was killed in the middle of the firing
        ([], Standing.UNKNOWN),
        ([fired(3, OLDER)], Standing.UNKNOWN),
        ([fired(9, OLDER)], Standing.UNKNOWN),
    ],
)
async def test_fired_timer_is_dropped_only_for_what_replaced_it(
    messages: list[StreamMessage], standing: Standing
) -> None:
    class Leader:
        async def first(self, subject: str, sequence: int) -> StreamMessage | None:
            return next((one for one in messages if one.subject == subject and one.sequence >= sequence), None)

        async def last(self, subjects: str) -> StreamMessage | None:
            is_fired = subjects == KEY.fired
            return next((one for one in reversed(messages) if (one.subject == KEY.fired) is is_fired), None)

    connection: Any = Leader()
    assert await Heads(connection, ShiftedClock()).standing(KEY, 7, OWN) is standing
