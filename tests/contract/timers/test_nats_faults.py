"""What the NATS engine does if the stream or a consumer is deleted, and if servers differ for a moment."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import nats
import pytest

from shared.adapters.timers.nats import heads as heads_module
from shared.adapters.timers.nats.connection import StreamMessage
from shared.adapters.timers.nats.heads import Heads, Standing
from shared.adapters.timers.nats.subjects import subjects_of
from shared.messages import TimerKey
from tests.contract.timers.nats_world import STREAM, world_of
from tests.contract.timers.worlds import QUICK, Target, World, until
from tests.nats_servers import NatsServer, nats_server

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

KEY = subjects_of(STREAM, TimerKey("uid-1", "expire"))
OWN, OTHER = KEY.pending("own"), KEY.pending("other")


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
        await engine.set([world.timer("cancelled"), world.timer("replaced")])
        await asyncio.sleep(1.0)  # both have fired, and wait for a place
        await engine.cancel([TimerKey("cancelled", "expire")])
        replacement = world.timer("replaced", 1.0)
        await engine.set([replacement])
        await asyncio.sleep(3.0)  # the cancellation and the replacement have fired
        world.target.hanging.pop("Job").set()
        await world.arrival("blocker", "replaced")
        await asyncio.sleep(1.0)
        arrived = {one.timer.ref.uid: one.timer for one in world.target.arrived}
        assert arrived.keys() == {"blocker", "replaced"}
        assert arrived["replaced"] == replacement
        assert world.target.count()["replaced"] == 1


@pytest.mark.parametrize(
    ("newest", "head", "standing"),
    [
        ((KEY.fired, 7), None, Standing.CURRENT),
        ((OWN, 5), OWN, Standing.CURRENT),  # the leader has not stored the firing yet
        ((KEY.fired, 7), OWN, Standing.CURRENT),  # it has not removed the schedule yet
        ((KEY.fired, 7), OTHER, Standing.REPLACED),  # the firing had begun when the replacement was stored
        ((OTHER, 8), OTHER, Standing.REPLACED),
        ((KEY.fired, 9), None, Standing.REPLACED),
        (None, None, Standing.UNKNOWN),
        ((KEY.fired, 3), None, Standing.UNKNOWN),
    ],
)
async def test_fired_timer_is_dropped_only_for_what_replaced_it(
    newest: tuple[str, int] | None, head: str | None, standing: Standing
) -> None:
    class Leader:
        async def last(self, subject: str) -> StreamMessage | None:
            if subject == KEY.every:
                return StreamMessage(*newest) if newest else None
            return StreamMessage(head, 1) if head else None

    connection: Any = Leader()
    assert await Heads(connection).standing(KEY, 7, OWN) is standing
