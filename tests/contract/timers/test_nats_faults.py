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
from shared.adapters.timers.nats.connection import StreamMessage
from shared.adapters.timers.nats.engine import NatsTimers
from shared.adapters.timers.nats.heads import Heads, Standing, cancellation_of
from shared.adapters.timers.nats.records import may_leave_fired, schedule_headers
from shared.adapters.timers.nats.subjects import is_cancelled, subjects_of
from shared.errors import TryLaterError
from shared.messages import TimerKey
from tests.contract.timers.nats_world import STREAM, world_of
from tests.contract.timers.worlds import QUICK, ShiftedClock, Target, World, until
from tests.nats_servers import NatsServer, nats_cluster, nats_server

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

KEY = subjects_of(STREAM, TimerKey("uid-1", "expire"))
NOW = datetime(2030, 1, 1, tzinfo=UTC)
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


async def test_timers_fire_after_a_restart_of_another_server_than_the_connected_one(tmp_path: Path) -> None:
    """The process keeps its connection, and loses only its request for fired timers."""
    with nats_cluster(tmp_path) as servers:
        for connected in servers:
            world = world_of(connected)
            async with world.running() as engine:
                assert isinstance(engine, NatsTimers)
                await engine.set([world.timer("uid-1", 8)])
                leader = (await engine._connection.api(f"STREAM.INFO.{STREAM}"))["cluster"]["leader"]
                if leader == connected.folder.name:
                    continue
                killed = next(one for one in servers if one.folder.name == leader)
                killed.kill()
                await asyncio.sleep(1)
                killed.start(wait=False)
                await world.arrival("uid-1", seconds=60)
                return


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
    assert await Heads(connection, ShiftedClock()).standing(KEY, 7, OWN) is standing


class Silent:
    """A server that has lost its quorum: it knows nothing of a key, and what it gets is never stored."""

    def __init__(self) -> None:
        self.written: list[str] = []

    async def last(self, _subject: str) -> StreamMessage | None:
        return None

    async def store(self, subject: str, _body: bytes, _headers: dict[str, str]) -> asyncio.Future[object]:
        self.written.append(subject)
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        answer.set_exception(TryLaterError("no answer by NATS within 5 s"))
        return answer


async def test_cancel_is_acknowledged_only_by_servers_with_a_quorum() -> None:
    connection: Any = Silent()
    with pytest.raises(TryLaterError):
        await Heads(connection, ShiftedClock()).put([cancellation_of(KEY, NOW)])
    assert [is_cancelled(subject) for subject in connection.written] == [True]


@pytest.mark.parametrize("cancelled", [False, True], ids=["unknown", "cancelled"])
async def test_cancel_of_a_key_without_a_timer_is_stored(node: NatsServer, world: World, *, cancelled: bool) -> None:
    async with world.running() as engine:
        for _ in range(2 if cancelled else 1):
            await engine.cancel([TimerKey("uid-1", "expire")])
        client = await nats.connect(node.url)
        state = (await client.jetstream().stream_info(STREAM)).state
        await client.close()
        assert (state.messages, state.last_seq) == (1, 2 if cancelled else 1)
        assert await engine.pending() == 0


@pytest.mark.parametrize(
    ("due_at", "cleared", "clears"),
    [
        (NOW + timedelta(hours=1), False, False),
        (NOW + timedelta(seconds=1), False, True),  # the servers may fire it now
        (NOW - timedelta(hours=1), False, True),
        (NOW + timedelta(hours=1), True, True),  # it replaced one that the servers may have fired
    ],
)
def test_replacement_removes_an_older_fired_message_if_there_may_be_one(
    due_at: datetime, *, cleared: bool, clears: bool
) -> None:
    headers = schedule_headers(due_at, KEY.fired, clears=cleared)
    stored = "NATS/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
    assert may_leave_fired(stored, NOW) is clears
