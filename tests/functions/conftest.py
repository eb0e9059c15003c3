"""Fakes for the functions of this process, new for each test; and the functions, served once per module."""

import pytest

from shared.adapters.config.settings import Settings
from shared.bootstrap import world as bootstrap
from shared.bootstrap.world import World
from tests.builders import shipped_kinds
from tests.fakes import FakeClock, FakeCluster, FakePublisher, FakeTelemetry, FakeTimers
from tests.functions.wire import serving


def new_world():
    clock, kinds = FakeClock(), shipped_kinds()
    return World(
        Settings(),
        kinds,
        kinds,
        clock=clock,
        telemetry=FakeTelemetry(),
        cluster=FakeCluster(clock),
        publisher=FakePublisher(),
        timers=FakeTimers(),
    )


@pytest.fixture
def world():
    """A new world, which the functions use until the test ends."""
    world = new_world()
    bootstrap.use(world)
    yield world
    bootstrap._worlds.clear()


@pytest.fixture(scope="module")
async def server():
    bootstrap.use(new_world())
    async with serving() as functions:
        yield functions


@pytest.fixture
def functions(server, world):
    return server
