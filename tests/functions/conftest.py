"""The configuration of a process with fakes, new for each test; and its functions, served on one socket per module."""

import pytest

from shared.adapters.config.settings import Settings
from shared.bootstrap.config import ProcessConfig
from tests.builders import shipped_kinds
from tests.fakes import FakeClock, FakeCluster, FakePublisher, FakeTelemetry, FakeTimers
from tests.functions.wire import serving
from tests.sent_events import checking_sent_events


@pytest.fixture(autouse=True)
def sent_events():
    """Each event that a function sends is one that its JSON Schema allows."""
    with checking_sent_events() as sent:
        yield sent


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
