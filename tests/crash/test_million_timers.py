"""A million pending timers and kill -9: the next process is ready without a scan, small, and loses none."""

import asyncio
import random
import signal
import sqlite3
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest

from shared.adapters.timers.sqlite.file import TimerFile
from shared.adapters.timers.stored import microseconds
from shared.core.values.objects import ObjectRef
from shared.messages import Purpose, Timer
from tests.builders import not_none
from tests.crash.test_timers_crash import Ledger, ask, finish, now, sink
from tests.crash.timers_process import TimersProcess
from tests.proc import memory_kb

pytestmark = [pytest.mark.anyio, pytest.mark.realtime, pytest.mark.timeout(240)]

MILLION = 1_000_000
RSS_BYTES_MAX = 100 * 1024 * 1024
SETS = 200

FILL = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
INSERT INTO timers (uid, purpose, due_us, fire_us, ref)
SELECT uid, 'expire', due_us, due_us, json_object(
    'api_version', 'batch/v1', 'kind', 'Job', 'namespace', 'ci-' || n % 100, 'name', 'build-' || n, 'uid', uid)
FROM (SELECT n, lower(hex(randomblob(16))) AS uid, ? + n * 1000 AS due_us FROM numbers)
"""


def fill(path: Path) -> None:
    file = TimerFile(path)
    with closing(file):
        file.writer.execute(FILL, (MILLION, microseconds(now() + timedelta(hours=1))))


async def test_a_million_timers_survive_kill_9(tmp_path: Path) -> None:
    ledger = Ledger()
    path = tmp_path / "timers.db"
    process = TimersProcess(f"sqlite:{path}", "", tmp_path / "log")
    await asyncio.to_thread(fill, path)
    async with sink(ledger, random.Random(1)) as sink_url:
        process.sink_url = sink_url
        await process.start()
        await process.until_ready()
        async with aiohttp.ClientSession() as session:
            for number in range(SETS):
                uid = f"set-{number}"
                due_at = now() + timedelta(seconds=0.5 + number / 100)
                ref = ObjectRef("batch/v1", "Job", "ci", uid, uid)
                await ask(session, process.url, Timer(ref=ref, purpose=Purpose.EXPIRE, due_at=due_at), ledger)
        await process.end(signal.SIGKILL)
        started = time.monotonic()
        await process.start()
        await process.until_ready()
        ready = time.monotonic() - started
        while ledger.lost():
            assert not_none(process.process).returncode is None, process.log.read_text()[-2000:]
            await asyncio.sleep(0.05)
        memory = memory_kb(not_none(process.process).pid, "VmHWM") * 1024
        print(f"ready after {ready:.2f} s, at most {memory / 1e6:.0f} MB, file {path.stat().st_size / 1e6:.0f} MB")
        await process.end(signal.SIGKILL)
        await finish(process, ledger)

    assert len(ledger.valid) == SETS
    assert ledger.early == []
    assert memory < RSS_BYTES_MAX
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM timers WHERE uid NOT LIKE 'set-%'").fetchone() == (MILLION,)
