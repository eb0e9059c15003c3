"""What the NATS engine says and does if a real server has no storage left, refuses a right, or goes away."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from shared.adapters.timers.nats.connection import API_SECONDS
from shared.errors import TryLaterError
from tests.contract.timers.nats_world import STREAM, world_of
from tests.contract.timers.worlds import QUICK, World
from tests.nats_servers import NatsServer, fill_store, nats_server, small_nats_server
from tests.volumes import mounted

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NatsServer]:
    with nats_server(tmp_path / "nats") as server:
        yield server


async def refusal_of(world: World, fill: Callable[[], object]) -> tuple[str, float]:
    """The error of a timer that is set after the storage was filled, and the seconds until it came."""
    async with world.running() as engine:
        await engine.set([world.timer("before", 60)])
        fill()
        started = asyncio.get_running_loop().time()
        with pytest.raises(TryLaterError) as refused:
            await engine.set([world.timer(f"after-{n}", 60) for n in range(200)])  # more than a page of the file
        return str(refused.value), asyncio.get_running_loop().time() - started


async def test_limit_of_the_storage_is_named_at_once(tmp_path: Path) -> None:
    with small_nats_server(tmp_path / "nats") as node:
        world = world_of(node)
        async with world.running() as engine:
            await engine.set([world.timer("before", 60)])
            await fill_store(node)
            with pytest.raises(TryLaterError, match="no storage left: the disk is full") as refused:
                await engine.set([world.timer("after", 60)])
    assert "max_file_store" in str(refused.value)


async def test_full_disk_is_told_from_a_server_that_does_not_answer(tmp_path: Path) -> None:
    """The server logs the full disk, and answers the sender nothing."""
    with mounted(tmp_path / "volume", mebibytes=8) as volume, nats_server(volume / "nats") as node:
        error, seconds = await refusal_of(world_of(node), lambda: fill(volume))
        assert "answer, but stored nothing" in error
        assert "disk is full" in error
        assert seconds < 2 * API_SECONDS
        assert node.monitor("varz")["total_connections"] <= 2, "a server that answers is not left"


def fill(volume: Path) -> None:
    with suppress(OSError), (volume / "fill").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


async def test_server_that_hangs_is_said_to_give_no_answer(node: NatsServer) -> None:
    error, _ = await refusal_of(world_of(node), lambda: node.signal(signal.SIGSTOP))
    node.signal(signal.SIGCONT)
    assert "no answer by NATS" in error


async def test_right_that_is_missing_is_named_at_once(tmp_path: Path) -> None:
    refused = f"{STREAM}.expire.refused.>"
    user = {"user": "timers", "password": "x", "permissions": {"publish": {"allow": [">"], "deny": [refused]}}}
    with nats_server(tmp_path / "nats", {"authorization": {"users": [user]}}) as node:
        node.url = node.url.replace("nats://", "nats://timers:x@")
        world = world_of(node)
        async with world.running() as engine:
            await engine.set([world.timer("other", 60)])
            async with asyncio.timeout(API_SECONDS / 2):
                with pytest.raises(TryLaterError, match=r"refuse this user a right: .*grant the right"):
                    await engine.set([world.timer("refused", 60)])


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP], ids=str)
@pytest.mark.parametrize("seconds", [0.2, 3.0, 7.0])
async def test_engine_ends_in_order_while_the_server_is_away(
    node: NatsServer, fault: signal.Signals, seconds: float
) -> None:
    """What the client library holds for a server that is gone must not become an error of the end."""
    world = world_of(node)
    engine = world.build(world.clock, world.target, QUICK)
    running = asyncio.create_task(engine.run())
    await engine.set([world.timer(f"uid-{n}", 0.5 + n / 20) for n in range(40)])
    node.signal(fault)
    failing = asyncio.gather(*(engine.set([world.timer(f"new-{n}", 60)]) for n in range(5)), return_exceptions=True)
    await asyncio.sleep(seconds)

    running.cancel()
    await asyncio.wait([running], timeout=20)

    if fault is signal.SIGSTOP:
        node.signal(signal.SIGCONT)
    assert running.cancelled(), running.done() and running.exception()
    assert [one for one in await failing if not isinstance(one, TryLaterError)] == []
