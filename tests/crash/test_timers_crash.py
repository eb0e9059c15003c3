"""kill -9, again and again: no acknowledged timer is lost, and none fires before it is due.

One process after the other works on one file and is killed at a random instant, often while it starts, while writers
set and replace timers and a sink takes what fires. The writers and the sink live in the test, so what was acknowledged
and what has fired is known whatever happens to the process.

    CRASH_ROUNDS=500 pytest tests/crash    more kills
    CRASH_SEED=7 pytest tests/crash        the random numbers of an earlier run
"""

import asyncio
import itertools
import os
import random
import shutil
import signal
import sqlite3
from collections import defaultdict
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from shared.adapters.clock import SystemClock
from shared.adapters.events.cloudevents import event_of, parse_event, parse_message, to_http
from shared.core.values.objects import ObjectRef
from shared.messages import Purpose, Timer, TimersSet
from tests.crash.timers_process import TimersProcess
from tests.loopback import answering_with

pytestmark = pytest.mark.anyio

ROUNDS = int(os.getenv("CRASH_ROUNDS", "15"))
SEED = int(os.getenv("CRASH_SEED", str(random.randrange(10**6))))
WRITERS = 32
REFUSED = 0.05
"""The part of its deliveries that the sink refuses, so that there are retries to survive, too."""

now = SystemClock().now


@dataclass
class Ledger:
    """What was asked, what was acknowledged, and what arrived.

    Attributes:
        asked: All dues ever asked for, by uid.
        valid: The dues of which one must fire: the last acknowledged, and those after it that died unanswered, of which
            it is unknown whether they were stored. Empty where nothing was ever acknowledged.
        early: What arrived before its due by this process's wall clock.
    """

    asked: dict[str, set[datetime]] = field(default_factory=lambda: defaultdict(set))
    valid: dict[str, set[datetime]] = field(default_factory=lambda: defaultdict(set))
    fired: dict[str, list[datetime]] = field(default_factory=lambda: defaultdict(list))
    early: list[Timer] = field(default_factory=list)

    def arrived(self, timer: Timer, at: datetime) -> None:
        self.fired[timer.ref.uid].append(timer.due_at)
        if at < timer.due_at:
            self.early.append(timer)

    def lost(self) -> list[str]:
        return [uid for uid, dues in self.valid.items() if not dues.intersection(self.fired[uid])]

    def made_up(self) -> list[str]:
        return [uid for uid, dues in self.fired.items() if not self.asked[uid].issuperset(dues)]


@asynccontextmanager
async def sink(shared_state: Ledger, chance: random.Random):
    async def take(request: web.Request) -> web.Response:
        at = now()
        headers = {name.lower(): value for name, value in request.headers.items()}
        if chance.random() < REFUSED:
            return web.Response(status=503)
        shared_state.arrived(parse_message(parse_event(headers, await request.read()), Timer), at)
        return web.Response(status=202)

    async with answering_with(take) as url:
        yield f"{url}/"


async def write(name: str, url: str, shared_state: Ledger, chance: random.Random) -> None:
    """Set timers of ever new objects, each up to three times, for ever."""
    async with aiohttp.ClientSession() as session:
        for number in itertools.count():
            uid = f"{name}-{number}"
            for _ in range(chance.randint(1, 3)):
                due_at = now() + timedelta(seconds=chance.uniform(-0.1, 1.0))
                timer = Timer(ref=ObjectRef("batch/v1", "Job", "ci", uid, uid), purpose=Purpose.EXPIRE, due_at=due_at)
                await ask(session, url, timer, shared_state)
                await asyncio.sleep(chance.choice([0, 0, 0, 0.02]))


async def ask(session: aiohttp.ClientSession, url: str, timer: Timer, shared_state: Ledger) -> None:
    headers, body = to_http(event_of(TimersSet(timers=(timer,)), source="crash-test"))
    uid = timer.ref.uid
    shared_state.asked[uid].add(timer.due_at)
    acknowledged = False
    with suppress(aiohttp.ClientError, ConnectionError):
        async with session.post(url, data=body, headers=headers) as answer:
            acknowledged = answer.ok
    if acknowledged:
        shared_state.valid[uid] = {timer.due_at}
    elif uid in shared_state.valid:
        shared_state.valid[uid].add(timer.due_at)
    if not acknowledged:
        await asyncio.sleep(0.02)  # it is dead; the next one is starting


