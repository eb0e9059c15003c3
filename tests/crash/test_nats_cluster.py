"""Timers in a cluster of three nats-servers whose nodes are killed and stopped: none lost, none early, none cancelled.

TTL_CHAOS_TIMERS sets how many timers are pending. 100000 take some minutes more: the result of such a run is in
docs/explanation/timers-at-scale.md.
"""

import asyncio
import os
import random
import signal
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from shared.adapters.timers.limits import EngineLimits
from shared.adapters.timers.nats.engine import NatsTimers
from shared.errors import TryLaterError
from shared.messages import Timer
from tests.contract.timers.nats_world import STREAM, world_of
from tests.contract.timers.worlds import Target, World, until
from tests.nats_servers import NatsServer, nats_cluster

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]

TIMERS = int(os.getenv("TTL_CHAOS_TIMERS", "6000"))
STOPPED_SECONDS = 12.0
"""Longer than the 10 s after which a leader without a quorum steps down."""

Changed = tuple[dict[str, datetime], dict[str, datetime]]
LIMITS = EngineLimits(rest_seconds=0.1, grace_seconds=1.0)


def elected(servers: list[NatsServer]) -> NatsServer | None:
    """The node that leads the stream, or None during an election."""
    for server in filter(NatsServer.healthy, servers):
        for account in server.monitor("jsz?streams=true").get("account_details", ()):
            for stream in account["stream_detail"]:
                if stream["name"] == STREAM and (leader := stream.get("cluster", {}).get("leader")):
                    return next(one for one in servers if one.folder.name == leader)
    return None


async def leader_of(servers: list[NatsServer], seconds: float = 60.0) -> NatsServer:
    """The node that leads the stream, as soon as one does: an election after several kills takes its time."""
    end = time.monotonic() + seconds
    while (leader := await asyncio.to_thread(elected, servers)) is None:
        assert time.monotonic() < end, "the stream has no leader"
        await asyncio.sleep(0.2)
    return leader


async def set_all(world: World, engine, timers: list[Timer]) -> None:
    """Set timers; repeat what was not acknowledged."""
    places = asyncio.Semaphore(8)

    async def put(batch: list[Timer]) -> None:
        async with places:
            while True:
                try:
                    return await engine.set(batch)
                except TryLaterError:
                    await asyncio.sleep(0.5)

    await asyncio.gather(*(put(timers[n : n + 100]) for n in range(0, len(timers), 100)))


async def disturb(servers: list[NatsServer], rest: float) -> None:
    """Kill the leader, any node, and every node in turn; then stop one node for a while."""
    chosen = random.Random(11)
    for victim in (await leader_of(servers), chosen.choice(servers), *servers):
        print(f"kill -9 {victim.folder.name}")
        victim.kill()
        await asyncio.sleep(rest / 2)
        victim.start(wait=False)
        await asyncio.to_thread(victim.wait, 60)
        await asyncio.sleep(rest / 2)
    for victim in (await leader_of(servers), chosen.choice(servers)):
        print(f"SIGSTOP {victim.folder.name}")
        victim.signal(signal.SIGSTOP)
        await asyncio.sleep(STOPPED_SECONDS)
        victim.signal(signal.SIGCONT)
        await asyncio.sleep(rest / 2)


async def test_cluster_loses_no_timer_while_its_nodes_die(tmp_path: Path) -> None:
    with nats_cluster(tmp_path) as servers:
        world = world_of(*servers, replicas=3)
        async with world.running(LIMITS) as engine:
            assert isinstance(engine, NatsTimers)
            await until(engine._ready.is_set, "the start", 60)
            await check(world, engine, servers)


async def check(world: World, engine, servers: list[NatsServer]) -> None:
    seconds = 60.0 + TIMERS / 1_500
    filling = 15.0 + TIMERS / 1_000
    first = world.clock.now() + timedelta(seconds=filling)
    spread = random.Random(3)
    timers = [
        world.timer(f"uid-{n}", filling + spread.uniform(0, seconds), namespace=f"n{n % 50}") for n in range(TIMERS)
    ]
    begun = time.perf_counter()
    await set_all(world, engine, timers)
    print(f"{TIMERS} timers set in {time.perf_counter() - begun:.1f} s on three replicas")
    await asyncio.sleep(max(0.0, (first - world.clock.now()).total_seconds()))

    beside = Target(world.clock)
    other = world.build(world.clock, beside, LIMITS)  # a second process
    task = asyncio.create_task(other.run())
    changes = asyncio.create_task(change(world, engine, timers))
    await disturb(servers, 6.0)
    changed = await changes

    def missing() -> set[str]:
        return {one.ref.uid for one in timers} - world.target.count().keys() - beside.count().keys() - {*changed[1]}

    try:
        for _ in range(round(seconds + 120)):  # the engines share this event loop: look rarely
            if not missing():
                break
            await asyncio.sleep(1)
        lost = sorted(missing())
        assert lost == [], f"{len(lost)} lost; {await engine.pending()} pending"
    finally:
        task.cancel()
    report(world, beside, changed)


async def change(world: World, engine, timers: list[Timer]) -> Changed:
    """Replace and cancel some timers meanwhile; return the new due times, and when which cancel was acknowledged."""
    chosen = random.Random(5)
    replaced: dict[str, datetime] = {}
    cancelled: dict[str, datetime] = {}
    for timer in chosen.sample(timers, min(400, TIMERS // 10)):
        try:
            if chosen.random() < 0.5:
                later = timer.model_copy(update={"due_at": max(timer.due_at, world.clock.now()) + timedelta(seconds=5)})
                await engine.set([later])
                replaced[timer.ref.uid] = later.due_at
            else:
                await engine.cancel([timer.key])
                cancelled[timer.ref.uid] = world.clock.now()
        except TryLaterError:
            replaced.pop(timer.ref.uid, None)
        await asyncio.sleep(0.05)
    return replaced, cancelled


def report(world: World, beside: Target, changed: Changed) -> None:
    assert world.target.early() == []
    assert beside.early() == []
    arrived = [*world.target.arrived, *beside.arrived]
    due = {(one.timer.ref.uid, one.timer.due_at) for one in arrived}
    assert [uid for uid, at in changed[0].items() if (uid, at) not in due] == []
    started = [*world.target.attempts, *beside.attempts]
    after_cancel = [one for one in started if one.at > changed[1].get(one.timer.ref.uid, one.at)]
    assert after_cancel == [], "a cancelled timer started after the acknowledgement"
    late = sorted((one.at - one.timer.due_at).total_seconds() for one in arrived)
    print(
        f"{len(due)} fired, {len(arrived) - len(due)} duplicates, {len(beside.arrived)} by the second process, "
        f"{len(changed[0])} replaced, {len(changed[1])} cancelled; late p50 {late[len(late) // 2]:.2f} s, "
        f"p99 {late[len(late) * 99 // 100]:.2f} s, max {late[-1]:.2f} s"
    )
