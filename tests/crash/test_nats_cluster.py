"""Timers in a cluster of three nats-servers whose nodes are killed and stopped: none lost, none early.

TTL_CHAOS_TIMERS sets how many timers are pending. 100000 take some minutes more: the result of such a run is in
docs/explanation/timers-at-scale.md.
"""

import asyncio
import os
import random
import signal
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from shared.adapters.timers.delivery import EngineLimits
from shared.adapters.timers.nats.engine import NatsTimers
from shared.adapters.timers.nats.stuck import REMOVAL_SECONDS, SEARCH_SECONDS
from shared.errors import TryLaterError
from shared.messages import Message, Timer
from shared.ports import Clock, DurableTimers
from tests.contract.timers.nats_world import STREAM, world_of
from tests.contract.timers.worlds import Target, World, until
from tests.crash.chaos_ledger import ChaosLedger
from tests.nats_servers import NatsServer, nats_cluster

TIMERS = int(os.getenv("TTL_CHAOS_TIMERS", "6000"))

pytestmark = [pytest.mark.anyio, pytest.mark.realtime, pytest.mark.timeout(900 + TIMERS // 50)]

STOPPED_SECONDS = 12.0
"""Longer than the 10 s after which a leader without a quorum steps down."""

STUCK_SECONDS = 120.0
"""If no timer arrives for this long, those that are missing are lost: a slow machine takes longer for many timers."""

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


@dataclass
class RecordingTarget(Target):
    """What an engine delivers to, and what tells the ledger of it."""

    ledger: ChaosLedger = field(kw_only=True)

    async def publish(self, message: Message) -> None:
        assert isinstance(message, Timer)
        self.ledger.arrived(message.ref.uid, message.due_at, self.clock.now())
        await super().publish(message)
        self.ledger.accepted(message.ref.uid, message.due_at, self.clock.now())


@dataclass
class Writer:
    """Sets timers, and tells the ledger what was answered."""

    engine: DurableTimers
    clock: Clock
    ledger: ChaosLedger

    async def set(self, timers: list[Timer]) -> bool:
        """Set timers; return whether that was acknowledged."""
        for timer in timers:
            self.ledger.asked(timer.ref.uid, timer.due_at)
        try:
            await self.engine.set(timers)
        except TryLaterError:
            for timer in timers:
                self.ledger.unanswered(timer.ref.uid, timer.due_at)
            return False
        for timer in timers:
            self.ledger.acknowledged(timer.ref.uid, timer.due_at)
        return True


async def set_all(writer: Writer, timers: list[Timer]) -> None:
    """Set timers; repeat what was not acknowledged."""
    places = asyncio.Semaphore(8)

    async def put(batch: list[Timer]) -> None:
        async with places:
            while not await writer.set(batch):
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
        world, ledger = world_of(*servers, replicas=3), ChaosLedger()
        world.target = RecordingTarget(world.clock, ledger=ledger)
        async with world.running(LIMITS) as engine:
            assert isinstance(engine, NatsTimers)
            await until(engine._ready.is_set, "the start", 60)
            await check(world, Writer(engine, world.clock, ledger), servers)


async def check(world: World, writer: Writer, servers: list[NatsServer]) -> None:
    ledger = writer.ledger
    seconds = 60.0 + TIMERS / 1_500
    filling = 15.0 + TIMERS / 1_000
    first = world.clock.now() + timedelta(seconds=filling)
    spread = random.Random(3)
    timers = [
        world.timer(f"uid-{n}", filling + spread.uniform(0, seconds), namespace=f"n{n % 50}") for n in range(TIMERS)
    ]
    begun = time.perf_counter()
    await set_all(writer, timers)
    print(f"{TIMERS} timers set in {time.perf_counter() - begun:.1f} s on three replicas")
    await asyncio.sleep(max(0.0, (first - world.clock.now()).total_seconds()))

    beside = RecordingTarget(world.clock, ledger=ledger)
    other = asyncio.create_task(world.build(world.clock, beside, LIMITS).run())  # a second process
    try:
        changes = asyncio.create_task(change(writer, timers))
        await disturb(servers, 6.0)
        await changes
        await settle(ledger)
        lost = ledger.lost()
        assert lost == [], f"{len(lost)} lost; {await writer.engine.pending()} pending"
        await asyncio.sleep(SEARCH_SECONDS + REMOVAL_SECONDS + 2.0)  # what is gone must not be set again
        assert not other.done()
    finally:
        other.cancel()
    report(ledger, world.target, beside)
    assert {rule: found for rule, found in ledger.violations.items() if found} == {}
    assert ledger.counts["duplicates"] < TIMERS // 2


async def change(writer: Writer, timers: list[Timer]) -> None:
    """Set some timers again meanwhile."""
    chosen = random.Random(5)
    for timer in chosen.sample(timers, min(400, TIMERS // 10)):
        later = max(timer.due_at, writer.clock.now()) + timedelta(seconds=5)
        await writer.set([timer.model_copy(update={"due_at": later})])
        await asyncio.sleep(0.05)


async def settle(ledger: ChaosLedger) -> None:
    """Wait until all has arrived, the replacements too, or until nothing arrives any more."""
    left, changed_at = ledger.lost(), time.monotonic()
    while left and time.monotonic() - changed_at < STUCK_SECONDS:
        await asyncio.sleep(1)  # the engines share this event loop: look rarely
        if (now_left := ledger.lost()) != left:
            left, changed_at = now_left, time.monotonic()


def report(ledger: ChaosLedger, *targets: Target) -> None:
    """Print what happened."""
    late = sorted((one.at - one.timer.due_at).total_seconds() for target in targets for one in target.arrived)
    print(
        f"{ledger.summary()}\n{len(targets[-1].arrived)} by the second process; "
        f"late p50 {late[len(late) // 2]:.2f} s, p99 {late[len(late) * 99 // 100]:.2f} s, max {late[-1]:.2f} s"
    )
