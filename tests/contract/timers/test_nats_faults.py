"""What the NATS engine does if the stream or a consumer is deleted, or another server is restarted."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest

from shared.adapters.timers.nats.connection import AbsentJetStreamError
from shared.adapters.timers.nats.engine import NatsTimers
from tests.contract.timers.nats_world import STREAM, world_of
from tests.contract.timers.worlds import QUICK, Target, World
from tests.nats_servers import NatsServer, nats_cluster, nats_server

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


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
