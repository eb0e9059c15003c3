"""The configuration of a process with fakes, new for each test; and its functions, served on one socket per module."""

import pytest

from shared.adapters.config.settings import Settings
from shared.bootstrap.config import ProcessConfig
from tests.builders import shipped_kinds
from tests.fakes import FakeClock, FakeCluster, FakePublisher, FakeTelemetry, FakeTimers
from tests.functions.wire import serving


@pytest.fixture
def config():
    clock, kinds = FakeClock(), shipped_kinds()
    return ProcessConfig(
        settings=Settings(),
        kinds=kinds,
        catalogue=kinds,
        clock=clock,
        telemetry=FakeTelemetry(),
        cluster=FakeCluster(clock),
        publisher=FakePublisher(),
        timers=FakeTimers(),
    )


@pytest.fixture(scope="module")
async def server():
    async with serving() as functions:
        yield functions


@pytest.fixture
def functions(server, config):
    return server.use(config)
