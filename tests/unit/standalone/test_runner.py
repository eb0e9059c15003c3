"""The ticks of `run`, and its end."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shared.bootstrap.timer_engine import UnstoredTimers
from shared.core.values.objects import ref_of
from shared.messages import Purpose, Timer
from shared.standalone import runner as runner_module
from shared.standalone.runner import Runner, local_broker
from tests.builders import NOW, job
from tests.fakes import FakeClock, FakeTelemetry

pytestmark = pytest.mark.anyio

INTERVAL = 20.0


@pytest.mark.parametrize(
    ("seconds", "ticks"),
    [
        ([0.0, 0.0, 0.0], [20.0, 40.0, 60.0]),
        ([10.0, 10.0, 0.0], [20.0, 40.0, 60.0]),  # a sweep that waits for NATS moves no later one
        ([25.0, 0.0, 0.0], [20.0, 60.0, 80.0]),  # the tick at 40 s is skipped
    ],
)
async def test_ticks_keep_the_interval_whatever_a_sweep_takes(seconds: list[float], ticks: list[float]) -> None:
    runner, now, started = object.__new__(Runner), asyncio.get_running_loop().time, list[float]()
    settings = SimpleNamespace(sweep_interval=timedelta(seconds=INTERVAL))
    runner._config = cast("Any", SimpleNamespace(settings=settings))
    first, done = now(), asyncio.Event()

    async def sweep(_broker: Any) -> None:
        started.append(now() - first)
        if len(started) == len(ticks):
            done.set()
        await asyncio.sleep(seconds[len(started) - 1])

    runner._sweep = sweep  # type: ignore[method-assign,assignment]
    task = asyncio.create_task(runner._tick(cast("Any", None)))
    await done.wait()
    task.cancel()

    assert started == pytest.approx(ticks)


class EndedProcess:
    """A process whose timer engine cannot be stopped in order."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.config = SimpleNamespace(telemetry=FakeTelemetry(), clock=FakeClock())
        self.engine = SimpleNamespace(stop=self._fail, unstored=UnstoredTimers())

    def publishing_to(self, _broker: object) -> "EndedProcess":
        return self

    async def _fail(self) -> None:
        raise ConnectionResetError("Connection lost")

    async def end(self) -> None:
        self.ended.append("process")


async def test_end_drains_the_broker_and_says_what_is_not_stored_also_if_the_engine_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = EndedProcess()
    monkeypatch.setattr(runner_module, "load_functions", lambda _process: {})
    monkeypatch.setattr(runner_module, "read_triggers", lambda _folder: [])
    timers = [Timer(ref=ref_of(job()), purpose=purpose, due_at=NOW + timedelta(hours=1)) for purpose in Purpose]
    overdue = Timer(ref=ref_of(job(uid="other")), purpose=Purpose.EXPIRE, due_at=NOW)
    process.engine.unstored.failed([*timers, overdue], "no NATS server is reachable", NOW)
    process.engine.unstored.stored(timers[:1])

    block, closed = local_broker(cast("Any", process)), list[float]()
    broker = await block.__aenter__()
    monkeypatch.setattr(broker, "close", _noting(closed))
    with pytest.raises(ConnectionResetError):
        await block.__aexit__(None, None, None)

    assert (closed, process.ended) == ([runner_module.GRACE_SECONDS], ["process"])
    ((text, fields),) = process.config.telemetry.problems
    assert "next sweep sets them" in text
    assert fields == {"timers": len(Purpose) - 1, "error": "no NATS server is reachable"}


def _noting(closed: list[float]) -> Any:
    async def close(*, grace_seconds: float) -> None:
        closed.append(grace_seconds)

    return close
