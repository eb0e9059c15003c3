"""Timers that a command opens do not fire."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shared.adapters.clock import SystemClock
from shared.adapters.config.settings import read_settings
from shared.bootstrap import open_timers as module
from shared.bootstrap.open_timers import open_pending, open_timers
from shared.core.values.objects import ObjectRef
from shared.messages import Purpose, Timer

pytestmark = pytest.mark.anyio

OVERDUE = Timer(
    ref=ObjectRef("batch/v1", "Job", "ci", "build-42", "uid-1"),
    purpose=Purpose.EXPIRE,
    due_at=datetime(2020, 1, 1, tzinfo=UTC),
)


async def test_overdue_timer_of_a_file_is_set_and_read_and_does_not_fire(tmp_path: Path) -> None:
    settings = read_settings({}, {"TTL_TIMERS": f"sqlite:{tmp_path / 'timers.db'}"})
    tasks = asyncio.all_tasks()
    async with open_timers(settings, SystemClock()) as timers:
        await timers.set([OVERDUE])
        assert asyncio.all_tasks() == tasks  # nothing runs that could fire it
        assert await timers.pending() == 1
    async with open_pending(settings, SystemClock()) as pending:
        assert (await pending.page()).timers == (OVERDUE,)


async def test_engine_with_a_connection_is_opened_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    class Connected:
        async def open(self, *, creates: bool) -> None:
            calls.append("open or create" if creates else "open")

        async def close(self) -> None:
            calls.append("close")

    monkeypatch.setattr(module, "build_timers", lambda *_: Connected())
    async with open_pending(read_settings({}, {"TTL_TIMERS": "nats://127.0.0.1"}), SystemClock()):
        calls.append("read")
    async with open_timers(read_settings({}, {"TTL_TIMERS": "nats://127.0.0.1"}), SystemClock()):
        calls.append("set")
    assert calls == ["open", "read", "close", "open or create", "set", "close"]
