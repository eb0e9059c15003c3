"""The timer file shrinks after its timers have fired."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from shared.adapters.timers.sqlite import file as sqlite_file
from shared.adapters.timers.sqlite.file import KEPT_PAGES, Shrinking, TimerFile
from tests.builders import ROOT
from tests.unit.adapters.timers.test_sqlite_engine import World, timer, until, until_pending, world

pytestmark = pytest.mark.anyio
__all__ = ["world"]

PAGE_BYTES = 4096
MANY = 20_000


def pragma(path: Path, name: str) -> object:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(f"PRAGMA {name}").fetchone()[0]


def fill(db: sqlite3.Connection, count: int) -> None:
    db.execute(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?) INSERT INTO timers"
        " (uid, purpose, due_us, fire_us, ref) SELECT hex(randomblob(18)), 'expire', n, n, hex(zeroblob(60)) FROM n",
        (count,),
    )


async def test_file_shrinks_after_its_timers_have_fired(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "SHRINK_PAGES_MIN", 128)
    monkeypatch.setattr(sqlite_file, "KEPT_PAGES", 32)
    async with world.running() as engine:
        for page in range(20):
            await engine.set([timer(f"uid-{page}-{number}", 60) for number in range(500)])
        large = engine._file.writer.execute("PRAGMA page_count").fetchone()[0]
        world.clock.advance(60)
        await until_pending(engine, 0)
        await until(lambda: world.path.stat().st_size <= large * PAGE_BYTES // 2)
        await engine.set([timer("after", 600)])
    assert large > 256
    assert pragma(world.path, "integrity_check") == "ok"
    assert pragma(world.path, "page_count") < large // 2


def test_file_that_cannot_shrink_is_left_alone(tmp_path: Path) -> None:
    """Without auto_vacuum, a step frees nothing: the thread would be busy for ever."""
    path = tmp_path / "timers.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=WAL")  # a header, so auto_vacuum stays off
    file = TimerFile(path)
    fill(file.writer, MANY)
    file.writer.execute("DELETE FROM timers")
    assert file.writer.execute("PRAGMA auto_vacuum").fetchone()[0] == 0
    assert not Shrinking().step(file.writer)
    file.close()


async def test_waiting_set_comes_before_the_rest_of_the_shrinking(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A set waits for one step only."""
    steps: list[int] = []
    async with world.running() as engine:
        done = asyncio.Event()
        loop = asyncio.get_running_loop()

        def endless(_db: sqlite3.Connection) -> bool:
            steps.append(len(steps))
            loop.call_soon_threadsafe(done.set)
            return True

        monkeypatch.setattr(engine._commits, "_spare", endless)
        await engine.set([timer("uid-1", 60)])
        await done.wait()
        await engine.set([timer("uid-2", 60)])
        assert await engine.pending() == 2
    assert steps


def test_pages_that_new_timers_need_soon_are_kept(tmp_path: Path) -> None:
    file = TimerFile(tmp_path / "timers.db")
    fill(file.writer, MANY)
    file.writer.execute("DELETE FROM timers WHERE id <= ?", (MANY // 8,))
    assert not Shrinking().step(file.writer), "a small part is unused"
    file.writer.execute("DELETE FROM timers")
    shrinker = Shrinking()
    while shrinker.step(file.writer):
        pass
    assert file.writer.execute("PRAGMA freelist_count").fetchone() == (KEPT_PAGES,)
    file.close()


def test_a_step_frees_as_many_pages_as_it_says(tmp_path: Path) -> None:
    file = TimerFile(tmp_path / "timers.db")
    fill(file.writer, MANY)
    file.writer.execute("DELETE FROM timers")
    before = file.writer.execute("PRAGMA freelist_count").fetchone()[0]
    assert Shrinking().step(file.writer)
    assert file.writer.execute("PRAGMA freelist_count").fetchone()[0] == before - sqlite_file.STEP_PAGES
    file.close()


def test_shrinking_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "timers.db"
    file = TimerFile(path)
    fill(file.writer, MANY)
    file.writer.execute("DELETE FROM timers WHERE id % 20 <> 3")
    before = file.writer.execute("SELECT * FROM timers ORDER BY id").fetchall()
    file.close()
    code = (
        "import os, sys; from pathlib import Path; from shared.adapters.timers.sqlite import file\n"
        "opened, shrinker = file.TimerFile(Path(sys.argv[1])), file.Shrinking()\n"
        "for _ in range(10): assert shrinker.step(opened.writer)\n"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    file = TimerFile(path)
    assert file.writer.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert file.writer.execute("SELECT * FROM timers ORDER BY id").fetchall() == before
    file.close()
