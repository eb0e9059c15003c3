"""A timer file that is damaged, cut off, deleted or read-only, on a real file system."""

import asyncio
import errno
import os
import random
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from shared.adapters.timers.sqlite.engine import SqliteTimers
from shared.adapters.timers.sqlite.file import TimerFile
from shared.errors import TryLaterError, TtlError
from tests.unit.adapters.timers.test_sqlite_engine import (
    WAIT_SECONDS_MAX,
    World,
    stored_timers,
    timer,
    until,
    until_pending,
    world,
)

pytestmark = pytest.mark.anyio
__all__ = ["world"]

PAGE = 4096
COUNT = 4_000


async def fill(world: World) -> None:
    """A file of hundreds of pages, closed."""
    async with world.running() as engine:
        for page in range(COUNT // 500):
            await engine.set([timer(f"uid-{page}-{number}", 60) for number in range(500)])


def garbage(size: int) -> bytes:
    """The same bytes each time."""
    return random.Random(size).randbytes(size)


def scribble(path: Path) -> None:
    """Garbage in the middle of the file."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 4 // PAGE * PAGE)
        file.write(garbage(size // 2 // PAGE * PAGE))


def change_flags(flags: str, *files: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(["chattr", flags, *files], capture_output=True, check=False)


async def refusal(world: World, spoil: Callable[[], object]) -> str:
    """Why a timer is refused after the file was spoiled."""
    async with world.running() as engine:
        await engine.pending()  # so that the first write of `run` comes before that of `set`
        await engine.set([timer("first", 600)])
        spoil()
        with pytest.raises(TryLaterError) as raised:
            await engine.set([timer("second", 600)])
    return str(raised.value)


async def test_deleted_file_refuses_timers(world: World) -> None:
    assert "deleted or replaced while it is open; restart" in await refusal(world, world.path.unlink)


async def test_deleted_log_refuses_timers(world: World) -> None:
    log = Path(f"{world.path}-wal")
    assert "its -wal was deleted or replaced" in await refusal(world, log.unlink)


async def test_replaced_file_refuses_timers(world: World) -> None:
    await fill(world)
    backup = world.path.with_name("backup.db")
    shutil.copy(world.path, backup)
    assert "deleted or replaced" in await refusal(world, lambda: backup.replace(world.path))


async def test_timers_of_a_deleted_file_still_fire(world: World) -> None:
    async with world.running() as engine:
        await engine.set([timer("uid-1", 60)])
        world.path.unlink()
        world.clock.advance(60)
        await until_pending(engine, 0)
    assert [one.ref.uid for one in world.broker.fired] == ["uid-1"]


async def test_file_that_is_cut_off_refuses_timers(world: World) -> None:
    await fill(world)
    size = world.path.stat().st_size
    assert f"expected at least {size} bytes, got {size // 2}" in await refusal(
        world, lambda: os.truncate(world.path, size // 2)
    )


async def test_outcome_that_is_written_to_a_file_that_was_cut_off_does_not_hide_it(world: World) -> None:
    await fill(world)
    async with world.running() as engine:
        await engine.pending()
        await engine.set([timer("first", 600)])
        os.truncate(world.path, world.path.stat().st_size // 2)
        await engine._commits.submit(lambda _: None, shrinks=True)
        with pytest.raises(TryLaterError, match="was cut off"):
            await engine.set([timer("second", 600)])


async def test_garbage_in_the_file_refuses_timers_with_the_reason(world: World) -> None:
    await fill(world)
    async with world.running() as engine:
        engine._file.writer.execute("PRAGMA cache_size = 1")  # else it has all pages of this small file
        scribble(world.path)
        replaced = [[timer(f"uid-{page}-{number}", 600) for number in range(500)] for page in range(COUNT // 500)]
        with pytest.raises(TryLaterError) as raised:
            await asyncio.gather(*map(engine.set, replaced))
    reason = str(raised.value)
    assert "expected a timer file that is not damaged, got: " in reason
    assert "move it away" in reason


async def test_garbage_that_a_read_finds_refuses_timers(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Timers that can be stored but not read would never fire."""
    await fill(world)
    async with world.running() as engine:
        scribble(world.path)
        with pytest.raises(TryLaterError, match="not damaged"):
            await asyncio.gather(*(engine.page(str(start)) for start in range(0, COUNT, 500)))
        with pytest.raises(TryLaterError, match="not damaged"):
            await engine.set([timer("new", 600)])
    assert [record.getMessage() for record in caplog.records].count("the timer file is damaged") == 1


@pytest.mark.verify  # it needs root and chattr
async def test_what_was_acknowledged_survives_a_file_that_becomes_read_only(world: World) -> None:
    files = [f"{world.path}{ending}" for ending in ("", "-wal")]
    async with world.running() as engine:
        await engine.set([timer("before", 60)])
        made = change_flags("+i", *files)
        if made.returncode:
            pytest.skip(f"no file can be made immutable here: {made.stderr.decode().strip()}")
        try:
            with pytest.raises(TryLaterError, match=r"timers could not be stored: (disk I/O error|attempt to write)"):
                await engine.set([timer("refused", 600)])
            world.clock.advance(60)
            await until(lambda: world.broker.fired)
        finally:
            change_flags("-i", *files)
        await until_pending(engine, 0)
        await engine.set([timer("afterwards", 600)])
    assert [one.ref.uid for one in stored_timers(world)] == ["afterwards"]
    assert [one.ref.uid for one in world.broker.fired] == ["before"]


async def test_failing_stat_refuses_timers_only_while_it_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world.running() as engine:
        await engine.set([timer("before", 60)])
        with monkeypatch.context() as patched:
            patched.setattr(Path, "stat", fail_to_stat)
            with pytest.raises(TryLaterError, match="Input/output error"):
                await engine.set([timer("refused", 600)])
            world.clock.advance(60)
            await until_pending(engine, 0)
        await engine.set([timer("afterwards", 600)])
    assert [one.ref.uid for one in stored_timers(world)] == ["afterwards"]


def fail_to_stat(*_: object, **__: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def break_down() -> None:
    raise RuntimeError("never expected")


async def test_unexpected_error_answers_all_writes_and_ends_the_engine(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = world.open()
    monkeypatch.setattr(engine._file.health, "note", break_down)
    for uid in ("uid-1", "uid-2"):
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            with pytest.raises(TryLaterError, match="never expected"):
                await engine.set([timer(uid, 60)])
    with pytest.raises(TtlError, match=r"restart this process.*never expected"):
        await engine.run()
    with pytest.raises(TryLaterError, match="shutting down"):
        await engine.set([timer("uid-3", 60)])
    world.clock.advance(60)
    async with world.running() as engine:
        await until_pending(engine, 0)
    assert [one.ref.uid for one in world.broker.fired] == ["uid-1"], "committed, but not acknowledged"


async def test_unexpected_error_in_spare_time_answers_all_writes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = world.open()
    monkeypatch.setattr(engine._commits, "_spare", lambda _: break_down())
    refusal, number = "", 0
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not refusal:  # the thread has spare time after one of the writes
            refusal, number = await refused(engine, f"uid-{number}"), number + 1
    assert refusal.startswith("timers could not be stored: unexpected error")
    await engine.close()


async def refused(engine: SqliteTimers, uid: str) -> str:
    """Why a timer is refused; empty if it is stored."""
    try:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await engine.set([timer(uid, 60)])
    except TryLaterError as error:
        return str(error)
    return ""


# At start


@pytest.mark.parametrize("part", ["the header", "the first page", "half of it"])
async def test_damaged_file_at_start_is_one_error_that_says_what_to_do(world: World, part: str) -> None:
    await fill(world)
    size = world.path.stat().st_size
    match part:
        case "the header":
            with world.path.open("r+b") as file:
                file.write(garbage(100))
        case "the first page":
            with world.path.open("r+b") as file:
                file.seek(100)
                file.write(garbage(PAGE - 100))
        case _:
            os.truncate(world.path, size // 2)
    before = world.path.read_bytes()
    with pytest.raises(TtlError, match=r"expected a timer file that is not damaged, got: .*backup.*sweep") as raised:
        world.open()
    assert type(raised.value) is TtlError
    assert world.path.read_bytes() == before


async def test_engine_starts_again_after_a_damaged_file_was_moved_away(world: World) -> None:
    await fill(world)
    os.truncate(world.path, PAGE)
    with pytest.raises(TtlError):
        world.open()
    world.path.rename(world.path.with_name("damaged.db"))
    async with world.running() as engine:
        await engine.set([timer("uid-1", 60)])
        assert await engine.pending() == 1


# No full scan


def test_no_statement_of_a_start_scans_the_timers(world: World) -> None:
    """By the plan of each statement that SQLite runs from the start of the engine to its first delivery."""
    TimerFile(world.path).close()
    statements: list[str] = []

    async def start() -> None:
        engine = world.open()
        for connection in (engine._file.writer, engine._file.reader):
            connection.set_trace_callback(statements.append)
        engine._file.purposes = []
        task = asyncio.create_task(engine.run())
        await engine.set([timer("uid-1", 0)])
        await until(lambda: world.broker.fired)
        await until_pending(engine, 0)
        await engine.next_due()
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(start())
    found = {text for text in statements if "timers" in text and not text.startswith("--")}
    with closing(sqlite3.connect(world.path)) as db:
        plans = {text: [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {text}")] for text in found}
    scans = {text for text, plan in plans.items() if any(step.startswith("SCAN timers") for step in plan)}
    assert scans == {"SELECT count(*) FROM timers"}, "only the count of the metrics reads an index as a whole"
    assert any(text.startswith("UPDATE") for text in found)
    assert any("LIMIT" in text for text in found)
