"""A share (a kind in a namespace) with very many due timers delays no other share on NATS."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.errors import TryLaterError
from shared.messages import Message, Timer
from tests.contract.timers.nats_world import world_of
from tests.contract.timers.worlds import Target, World
from tests.nats_servers import NatsServer, nats_server

pytestmark = [pytest.mark.anyio, pytest.mark.realtime, pytest.mark.timeout(300)]

MANY = int(os.getenv("TTL_SHARE_TIMERS", "20000"))
PROMPT_SECONDS = 10.0
"""The time for 20,000 timers that are pulled and given back, on a busy machine, and more."""


class SlowTarget(Target):
    """Answers the timers of Pods after a while: with an error, or by taking them.

    Attributes:
        seconds: How long the answer to a timer of a Pod takes.
        error: Its error.
    """

    seconds = 0.0
    error: Exception | None = None

    async def publish(self, message: Message) -> None:
        if isinstance(message, Timer) and message.ref.kind == "Pod":
            await asyncio.sleep(self.seconds)
            if self.error:
                raise self.error
        await super().publish(message)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NatsServer]:
    with nats_server(tmp_path / "nats") as server:
        yield server


@pytest.fixture
def world(node: NatsServer) -> World:
    world = world_of(node)
    world.target = SlowTarget(world.clock)
    return world


async def _set_many(world: World, engine) -> None:
    lead = 1.0 + MANY / 3_000
    timers = [world.timer(f"pod-{n}", lead, kind="Pod") for n in range(MANY)]
    for start in range(0, MANY, 500):
        await engine.set(timers[start : start + 500])
    await asyncio.sleep(max(0.0, (timers[0].due_at - world.clock.now()).total_seconds()) + 1.0)


@pytest.mark.parametrize(
    ("seconds", "error"),
    [(0.0, TryLaterError("503")), (5.0, TryLaterError("504")), (0.5, None)],
    ids=["fails fast", "fails slowly", "is slow"],
)
async def test_share_with_many_due_timers_delays_no_other(
    world: World, seconds: float, error: Exception | None
) -> None:
    assert isinstance(world.target, SlowTarget)
    world.target.seconds, world.target.error = seconds, error
    async with world.running() as engine:
        await _set_many(world, engine)
        late = []
        for n in range(5):  # at once, and while the many are retried or come back
            started = time.monotonic()
            await engine.set([world.timer(f"job-{n}-{m}", namespace=f"n{m}") for m in range(3)])
            await world.arrival(*(f"job-{n}-{m}" for m in range(3)), seconds=PROMPT_SECONDS * MANY / 20_000)
            late.append(time.monotonic() - started)
            await asyncio.sleep(0.5)
        print(f"late {[round(one, 2) for one in late]}")
        assert await engine.pending() >= MANY - len(world.target.arrived)  # none is lost


async def test_share_that_was_given_back_is_delivered_in_full(world: World) -> None:
    assert isinstance(world.target, SlowTarget)
    world.target.error = TryLaterError("503")
    async with world.running() as engine:
        await _set_many(world, engine)
        world.target.error = None
        started = time.monotonic()
        await world.arrival(*(f"pod-{n}" for n in range(MANY)), seconds=150)
        print(f"{MANY} delivered in {time.monotonic() - started:.1f} s")
        assert set(world.target.count().values()) == {1}
        early = world.target.early()
        assert early == []
