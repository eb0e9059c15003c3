"""A share with a large backlog costs the others nothing; SQLite counts the steps of its virtual machine."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.adapters.timers.delivery import share_of
from shared.adapters.timers.sqlite import due_queue
from shared.adapters.timers.sqlite.due_queue import SCANNED_ROWS, START, DueRead
from shared.adapters.timers.sqlite.engine import SqliteTimers
from shared.adapters.timers.sqlite.file import prepare
from shared.adapters.timers.sqlite.store import put, row_of
from shared.core.values.objects import ObjectRef
from shared.errors import TryLaterError
from shared.messages import Purpose, Timer
from tests.unit.adapters.timers.test_sqlite_engine import (
    QUICK,
    World,
    timer,
    turns,
    until,
    until_pending,
    world,
)

pytestmark = pytest.mark.anyio
__all__ = ["world"]

FAILING = 20_000
"""Overdue timers of one kind and namespace whose deliveries fail."""

STEPS_OF_A_ROW = 30
"""Steps that one row takes at most."""


class Steps:
    """Counts the steps of a connection."""

    def __init__(self, db: sqlite3.Connection, unit: int = 100) -> None:
        self._units, self._unit = 0, unit
        db.set_progress_handler(self._count, unit)

    def _count(self) -> int:
        self._units += 1
        return 0

    def take(self) -> int:
        """Return the steps since the last call."""
        steps, self._units = self._units * self._unit, 0
        return steps


async def fill(engine: SqliteTimers, world: World) -> None:
    """Store the failing timers, older than all others."""
    for first in range(0, FAILING, 2_000):
        await engine.set([timer(f"broken-{n}", -600, kind="RayJob") for n in range(first, first + 2_000)])


def fired(world: World, prefix: str) -> int:
    return sum(one.ref.uid.startswith(prefix) for one in world.broker.fired)


@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_timers_of_others_take_few_steps_beside_a_large_share_that_fails(world: World, how: str) -> None:
    async def refuse(message: object) -> None:
        if message.ref.kind == "RayJob":  # type: ignore[attr-defined]
            raise TryLaterError("no conversion")
        await publish(message)  # type: ignore[arg-type]

    publish = world.broker.publish
    if how == "hangs":
        world.broker.hang("RayJob")
    else:
        world.broker.publish = refuse  # type: ignore[method-assign]
    async with world.running() as engine:
        await fill(engine, world)
        await engine.set([timer("first", -1)])
        await until(lambda: fired(world, "first"))
        world.clock.advance(1)
        steps = Steps(engine._file.reader)
        for number in range(50):
            await engine.set([timer(f"overdue-{number}", -1), timer(f"due-{number}", 1)])
            await until(lambda: fired(world, "") >= 2 * number + 3)  # noqa: B023 - called at once
        assert steps.take() <= 100 * 20 * STEPS_OF_A_ROW  # a scan of the failing ones takes five times that
        assert await engine.pending() >= FAILING


async def test_no_read_of_due_timers_takes_more_steps_than_its_rows(world: World) -> None:
    """Neither the first scan after a start, nor one within equal times, nor a load of a share among others."""
    engine = world.open()
    await fill(engine, world)
    await engine.set([timer(f"other-{n}", -1, namespace=f"n{n}") for n in range(2_000)])
    db = engine._file.reader
    steps = Steps(db)
    scan, found = DueRead(Purpose.EXPIRE, 2**62, after=START), 0
    while rows := (result := scan.run(db)).waiting:
        assert steps.take() <= SCANNED_ROWS * STEPS_OF_A_ROW
        found += len(rows)
        scan = replace(scan, after=result.cursor or (2**62, 0))
    assert found == FAILING + 2_000
    load = dict.fromkeys(range(FAILING + 1, FAILING + 33), ("batch/v1 Job", "ci"))
    loaded = DueRead(Purpose.EXPIRE, 2**62, load=load).run(db)
    assert [one.uid for one, _ in loaded.loaded] == [f"other-{n}" for n in range(32)]
    assert steps.take() <= 32 * STEPS_OF_A_ROW
    looked_up = DueRead(Purpose.EXPIRE, 2**62, uids=("other-7", "other-8", "absent")).run(db)
    assert [share for _, share in looked_up.waiting] == [("batch/v1 Job", "n7"), ("batch/v1 Job", "n8")]
    assert steps.take() <= 3 * STEPS_OF_A_ROW
    await engine.close()


async def test_every_timer_of_a_large_share_is_delivered_once_its_target_works(world: World) -> None:
    gate = world.broker.hang("RayJob")
    async with world.running() as engine:
        await fill(engine, world)
        await until(lambda: world.broker.waiting)
        gate.set()
        await until_pending(engine, 0)
    assert len({one.ref.uid for one in world.broker.fired}) == len(world.broker.fired) == FAILING


async def test_more_overdue_sets_than_are_looked_up_are_found_by_a_new_scan(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_queue, "BEHIND_MAX", 20)
    gate = world.broker.hang()
    async with world.running(replace(QUICK, in_flight=1)) as engine:
        await engine.set([timer("first", -1)])
        await until(lambda: world.broker.waiting == 1)
        for number in range(50):
            await engine.set([timer(f"uid-{number}", -2)])
        gate.set()
        await until_pending(engine, 0)
    assert len(world.broker.fired) == 51


async def test_scan_pauses_while_too_many_shares_wait_and_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_queue, "SHARES_MAX", 8)
    gate = world.broker.hang()
    async with world.running() as engine:
        await engine.set([timer(f"uid-{n}", -60 + n, namespace=f"n{n}") for n in range(40)])
        await engine.set([timer(f"more-{n}", -10, kind=f"K{n}") for n in range(SCANNED_ROWS + 100)])
        await until(lambda: world.broker.waiting)
        await turns(engine)
        gate.set()
        await until_pending(engine, 0)
    assert len(world.broker.fired) == 140 + SCANNED_ROWS


TEXTS = st.one_of(st.text(st.characters(exclude_categories=["Cs"])), st.just(',"name":'), st.just('\\",\\"name\\":"'))


@given(st.builds(ObjectRef, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS))
def test_share_is_read_from_the_beginning_of_a_stored_reference(ref: ObjectRef) -> None:
    due_at = datetime(2026, 1, 1, tzinfo=UTC)
    row = row_of(Timer.model_construct(ref=ref, purpose=Purpose.EXPIRE, due_at=due_at, attempts=0), due_at)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        prepare(db, Path("memory"))
        put(db, [row], lambda _: "")
        found = DueRead(Purpose.EXPIRE, 2**62, after=START).run(db)
    assert [share for _, share in found.waiting] == [share_of(ref)]
