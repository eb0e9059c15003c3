"""The API server's time at a due time: when it is read, and by how many callers at once."""

import asyncio
from datetime import datetime, timedelta
from email.utils import format_datetime
from functools import partial
from typing import Any

import pytest

from shared.adapters.clock import FAILED_PAUSE_SECONDS, PAUSE_SECONDS, ServerClock, ServerTime
from shared.errors import PermanentError, TryLaterError
from tests.builders import NOW, later
from tests.simulation.virtualloop import VirtualLoop

pytestmark = pytest.mark.anyio


class Server:
    """Answers each read after a turn of the loop with the whole seconds of its clock."""

    def __init__(self, at: datetime) -> None:
        self.at = at
        self.reads = 0
        self.error: Exception | None = None
        self.seconds_away = 0.0
        self.clock = ServerClock(self.clock_seconds)
        self.time = ServerTime(self.clock, self.read, self.clock_seconds)

    def clock_seconds(self) -> float:
        return self.at.timestamp()

    def answer(self) -> None:
        self.clock.observe(format_datetime(self.at.replace(microsecond=0), usegmt=True))

    async def read(self) -> None:
        self.reads += 1
        await asyncio.sleep(self.seconds_away)
        if self.error:
            raise self.error
        self.answer()


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Each test runs in virtual time."""
    return "asyncio", {"loop_factory": partial(VirtualLoop, 0)}


@pytest.fixture
def server() -> Server:
    """At NOW, its last answer has a Date that was 0.6 s old."""
    server = Server(NOW - timedelta(seconds=0.4))
    server.answer()
    server.at = NOW
    return server


async def test_callers_at_one_due_time_share_a_read(server: Server) -> None:
    assert await asyncio.gather(*(server.time.now(NOW) for _ in range(50))) == [NOW] * 50
    assert server.reads == 1


@pytest.mark.parametrize("due_at", [NOW - timedelta(seconds=1), later(3), later(3_600)])
async def test_time_is_not_read_unless_an_object_is_due_about_now(server: Server, due_at: datetime) -> None:
    assert await server.time.now(due_at) == NOW - timedelta(seconds=0.6)
    assert server.reads == 0


async def test_time_is_read_without_a_recent_answer(server: Server) -> None:
    server.at = later(3_600)
    assert await server.time.now(NOW) == later(3_600)
    assert server.reads == 1


async def test_time_within_a_few_milliseconds_is_waited_for_and_not_read() -> None:
    monotonic = asyncio.get_running_loop().time
    server = Server(NOW)
    server.clock = ServerClock(monotonic)
    server.time = ServerTime(server.clock, server.read, monotonic)
    server.answer()
    due_at = NOW + timedelta(milliseconds=15)

    now = await server.time.now(due_at)

    assert now is not None
    assert now >= due_at
    assert server.reads == 0


@pytest.mark.parametrize("error", [TryLaterError("busy"), PermanentError("forbidden"), None], ids=str)
async def test_failed_read_leaves_the_time_that_is_known(server: Server, error: Exception | None) -> None:
    """Without an error, the API server never answers."""
    server.error, server.seconds_away = error, 0.0 if error else 3_600.0
    assert await server.time.now(NOW) == NOW - timedelta(seconds=0.6)


@pytest.mark.parametrize(("error", "pause"), [(None, PAUSE_SECONDS), (TryLaterError("busy"), FAILED_PAUSE_SECONDS)])
async def test_next_read_waits_for_a_pause(server: Server, error: Exception | None, pause: float) -> None:
    """A forged timer can name any due time, so each would otherwise cost a read of its own."""
    server.error = error
    for milliseconds in range(0, 50, 10):
        server.at = NOW + timedelta(milliseconds=milliseconds)
        await server.time.now(server.at + timedelta(seconds=1))
    assert server.reads == 1

    server.at = NOW + timedelta(seconds=pause + 0.01)
    await server.time.now(server.at + timedelta(seconds=1))
    assert server.reads == 2


async def test_cancelled_caller_does_not_end_the_read_of_the_others(server: Server) -> None:
    first, second = (asyncio.create_task(server.time.now(NOW)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == NOW
    assert server.reads == 1
