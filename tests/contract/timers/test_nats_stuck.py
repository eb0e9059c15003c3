"""A fired timer that the servers would deliver to no process is set again.

A reset of the consumer makes what nats-server made in a cluster under load: a fired timer that no process has had, and
that counts as acknowledged.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.adapters.timers.nats import stuck
from shared.messages import Timer
from tests.contract.timers.nats_world import STREAM, answer, stored, world_of
from tests.contract.timers.worlds import World
from tests.nats_servers import NatsServer, nats_server

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stuck, "REMOVAL_SECONDS", 4.0)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NatsServer]:
    with nats_server(tmp_path / "nats") as server:
        yield server


async def strand(node: NatsServer, world: World, timers: list[Timer]) -> None:
    """Set timers that fire while no process runs, and let them count as acknowledged."""
    async with world.running() as engine:
        await engine.set(timers)
    await skip_fired(node, len(timers))


async def skip_fired(node: NatsServer, count: int = 1) -> None:
    """Wait until timers have fired, and let them count as acknowledged."""
    while sum(one.endswith(".fired") for one in await stored(node)) < count:
        await asyncio.sleep(0.1)
    last = (await answer(node, f"STREAM.INFO.{STREAM}"))["state"]["last_seq"]
    await answer(node, f"CONSUMER.RESET.{STREAM}.expire", {"seq": last + 1})
    state = await answer(node, f"CONSUMER.INFO.{STREAM}.expire")
    assert (state["ack_floor"]["stream_seq"], state["num_pending"]) == (last, 0)


async def until_empty(node: NatsServer) -> None:
    while await stored(node):
        await asyncio.sleep(0.1)


async def test_stuck_timers_arrive(node: NatsServer) -> None:
    world = world_of(node)
    timers = [world.timer(f"uid-{n}", 1.0) for n in range(stuck.SET_AT_ONCE + 10)]
    await strand(node, world, timers)
    async with world.running():
        await world.arrival(*(one.ref.uid for one in timers))
        await until_empty(node)
    assert {one.timer.ref.uid: one.timer for one in world.target.arrived} == {one.ref.uid: one for one in timers}


async def test_timers_of_a_live_engine_are_never_stuck(node: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches without a pause, in the middle of deliveries, set nothing again: each timer arrives once."""
    monkeypatch.setattr(stuck, "SEARCH_SECONDS", 0.0)
    monkeypatch.setattr(stuck, "REMOVAL_SECONDS", 2.0)
    world = world_of(node)
    timers = [world.timer(f"uid-{n}", 0.5 + n / 200) for n in range(1_000)]
    async with world.running() as engine:
        await engine.set(timers)
        await world.arrival(*(one.ref.uid for one in timers), seconds=60)
        await until_empty(node)
    assert {*world.target.count().values()} == {1}
