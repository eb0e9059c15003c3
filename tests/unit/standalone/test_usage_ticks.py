"""The ticks of `usage` that `run` sends to its own functions."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from shared.standalone.runner import Runner
from tests.fakes import FakeClock, FakeTelemetry
from tests.usage import unused_policy

pytestmark = pytest.mark.anyio


class Broker:
    def __init__(self) -> None:
        self.sent: list[Any] = []

    async def send(self, event: Any) -> None:
        self.sent.append(event)


@pytest.mark.parametrize(("kinds", "ticks"), [("", 1), ("jobs", 0)])
async def test_run_of_some_kinds_deletes_no_secrets_and_config_maps(kinds, ticks):
    policy, broker = unused_policy(), Broker()
    runner = object.__new__(Runner)
    settings = SimpleNamespace(kinds=kinds)
    runner._config = cast(
        "Any",
        SimpleNamespace(settings=settings, policy=lambda: policy, clock=FakeClock(), telemetry=FakeTelemetry()),
    )

    await runner._find_unused(cast("Any", broker))

    assert len(broker.sent) == ticks
