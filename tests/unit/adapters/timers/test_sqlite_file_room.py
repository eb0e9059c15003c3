"""A full timer file and a full disk: stored timers still fire, and the engine recovers."""

import asyncio
import os
import sqlite3
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from shared.adapters.timers.sqlite.engine import UNWRITTEN_MAX, SqliteTimers
from shared.adapters.timers.sqlite.file import Room, TimerFile, room_of
from shared.errors import TryLaterError
from tests.fakes import FakeClock
from tests.unit.adapters.timers.test_sqlite_engine import (
    NOW,
    QUICK,
    Broker,
    replace_timer,
    timer,
    until,
    until_pending,
)
from tests.volumes import mounted

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024


class World:
    def __init__(self, path: Path, room: Room | None) -> None:
        self.path, self.room = path, room
        self.clock = FakeClock(NOW)
        self.broker = Broker(self.clock)

    @asynccontextmanager
    async def running(self):
        engine = SqliteTimers(self.path, self.clock, self.broker, limits=QUICK, room=self.room, jitter=lambda: 0.0)
        task = asyncio.create_task(engine.run())
        try:
            yield engine
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await engine.close()


@pytest.fixture
def small(tmp_path):
    """A file that may hold a MiB, and keeps a quarter of that free."""
    path = tmp_path / "timers.db"
    return World(path, Room(path, bytes_max=MIB, reserve_bytes=MIB // 4, log_bytes=0))


async def fill(engine: SqliteTimers, seconds: float = 60.0) -> list[str]:
    """Set timers until one is refused; return the uids of the accepted ones."""
    taken: list[str] = []
    for page in range(1000):
        timers = [timer(f"uid-{page:03}-{number:03}", seconds) for number in range(100)]
        try:
            await engine.set(timers)
        except TryLaterError:
            return taken
        taken += [one.ref.uid for one in timers]
    raise AssertionError("expected a full file")


async def test_full_file_refuses_new_timers_with_the_reason(small):
    async with small.running() as engine:
        taken = await fill(engine)
        with pytest.raises(TryLaterError, match=r"the timer file is full: its timers take \d+ of 1048576 bytes"):
            await engine.set([timer("one more", 60)])
        assert await engine.pending() == len(taken) > 100


async def test_full_file_accepts_a_replaced_timer(small):
    """The retries that `expire` asks for must not need room."""
    async with small.running() as engine:
        taken = await fill(engine)
        await engine.set([replace_timer(timer(uid, 90), attempts=1) for uid in taken[:500]])
        with pytest.raises(TryLaterError, match="full"):
            await engine.set([timer(taken[0], 90), timer("one more", 90)])


async def test_full_file_fires_its_timers_and_accepts_new_ones_afterwards(small):
    async with small.running() as engine:
        taken = await fill(engine)
        small.clock.advance(60)
        await until_pending(engine, 0)
        assert sorted(fired.ref.uid for fired in small.broker.fired) == sorted(taken)
        assert len(await fill(engine, 600)) > len(taken) // 2


async def test_full_file_reopens(small):
    async with small.running() as engine:
        taken = await fill(engine)
    async with small.running() as engine:
        assert await engine.pending() == len(taken)
        with pytest.raises(TryLaterError, match="full"):
            await engine.set([timer("one more", 60)])
        small.clock.advance(60)
        await until_pending(engine, 0)


async def test_refused_timer_keeps_the_pending_one(small):
    """The timer that was read must not be lost."""
    async with small.running() as engine:
        taken = await fill(engine)
        with pytest.raises(TryLaterError, match="full"):
            await engine.set([timer(taken[0], 3600), timer("one more", 3600)])
        small.clock.advance(60)
        await until_pending(engine, 0)
        assert taken[0] in {fired.ref.uid for fired in small.broker.fired}


@pytest.mark.parametrize(("megabytes", "bytes_max"), [(16, 8 * MIB), (1024, 512 * MIB), (10**6, 512 * MIB)])
def test_small_volume_gets_smaller_limits(tmp_path, monkeypatch, megabytes, bytes_max):
    volume = os.statvfs_result((4096, 4096, megabytes * 256, 0, 0, 0, 0, 0, 0, 255))
    monkeypatch.setattr("shared.adapters.timers.sqlite.file.os.statvfs", lambda _: volume)
    room = room_of(tmp_path / "timers.db")
    assert room.bytes_max == bytes_max
    assert room.reserve_bytes <= bytes_max // 8
    assert room.bytes_max + room.log_bytes < megabytes * MIB


async def test_full_volume_refuses_new_timers(small, monkeypatch):
    async with small.running() as engine:
        await engine.set([timer("before", 60)])
        full = os.statvfs_result((4096, 4096, 4096, 1, 1, 0, 0, 0, 0, 255))
        monkeypatch.setattr("shared.adapters.timers.sqlite.file.os.statvfs", lambda _: full)
        with pytest.raises(TryLaterError, match="its volume has 4096 bytes left"):
            await engine.set([timer("after", 60)])
        small.clock.advance(60)
        await until_pending(engine, 0)


async def test_deliveries_with_unwritten_results_free_their_permits(small):
    """On a full disk, each due timer fires once, and its row is deleted when the disk has room."""
    async with small.running() as engine:
        await engine.set([timer(f"uid-{number}", 60) for number in range(1000)])
        engine._file.writer.execute("PRAGMA busy_timeout = 0")
        other = sqlite3.connect(small.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        small.clock.advance(60)
        await until(lambda: len(small.broker.fired) == 1000)
        assert await engine.pending() == 1000
        other.execute("ROLLBACK")
        other.close()
        await until_pending(engine, 0)
        assert len(small.broker.attempts) == 1000 < UNWRITTEN_MAX


async def test_shrinking_writes_do_not_fail_with_growing_ones(tmp_path):
    """If SQLite reports a full file, the rows of delivered timers are still deleted."""
    path = tmp_path / "timers.db"
    world = World(path, Room(path, bytes_max=64 * MIB, reserve_bytes=0, log_bytes=0))
    async with world.running() as engine:
        await engine.set([timer(f"uid-{number}", 60) for number in range(500)])
        (pages,) = engine._file.writer.execute("PRAGMA page_count").fetchone()
        engine._file.writer.execute(f"PRAGMA max_page_count = {pages}")
        world.clock.advance(60)
        sets = [asyncio.create_task(engine.set([timer(f"new-{n}-{m}", 600) for m in range(400)])) for n in range(20)]
        await until(lambda: len(world.broker.fired) == 500)
        outcomes = await asyncio.gather(*sets, return_exceptions=True)
        assert any(isinstance(outcome, TryLaterError) for outcome in outcomes)
        await until_pending(engine, 400 * sum(outcome is None for outcome in outcomes))


# A real volume


@pytest.fixture
def volume(tmp_path):
    """A tmpfs of 8 MiB, where this process may mount one."""
    with mounted(tmp_path / "volume", mebibytes=8) as folder:
        yield folder


@pytest.mark.verify  # it mounts a volume
async def test_timers_fire_on_a_completely_full_volume(volume):
    world = World(volume / "timers.db", None)
    async with world.running() as engine:
        taken = [f"uid-{number}" for number in range(3000)]
        await engine.set([timer(uid, 60) for uid in taken])
        ballast = volume / "ballast"
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))
        assert os.statvfs(volume).f_bavail == 0
        with pytest.raises(TryLaterError, match="full"):
            await engine.set([timer("new", 600)])
        world.clock.advance(60)
        await until(lambda: len(world.broker.fired) == len(taken))
        assert sorted(fired.ref.uid for fired in world.broker.fired) == sorted(taken)
        ballast.unlink()
        await until_pending(engine, 0)
        assert await fill(engine, 600)
        assert len(world.broker.attempts) == len(taken) < UNWRITTEN_MAX


def test_log_space_is_reserved_at_start_and_read_as_empty(tmp_path):
    path = tmp_path / "timers.db"
    file = TimerFile(path)
    assert Path(f"{path}-wal").stat().st_size >= file.room.log_bytes > 0
    file.close()
    TimerFile(path).close()
