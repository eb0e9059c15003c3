"""kill -9 while the volume of the timers is full: what was acknowledged fires, and then there is room again."""

import asyncio
import random
import signal
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest

from shared.adapters.events.cloudevents import event_of, to_http
from shared.core.values.objects import ObjectRef
from shared.messages import TIMERS_MAX, Purpose, Timer, TimersSet
from tests.builders import not_none
from tests.crash.test_timers_crash import Ledger, check_integrity, finish, now, sink
from tests.crash.timers_process import TimersProcess
from tests.volumes import mounted

pytestmark = pytest.mark.anyio

MESSAGES_MAX = 100


@pytest.fixture
def volume(tmp_path):
    """A tmpfs of 3 MiB, where this process may mount one."""
    with mounted(tmp_path / "volume", mebibytes=3) as folder:
        yield folder


async def ask(url: str, shared_state: Ledger, prefix: str, seconds: float) -> tuple[int, str]:
    """Set as many timers as one message has; returns the answer's status and text."""
    due_at = now() + timedelta(seconds=seconds)
    uids = [f"{prefix}-{number}" for number in range(TIMERS_MAX)]
    refs = [ObjectRef("batch/v1", "Job", "ci", uid, uid) for uid in uids]
    timers = tuple(Timer(ref=ref, purpose=Purpose.EXPIRE, due_at=due_at) for ref in refs)
    headers, body = to_http(event_of(TimersSet(timers=timers), source="crash-test"))
    async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=headers) as answer:
        for uid in uids:
            shared_state.asked[uid].add(due_at)
            if answer.ok:
                shared_state.valid[uid] = {due_at}
        return answer.status, await answer.text()


async def fill(url: str, shared_state: Ledger) -> str:
    for page in range(MESSAGES_MAX):
        status, text = await ask(url, shared_state, f"page-{page}", 15)
        if status == 503:
            return text
        assert status == 204
    raise AssertionError("expected a full file")


@pytest.mark.timeout(180)
async def test_timers_on_a_full_volume_survive_kill_9(volume: Path, tmp_path: Path):
    shared_state = Ledger()
    async with sink(shared_state, random.Random(1)) as sink_url:
        path = volume / "timers.db"
        process = TimersProcess(f"sqlite:{path}", sink_url, tmp_path / "log")
        await process.start()
        await process.until_ready()
        assert "the timer file is full" in await fill(process.url, shared_state)
        acknowledged = len(shared_state.valid)
        for number in range(2):
            await process.end(signal.SIGKILL)
            check_integrity(path, tmp_path / f"copy-{number}.db")
            await process.start()
            await process.until_ready()
        while shared_state.lost():
            await process_alive(process)
        assert (await ask(process.url, shared_state, "afterwards", -1))[0] == 204
        await process.end(signal.SIGKILL)
        await finish(process, shared_state)

    assert acknowledged >= 2 * TIMERS_MAX
    assert shared_state.lost() == []
    assert shared_state.early == []
    assert shared_state.made_up() == []


async def process_alive(process: TimersProcess) -> None:
    """Wait a little, for a process that has not ended."""
    assert not_none(process.process).returncode is None, process.log.read_text()[-2000:]
    await asyncio.sleep(0.05)
