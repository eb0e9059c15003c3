"""Which engine TTL_TIMERS selects, and what the engine on Cloud Tasks needs."""

import asyncio
import subprocess
import sys

import pytest

from shared.adapters.config.settings import SettingsError, read_settings
from shared.adapters.timers.cloudtasks.engine import CloudTasksTimers
from shared.adapters.timers.sqlite.engine import SqliteTimers
from shared.bootstrap.timer_engine import TimerEngine, build_timers
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
