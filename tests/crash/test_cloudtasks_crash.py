"""kill -9 of `timers` on Cloud Tasks: no acknowledged timer is lost, and none fires before it is due.

As test_timers_crash.py, with our server of Cloud Tasks in the test. It outlives the process, as Google's does.
"""

import asyncio
import random
import signal
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import aiohttp
import pytest

from shared.devserver.ports import free_port
from shared.messages import Timer
from tests.crash.test_timers_crash import ROUNDS, SEED, Ledger, finish, report, sink, write
from tests.crash.timers_process import TimersProcess
from tests.tasks_server import QUEUE, TasksServer, serving_tasks

pytestmark = pytest.mark.anyio

TASK_WRITERS = 8


@dataclass
class TasksLedger(Ledger):
    """Timers of one object in one second are one task, so the newest timer fires by any arrival once it is due."""

    last: dict[str, datetime] = field(default_factory=dict)

    def arrived(self, timer: Timer, at: datetime) -> None:
        super().arrived(timer, at)
        self.last[timer.ref.uid] = at

    def lost(self) -> list[str]:
        return [uid for uid, dues in self.valid.items() if uid not in self.last or self.last[uid] < min(dues)]


def timers_on_tasks(sink_url: str, server: str, log: Path) -> TimersProcess:
    port = free_port()
    variables = {
        "TTL_TASKS_TARGET": f"http://127.0.0.1:{port}/",
        "TTL_TASKS_ACCOUNT": "ttl-tasks@p.iam.gserviceaccount.com",
    }
    runner = ("tests.crash.tasks_process", server)
    return TimersProcess(f"cloudtasks:{QUEUE}", sink_url, log, environment=variables, runner=runner, port=port)


@pytest.mark.timeout(60 + 5 * ROUNDS)
async def test_timers_on_cloud_tasks_after_kill_9_all_fire_and_none_early(tmp_path):
    print(f"CRASH_SEED={SEED} CRASH_ROUNDS={ROUNDS}")
    chance, shared_state = random.Random(SEED), TasksLedger()
    async with (
        sink(shared_state, random.Random(SEED + 1)) as sink_url,
        aiohttp.ClientSession() as session,
        serving_tasks(TasksServer(), session) as server,
    ):
        process = timers_on_tasks(sink_url, server.address, tmp_path / "log")
        writers = [
            asyncio.create_task(write(f"w{number}", process.url, shared_state, random.Random(f"{SEED}/{number}")))
            for number in range(TASK_WRITERS)
        ]
        for _ in range(ROUNDS):
            await process.start()
            await process.until_ready()
            await asyncio.sleep(chance.uniform(0, 0.8))
            assert await process.end(signal.SIGKILL) == -signal.SIGKILL, process.log.read_text()[-2000:]
        for writer in writers:
            writer.cancel()
        await asyncio.wait(writers)
        await finish(process, shared_state)
    report(shared_state)
    assert shared_state.lost() == []
    assert shared_state.early == []
    assert shared_state.made_up() == []
