"""Timers that are gone stay gone, although a nats-server brings back removed messages after two kills.

Why it does, and what the engine does about it, is in `revived.py` and `stuck.py`.
"""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shared.adapters.timers.nats.records import CANCELLED_HEADER, REPLACED_HEADER, body_of
from shared.adapters.timers.nats.subjects import CANCELLED, FIRED, KeySubjects, subjects_of
from shared.errors import TryLaterError
from shared.messages import Timer, TimerKey
from tests.contract.timers.nats_world import STREAM, connected, put, stored, world_of
from tests.contract.timers.worlds import until
from tests.nats_servers import NatsServer, nats_server

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

FILE_BYTES = 4 * 1024**2
"""The size of a file of the server."""

PLAIN, CHANGED = 250, 50
"""How many timers are set, and how many are replaced, until the first file is full."""

FAR_SECONDS = 20.0
"""Later than the kills: when the timers that are replaced would arrive."""

KEY = TimerKey("uid-1", "expire")
SUBJECTS = subjects_of(STREAM, KEY)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NatsServer]:
    with nats_server(tmp_path / "nats") as server:
        yield server


async def test_no_timer_that_is_gone_arrives_after_a_server_was_killed_twice(node: NatsServer) -> None:
    world = world_of(node)
    async with world.running() as engine:
        await engine.pending()
        files = next(node.folder.glob("data/jetstream/*/streams/*/msgs"))
        far_at = world.clock.now() + timedelta(seconds=FAR_SECONDS)
        fired: list[str] = []
        while (files / "1.blk").stat().st_size < FILE_BYTES - 400_000:
            replaced = [world.timer(f"replaced-{len(fired)}-{n}", FAR_SECONDS) for n in range(CHANGED)]
            await engine.set(replaced)
            now = [f"plain-{len(fired)}-{n}" for n in range(PLAIN)] + [one.ref.uid for one in replaced]
            await engine.set([world.timer(uid) for uid in now])
            await world.arrival(*now, seconds=60)
            fired += now
        waiting = 0
        while not (files / "2.blk").exists():  # no acknowledgement may let the server rewrite its first file in time
            await engine.set([world.timer(f"waits-{waiting + n}", 3600) for n in range(50)])
            waiting += 50
        before = await stored(node)
        for _ in range(2):
            node.kill()
            await asyncio.to_thread(node.start)
        revived = await stored(node) - before
        assert world.clock.now() < far_at, "the machine is too slow for this test to mean anything"
        back = {one.split(".")[2].split("-")[0] for one in revived if ".pending." in one}
        assert "replaced" in back, "the server brings nothing back: revived.py may be needed no more"
        await asyncio.sleep(FAR_SECONDS + 2.0)
        assert [one.timer.ref.uid for one in world.target.arrived if one.timer.due_at >= far_at] == []
        assert world.target.count().keys() == {*fired}
        assert [subject for subject in await stored(node) if subject.endswith(FIRED)] == []
        assert await engine.next_due() is None
        assert await engine.pending() == waiting


@pytest.mark.parametrize(("is_older", "stays"), [(True, False), (False, True)], ids=["older", "newer"])
async def test_cancellation_that_fires_removes_older_schedules_only(
    node: NatsServer, *, is_older: bool, stays: bool
) -> None:
    other = SUBJECTS.pending(1)
    async with world_of(node).running() as engine, connected(node) as client:
        await engine.pending()
        sequence = await put(client, SUBJECTS, other, 3600, {})
        last = sequence if is_older else sequence - 1
        await put(client, SUBJECTS, SUBJECTS.cancelled(2), 0.5, {CANCELLED_HEADER: "1", REPLACED_HEADER: str(last)})
        while any(f".{CANCELLED}." in one or one.endswith(FIRED) for one in await stored(node)):
            await asyncio.sleep(0.1)
        assert (other in await stored(node)) is stays


