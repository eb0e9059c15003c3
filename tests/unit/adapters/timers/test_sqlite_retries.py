"""All retries are brought forward after a start and after a clock step, in slices between which timers fire."""

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from shared.adapters.timers.sqlite import store
from shared.adapters.timers.sqlite.store import LAST_RETRY, Position, retry_now, to_us
from shared.errors import TryLaterError
from shared.messages import Purpose
from tests.unit.adapters.timers.test_sqlite_engine import (
    HOUR,
    NOW,
    OTHER,
    QUICK,
    World,
    replace_timer,
    statements,
    timer,
    until,
    until_pending,
    world,
)

pytestmark = pytest.mark.anyio
__all__ = ["world"]

COUNT = 95


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "RETRIES_OF_ONE_SLICE", 10)


async def fill(world: World, *, later: int) -> None:
    """Timers that failed, each planned an hour from now or later, and some at the same instant."""
    engine = world.open()
    await engine.set([timer(f"uid-{number}") for number in range(COUNT)])
    await engine.set([replace_timer(timer(f"later-{number}", 7200), attempts=1) for number in range(later)])
    await engine.close()
    with closing(sqlite3.connect(world.path)) as db, db:
        db.execute("UPDATE timers SET attempts = 3, fire_us = due_us + 3600000000 + id / 30 WHERE uid LIKE 'uid-%'")


@pytest.mark.parametrize("later", [0, 25])
async def test_restart_retries_all_slices(world: World, later: int) -> None:
    """Also past more timers than a slice that are not due yet: they stay as they are."""
    await fill(world, later=later)
    async with world.running() as engine:
        await until_pending(engine, later)
        seen = statements(engine._file.writer)
        await engine.set([timer("new", 60)])
        assert not [text for text in seen if text.startswith("UPDATE timers SET fire_us = due_us")]
    assert len({fired.ref.uid for fired in world.broker.fired}) == len(world.broker.attempts) == COUNT


async def test_clock_set_back_during_the_slices_begins_again(world: World) -> None:
    world.clock.at = NOW + HOUR / 2
    world.broker.failing[Purpose.EXPIRE] = TryLaterError("away")
    await fill(world, later=0)
    async with world.running() as engine:
        await until(lambda: len(world.broker.attempts) > COUNT // 4)
        world.broker.failing.clear()
        world.clock.at = NOW
        await until_pending(engine, 0)


async def test_timers_are_set_and_fire_between_the_slices(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(world, later=0)
    world.broker.failing[Purpose.EXPIRE] = TryLaterError("away")
    engine = world.open()
    monkeypatch.setattr(world, "open", lambda _: engine)
    slices: list[Position | None] = []
    fired_after: list[list[str]] = []
    retry_slice = engine._retry_slice

    async def one_slice(position: Position, now_us: int) -> None:
        if len(slices) == 1:
            await engine.set([timer("new", -1, purpose=OTHER)])
        await retry_slice(position, now_us)
        slices.append(engine._retries)
        fired_after.append([fired.ref.uid for fired in world.broker.fired])

    monkeypatch.setattr(engine, "_retry_slice", one_slice)
    async with world.running():
        await until(lambda: slices and slices[-1] is None)
    assert len(slices) > COUNT // 10
    assert fired_after[0] == []
    assert fired_after[-1] == ["new"]


async def test_slices_do_not_each_read_the_due_timers(world: World) -> None:
    """A read skips the rows of a hanging share one by one."""
    await fill(world, later=0)
    gate = world.broker.hang()
    engine = world.open(replace(QUICK, in_flight=3))
    seen = statements(engine._file.reader)
    for _ in range(COUNT // 10 + 1):
        await engine._watch_clock()
        for lane in engine._lanes.values():
            await engine._read_due(lane)
            engine._start(lane)
    assert engine._retries is None
    assert len([text for text in seen if "ORDER BY fire_us" in text]) <= 2
    gate.set()
    await engine.close()


async def test_a_slice_takes_the_latest_retries_and_ends_without_a_full_one(world: World) -> None:
    await fill(world, later=0)
    with closing(sqlite3.connect(world.path)) as db, db:
        before = [row[0] for row in db.execute("SELECT id FROM timers ORDER BY fire_us DESC, id DESC")]
        now_us, done, position = to_us(NOW), 0, LAST_RETRY
        while next_position := retry_now(db, now_us, position):
            position, done = next_position, done + 10
            changed = {row[0] for row in db.execute("SELECT id FROM timers WHERE fire_us = due_us")}
            assert changed == set(before[:done])
        assert done == COUNT // 10 * 10
        assert db.execute("SELECT count(*) FROM timers WHERE fire_us > due_us").fetchone() == (0,)
