"""Which engine TTL_TIMERS selects, what that on Cloud Tasks needs, and that opened timers do not fire."""

import asyncio
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shared.adapters.clock import SystemClock
from shared.adapters.config.settings import SettingsError, read_settings
from shared.adapters.timers.cloudtasks.engine import CloudTasksTimers
from shared.adapters.timers.sqlite.engine import SqliteTimers
from shared.bootstrap.timer_engine import TimerEngine, build_timers, open_pending, open_timers
from shared.core.values.objects import ObjectRef
from shared.messages import Purpose, Timer
from tests.builders import ROOT
from tests.fakes import FakeClock, FakePublisher

pytestmark = pytest.mark.anyio

TASKS = {
    "TTL_TIMERS": "cloudtasks:projects/p/locations/l/queues/q",
    "TTL_TASKS_TARGET": "https://timers.example",
    "TTL_TASKS_ACCOUNT": "ttl-tasks@p.iam.gserviceaccount.com",
}


def build(environment):
    return build_timers(read_settings(environment=environment), FakeClock(), FakePublisher())


async def test_address_chooses_the_engine(tmp_path):
    file, queue = build({"TTL_TIMERS": f"sqlite:{tmp_path}/timers.db"}), build(TASKS)
    assert (type(file), type(queue)) == (SqliteTimers, CloudTasksTimers)
    await file.close()
    await queue.close()


@pytest.mark.parametrize("name", ["TTL_TASKS_TARGET", "TTL_TASKS_ACCOUNT"])
async def test_cloud_tasks_without_a_setting_names_the_variable(name):
    with pytest.raises(SettingsError, match=f"^{name}: expected "):
        build({key: value for key, value in TASKS.items() if key != name})


@pytest.mark.parametrize(
    ("environment", "audience"),
    [({}, "https://timers.example"), ({"TTL_CALLERS_AUDIENCE": "ttl-after-finished"}, "ttl-after-finished")],
)
async def test_audience_of_a_task_is_that_of_the_callers_or_the_url(environment, audience):
    assert build({**TASKS, **environment})._form.audience == audience


async def test_engine_that_failed_is_stopped_like_any_other(monkeypatch, tmp_path):
    """The end of a process writes its shared state and its journal after that."""
    is_closed = asyncio.Event()

    async def fail(_self):
        raise RuntimeError("no disk")

    async def close():
        is_closed.set()

    monkeypatch.setattr(SqliteTimers, "run", fail)
    settings = read_settings(environment={"TTL_TIMERS": f"sqlite:{tmp_path}/timers.db"})
    engine = TimerEngine(settings, FakeClock())
    engine.start(FakePublisher(), close)
    with pytest.raises(RuntimeError, match="no disk"):
        await engine.ended()
    await engine.stop()

    assert is_closed.is_set()
    assert engine.timers is None


@pytest.mark.parametrize("module", ["shared.bootstrap.process", "shared.bootstrap.timer_engine", "functions"])
def test_client_of_cloud_tasks_is_imported_with_its_engine_only(module):
    probe = f"import sys, {module}; print([name for name in sys.modules if name in ('grpc', 'google.api_core')])"
    done = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


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

    monkeypatch.setattr("shared.bootstrap.timer_engine.build_timers", lambda *_: Connected())
    async with open_pending(read_settings({}, {"TTL_TIMERS": "nats://127.0.0.1"}), SystemClock()):
        calls.append("read")
    async with open_timers(read_settings({}, {"TTL_TIMERS": "nats://127.0.0.1"}), SystemClock()):
        calls.append("set")
    assert calls == ["open", "read", "close", "open or create", "set", "close"]