async def revive(node: NatsServer, old: Timer, new: Timer) -> None:
    """Store a timer, and the older one that it has replaced, as a server leaves them that brings back the older one."""
    now = datetime.now(UTC)
    async with connected(node) as client:
        seconds = (old.due_at - now).total_seconds()
        last = await put(client, SUBJECTS, SUBJECTS.pending(1), seconds, {}, body_of(old))
        seconds, headers = (new.due_at - now).total_seconds(), {REPLACED_HEADER: str(last)}
        await put(client, SUBJECTS, SUBJECTS.pending(2), seconds, headers, body_of(new))


OLD_SECONDS = pytest.mark.parametrize("old_seconds", [0.2, 1.8, 3600.0], ids=["before", "after", "long-after"])
"""When the older timer is due, which comes back; the newer one is due after 1 s."""


@OLD_SECONDS
async def test_newer_timer_arrives_alone_although_a_server_brought_back_an_older_one(
    node: NatsServer, old_seconds: float
) -> None:
    world = world_of(node)
    async with world.running() as engine:
        await engine.pending()
        new = world.timer("uid-1", 1.0)
        await revive(node, world.timer("uid-1", old_seconds), new)
        await world.arrival("uid-1")
        await asyncio.sleep(2.0)
        assert [one.timer for one in world.target.arrived] == [new]


@OLD_SECONDS
async def test_newer_timer_arrives_alone_if_both_have_fired_while_no_process_was_there(
    node: NatsServer, old_seconds: float
) -> None:
    world = world_of(node)
    async with world.running() as engine:
        await engine.pending()
    new = world.timer("uid-1", 1.0)
    await revive(node, world.timer("uid-1", old_seconds), new)
    await asyncio.sleep(2.5)
    async with world.running():
        await world.arrival("uid-1")
        await asyncio.sleep(2.0)
        assert [one.timer for one in world.target.arrived] == [new]


async def test_failed_timer_is_retried_although_an_older_one_fired_after_it(node: NatsServer) -> None:
    world = world_of(node)
    async with world.running() as engine:
        await engine.pending()
        world.target.errors["Job"] = TryLaterError("away")
        gate = world.target.hanging["Job"] = asyncio.Event()
        new = world.timer("uid-1", 0.5)
        await revive(node, world.timer("uid-1", 1.5), new)
        await until(lambda: world.target.attempts, "the delivery that hangs")
        await asyncio.sleep(2.0)  # the older one has fired
        world.target.hanging.pop("Job")
        gate.set()
        await asyncio.sleep(0.2)  # the delivery has failed
        world.target.errors.clear()
        await world.arrival("uid-1", seconds=30)
        await asyncio.sleep(2.0)
        assert {one.timer.due_at for one in world.target.attempts} == {new.due_at}
        assert [(one.timer.due_at, one.timer.attempts > 0) for one in world.target.arrived] == [(new.due_at, True)]


@pytest.mark.parametrize("seconds", [1.0, -1.0], ids=["later", "earlier"])
async def test_delivered_timer_that_replaced_another_leaves_a_cancellation(node: NatsServer, seconds: float) -> None:
    world = world_of(node)
    async with world.running() as engine:
        await engine.set([world.timer("uid-1", 2.0), world.timer("uid-2", 1.0)])
        await engine.set([world.timer("uid-1", 2.0 + seconds)])
        await world.arrival("uid-1", "uid-2")
        await asyncio.sleep(0.5)
        assert {KeySubjects(".".join(one.split(".")[:3])) for one in await stored(node)} == {SUBJECTS}
        assert await engine.pending() == 0
        again = world.timer("uid-1")
        await engine.set([again])  # a cancellation does not stand against a timer that is set later
        await world.arrival("uid-1")
        await asyncio.sleep(0.5)
        assert world.target.arrived[-1].timer == again


async def test_timer_that_is_set_again_as_it_is_leaves_nothing(node: NatsServer) -> None:
    world = world_of(node)
    async with world.running() as engine:
        timer = world.timer("uid-1", 1.0)
        await engine.set([timer])
        await engine.set([timer])
        await world.arrival("uid-1")
        await asyncio.sleep(0.5)
        assert await stored(node) == set()
