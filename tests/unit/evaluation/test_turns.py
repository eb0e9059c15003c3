"""Other tasks run during long work."""

import asyncio

import pytest

from shared.evaluation.usage_reader import TURN_SECONDS_MAX, Turns

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    """The tasks take turns in their order."""
    return "asyncio"


async def other_turns(seconds, monkeypatch):
    """How often another task runs while 10 objects are read, each of which takes some time."""
    loop, now, others, turns = asyncio.get_running_loop(), [100.0], [], Turns()

    async def other():
        while True:
            others.append(now[0])
            await asyncio.sleep(0)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "time", lambda: now[0])
        task = asyncio.create_task(other())
        await turns.pause()
        others.clear()
        for _ in range(10):
            now[0] += seconds
            await turns.pause()
    task.cancel()
    return len(others)


async def test_long_work_lets_other_tasks_run_after_each_object(monkeypatch):
    assert await other_turns(TURN_SECONDS_MAX * 5, monkeypatch) == 10


async def test_short_work_lets_other_tasks_run_by_time(monkeypatch):
    assert await other_turns(TURN_SECONDS_MAX / 5 + 1e-9, monkeypatch) == 2