def check_integrity(path: Path, scratch: Path) -> None:
    """On a copy: the recovery after the kill is to be the next process's own."""
    for end in ("", "-wal"):
        with suppress(FileNotFoundError):
            shutil.copy(f"{path}{end}", f"{scratch}{end}")
    if scratch.exists():
        with closing(sqlite3.connect(scratch)) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def kill_again_and_again(process: TimersProcess, path: Path, chance: random.Random, tmp_path: Path) -> None:
    for number in range(ROUNDS):
        await process.start()
        if number % 3:
            await process.until_ready()
            await asyncio.sleep(chance.uniform(0, 0.6))
        else:
            await asyncio.sleep(chance.uniform(0, 1.2))  # often before it is ready, or just then
        assert await process.end(signal.SIGKILL) == -signal.SIGKILL, process.log.read_text()[-2000:]
        check_integrity(path, tmp_path / f"copy-{number}.db")


@pytest.mark.timeout(60 + 5 * ROUNDS)
async def test_timers_after_kill_9_all_fire_and_none_early(tmp_path):
    print(f"CRASH_SEED={SEED} CRASH_ROUNDS={ROUNDS}")
    chance, shared_state = random.Random(SEED), Ledger()
    async with sink(shared_state, random.Random(SEED + 1)) as sink_url:
        path = tmp_path / "timers.db"
        process = TimersProcess(f"sqlite:{path}", sink_url, tmp_path / "log")
        writers = [
            asyncio.create_task(write(f"w{number}", process.url, shared_state, random.Random(f"{SEED}/{number}")))
            for number in range(WRITERS)
        ]
        await kill_again_and_again(process, path, chance, tmp_path)
        for writer in writers:
            writer.cancel()
        await asyncio.wait(writers)
        await finish(process, shared_state)
    report(shared_state)
    assert shared_state.lost() == []
    assert shared_state.early == []
    assert shared_state.made_up() == []
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.smoke
@pytest.mark.timeout(300)
async def test_timers_of_a_process_that_is_killed_at_an_acknowledgement_all_fire_and_none_early(tmp_path):
    """Three kills, each right after the last of some acknowledgements."""
    shared_state = Ledger()
    async with sink(shared_state, random.Random(SEED)) as sink_url:
        path = tmp_path / "timers.db"
        process = TimersProcess(f"sqlite:{path}", sink_url, tmp_path / "log")
        for kill in range(3):
            await process.start()
            await process.until_ready(60)
            wanted = len(shared_state.valid) + 200
            writers = [
                asyncio.create_task(write(f"k{kill}w{number}", process.url, shared_state, random.Random(number)))
                for number in range(WRITERS)
            ]
            while len(shared_state.valid) < wanted:
                await asyncio.sleep(0.001)
            assert await process.end(signal.SIGKILL) == -signal.SIGKILL, process.log.read_text()[-2000:]
            for writer in writers:
                writer.cancel()
            await asyncio.wait(writers)
        check_integrity(path, tmp_path / "copy.db")
        await finish(process, shared_state)
    assert shared_state.lost() == []
    assert shared_state.early == []
    assert shared_state.made_up() == []


async def finish(process: TimersProcess, shared_state: Ledger) -> None:
    """Start one more process without a fault: every remaining timer fires, and the process ends on SIGTERM."""
    await process.start()
    await process.until_ready()
    deadline = now() + timedelta(seconds=60)
    while shared_state.lost() and now() < deadline:
        await asyncio.sleep(0.05)
    code = await process.end(signal.SIGTERM)
    assert code in {0, -signal.SIGTERM}, process.log.read_text()[-2000:]


def report(shared_state: Ledger) -> None:
    fired = sum(map(len, shared_state.fired.values()))
    twice = fired - sum(len(set(dues)) for dues in shared_state.fired.values())
    asked = sum(map(len, shared_state.asked.values()))
    print(f"{asked} sets, {len(shared_state.valid)} objects acknowledged, {fired} fired, {twice} of them again")
    assert len(shared_state.valid) > ROUNDS, "the machine is too slow for this test to mean anything"
