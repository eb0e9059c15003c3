"""The embedded timer engine on a real file, with a clock and a broker that the test controls."""

import asyncio
import errno
import logging
import os
import sqlite3
import stat
import tempfile
import threading
from collections import defaultdict
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.adapters.timers.delivery import FAILING_PERMITS, LIMITS, EngineLimits
from shared.adapters.timers.sqlite.due_queue import START, DueQueue, DueRead, ReadResult
from shared.adapters.timers.sqlite.engine import SqliteTimers
from shared.adapters.timers.sqlite.file import SCHEMA_VERSION
from shared.adapters.timers.sqlite.store import StoredTimer
from shared.core.values.objects import ObjectRef
from shared.errors import EventError, ForbiddenError, PermanentError, TryLaterError, TtlError
from shared.messages import Message, Purpose, Timer
from tests.builders import not_none
from tests.fakes import FakeClock

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 3, 14, 15, 9, 26, 535_897, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)

# The engine looks at the clock every millisecond here, so that a clock moved by hand is seen without waiting. What
# only a delivery that hangs would take has no time limit: on a slow machine, a healthy one may take long.
QUICK = EngineLimits(
    rest_seconds=0.001, disk_seconds=0.001, delivery_seconds=dict.fromkeys(Purpose, 3_600.0), grace_seconds=3_600.0
)

WAIT_SECONDS_MAX = 60.0
"""Only a fault lets a wait take so long."""

ALONE = LIMITS.in_flight // 3
"""Deliveries at once where all timers are of one kind and one namespace."""

OTHER = "archive"
"""A purpose of a later version: to the engine a purpose is text."""


@dataclass
class Broker:
    """Accepts every timer, except those whose purpose is set to fail or to hang."""

    clock: FakeClock
    fired: list[Timer] = field(default_factory=list)
    early: list[Timer] = field(default_factory=list)
    attempts: list[tuple[datetime, Timer]] = field(default_factory=list)
    failing: dict[str, BaseException] = field(default_factory=dict)
    failures: list[BaseException] = field(default_factory=list)  # of the next ones, for any purpose
    hanging: dict[str, asyncio.Event] = field(default_factory=dict)
    waiting: int = 0
    waiting_most: int = 0

    async def publish(self, message: Message) -> None:
        timer = message
        assert isinstance(timer, Timer)
        if timer.due_at > self.clock.now():
            self.early.append(timer)  # not raised: the engine would count it as a failure of the broker
        self.attempts.append((self.clock.now(), timer))
        hanging = (self.hanging.get(key) for key in (timer.purpose, timer.ref.kind, timer.ref.namespace))
        if gate := next((gate for gate in hanging if gate), None):
            self.waiting += 1
            self.waiting_most = max(self.waiting, self.waiting_most)
            try:
                await gate.wait()
            finally:
                self.waiting -= 1
        if self.failures:
            raise self.failures.pop()
        if error := self.failing.get(timer.purpose):
            raise error
        self.fired.append(timer)

    def hang(self, purpose: str = Purpose.EXPIRE) -> asyncio.Event:
        return self.hanging.setdefault(purpose, asyncio.Event())


class Watched(SqliteTimers):
    """An engine that shows its turns.

    Attributes:
        rests: How often it has come to its rest, which ends each turn of its loop.
        is_at_rest: Whether it sleeps, and nothing has woken it.
    """

    rests = 0
    _is_resting = False

    async def _rest(self) -> None:
        self.rests += 1
        self._is_resting = True
        try:
            await super()._rest()
        finally:
            self._is_resting = False

    @property
    def is_at_rest(self) -> bool:
        return self._is_resting and not self._wake.is_set()


@dataclass
class World:
    path: Path
    clock: FakeClock
    broker: Broker

    def open(self, limits: EngineLimits = QUICK) -> Watched:
        return Watched(self.path, self.clock, self.broker, limits=limits, jitter=lambda: 0.0)

    @asynccontextmanager
    async def running(self, limits: EngineLimits = QUICK):
        engine = self.open(limits)
        task = asyncio.create_task(engine.run())
        try:
            yield engine
        finally:
            for gate in self.broker.hanging.values():
                gate.set()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await engine.close()  # a task that never began has not closed it


@pytest.fixture
def world(tmp_path):
    clock = FakeClock(NOW)
    world = World(tmp_path / "timers.db", clock, Broker(clock))
    yield world
    assert world.broker.early == []


def timer(
    uid: str = "uid-1",
    seconds: float = 0.0,
    *,
    purpose: str = Purpose.EXPIRE,
    kind: str = "Job",
    namespace: str = "ci",
) -> Timer:
    ref = ObjectRef("batch/v1", kind, namespace, f"build-{uid}", uid)
    return Timer.model_construct(ref=ref, purpose=cast("Purpose", purpose), due_at=NOW + timedelta(seconds=seconds))


def replace_timer(one: Timer, **changes: object) -> Timer:
    return one.model_copy(update=changes)


def stored_timers(world: World) -> list[Timer]:
    """The timers in the file."""
    query = "SELECT id, uid, purpose, due_us, fire_us, attempts, generation, ref FROM timers ORDER BY purpose, fire_us"
    with closing(sqlite3.connect(world.path)) as db:
        return [StoredTimer(*row).timer() for row in db.execute(query)]


async def until(condition) -> None:
    """Wait in real time, for threads and turns of the loop only: nothing here waits for the clock."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not condition():
            await asyncio.sleep(0.0005)


async def until_pending(engine: SqliteTimers, count: int) -> None:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while await engine.pending() != count:
            await asyncio.sleep(0.0005)


async def until_next_due(engine: SqliteTimers, instant: datetime) -> None:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while await engine.next_due() != instant:
            await asyncio.sleep(0.0005)


async def turns(engine: Watched, count: int = 3) -> None:
    """Wait for turns of the engine that begin after this call: it reads its clock, and starts what is due.

    The first rest may be that of a turn which began before, and the deliveries of the second turn begin before the
    third rest. So what has not happened then does not happen before the clock moves.
    """
    last = engine.rests + count
    await until(lambda: engine.rests >= last)


def records(caplog, message):
    return [record for record in caplog.records if record.message == message]


def statements(connection: sqlite3.Connection) -> list[str]:
    seen: list[str] = []
    connection.set_trace_callback(seen.append)
    return seen


# On time


async def test_timer_fires_at_its_due_time_and_not_a_microsecond_before(world):
    async with world.running() as engine:
        await engine.set([timer(seconds=60)])
        world.clock.at = NOW + timedelta(seconds=60) - MICROSECOND
        await turns(engine)
        assert world.broker.fired == []
        world.clock.at += MICROSECOND
        await until(lambda: world.broker.fired)
        assert world.broker.fired == [timer(seconds=60)]
        await until_pending(engine, 0)


async def test_overdue_timer_fires_at_once(world):
    async with world.running() as engine:
        await engine.set([timer(seconds=-3600)])
        await until(lambda: world.broker.fired)


async def test_earlier_timer_wakes_the_engine(world):
    async with world.running(replace(QUICK, rest_seconds=3600)) as engine:
        await engine.set([timer("far", 7200)])
        await until(lambda: engine.is_at_rest)
        await engine.set([timer("near", 0)])
        await until(lambda: world.broker.fired == [timer("near", 0)])


async def test_engine_sleeps_until_the_exact_due_time(world):
    async with world.running(replace(QUICK, rest_seconds=3600)) as engine:
        await engine.set([timer(seconds=0.02)])
        await until(lambda: engine.is_at_rest)
        world.clock.advance(0.02)
        await until(lambda: world.broker.fired)


async def test_clock_set_back_delays_timers(world):
    async with world.running() as engine:
        await engine.set([timer(seconds=10)])
        world.clock.advance(-3600)
        await turns(engine)
        world.clock.advance(3609)
        await turns(engine)
        assert world.broker.fired == []
        world.clock.advance(1)
        await until(lambda: world.broker.fired)


async def test_clock_set_back_delays_timers_that_were_read(world):
    gate = world.broker.hang()
    async with world.running(replace(QUICK, in_flight=1)) as engine:
        await engine.set([timer(f"uid-{number}", number) for number in range(5)])
        world.clock.advance(10)
        await until(lambda: world.broker.waiting == 1)
        world.clock.at = NOW + timedelta(seconds=1.5)
        gate.set()
        await until(lambda: len(world.broker.fired) == 2)
        await turns(engine)
        assert [fired.ref.uid for fired in world.broker.fired] == ["uid-0", "uid-1"]
        world.clock.advance(10)
        await until(lambda: len(world.broker.fired) == 5)


async def test_clock_set_back_during_a_failed_delivery_delays_its_retry(world):
    gate = world.broker.hang()
    async with world.running() as engine:
        await engine.set([timer(seconds=10)])
        world.clock.advance(10)
        await until(lambda: world.broker.waiting == 1)
        world.clock.advance(-5)
        await turns(engine)  # the step itself is seen, and over, before the delivery fails
        world.broker.failures = [OSError("connection refused")]
        gate.set()
        await until(lambda: not world.broker.failures)
        await until(lambda: stored_timers(world)[0].attempts == 1)
        world.clock.advance(4.9)
        await turns(engine)
        assert len(world.broker.attempts) == 1
        world.clock.advance(10)
        await until(lambda: len(world.broker.attempts) == 2)


async def test_clock_set_forward_fires_due_timers(world):
    async with world.running() as engine:
        await engine.set([timer("near", 60), timer("far", 6 * 3600)])
        world.clock.advance(5 * 3600)
        await until(lambda: world.broker.fired == [timer("near", 60)])
        await until_pending(engine, 1)  # it is deleted after it was fired
        assert stored_timers(world) == [timer("far", 6 * 3600)]


async def test_idle_engine_does_not_read(world):
    async with world.running() as engine:
        await engine.set([timer(f"uid-{number}", 3600) for number in range(100)])
        seen = statements(engine._file.reader)
        read = -1
        while read != len(seen):  # the reads that the new timers cause, however late a busy machine runs them
            read = len(seen)
            await turns(engine)
        seen.clear()
        for _ in range(50):
            world.clock.advance(1)
            await turns(engine)
        assert seen == []


async def test_one_read_returns_many_timers(world):
    engine = world.open()
    await engine.set([timer(f"uid-{number}", -number) for number in range(2000)])
    seen = statements(engine._file.reader)
    running = asyncio.create_task(engine.run())
    await until(lambda: len(world.broker.fired) == 2000)
    assert len(seen) < 4 * (2000 / QUICK.claim + 3)
    running.cancel()
    await asyncio.wait([running])


# One timer for each uid and purpose


@pytest.mark.parametrize(("first", "second"), [(10, 60), (60, 10)], ids=["later", "earlier"])
async def test_set_replaces_the_pending_timer(world, first, second):
    async with world.running() as engine:
        await engine.set([timer(seconds=first)])
        await engine.set([timer(seconds=second)])
        assert await engine.pending() == 1
        world.clock.advance(3600)
        await until(lambda: world.broker.fired)
        await until_pending(engine, 0)
        assert world.broker.fired == [timer(seconds=second)]


async def test_last_timer_of_one_set_wins(world):
    async with world.running() as engine:
        await engine.set([timer(seconds=30), timer(seconds=20), timer(seconds=40)])
        assert stored_timers(world) == [timer(seconds=40)]


async def test_timer_replaced_before_its_delivery_fires_as_replaced(world):
    gate = world.broker.hang()
    async with world.running(replace(QUICK, in_flight=1)) as engine:
        await engine.set([timer("first", -2), timer("second", -1)])
        await until(lambda: world.broker.waiting == 1)
        await engine.set([timer("second", 60)])
        gate.set()
        await until_pending(engine, 1)
        await turns(engine)
        assert world.broker.fired == [timer("first", -2)]


SHARE = ("v1 Pod", "ci")


def scan_into(queue: DueQueue, *uids: str) -> None:
    """Let a queue scan rows and begin to load them, as from a file."""
    assert queue.begin_read(100, 10) == DueRead(OTHER, 100, after=START)
    queue.end_read(ReadResult(waiting=[(number, SHARE) for number, _ in enumerate(uids)]))
    assert queue.begin_read(100, 10) == DueRead(OTHER, 100, load=dict.fromkeys(range(len(uids)), SHARE))


def loaded(*uids: str) -> ReadResult:
    return ReadResult(loaded=[(StoredTimer(n, uid, OTHER, 0, 0, 0, 1, ""), SHARE) for n, uid in enumerate(uids)])


def test_timer_replaced_during_a_read_is_read_again():
    queue = DueQueue(OTHER, permits=1)
    scan_into(queue, "replaced")
    queue.replace("replaced", 500)
    queue.end_read(loaded("replaced"))  # as it was
    assert not_none(queue.take(now_us=100)).uid == "replaced"
    queue.finish("replaced", 500, failed=False)
    assert queue.take(now_us=100) is None
    assert queue.next_us() == 500


def test_timer_set_during_a_scan_to_a_time_before_it_is_looked_up():
    queue = DueQueue(OTHER, permits=3)
    assert queue.begin_read(100, 10) == DueRead(OTHER, 100, after=START)
    assert queue.replace("missed", 90)
    queue.end_read(ReadResult())
    assert queue.begin_read(100, 10) == DueRead(OTHER, 100, uids=("missed",))


def test_scan_that_stops_at_its_limit_goes_on_at_its_last_row():
    queue = DueQueue(OTHER, permits=3)
    queue.begin_read(100, 10)
    queue.end_read(ReadResult(cursor=(50, 7), next_us=100))
    assert queue.begin_read(100, 10) == DueRead(OTHER, 100, after=(50, 7))


def test_scan_that_is_to_begin_again_keeps_no_position(monkeypatch):
    monkeypatch.setattr("shared.adapters.timers.sqlite.due_queue.BEHIND_MAX", 0)
    queue = DueQueue(OTHER, permits=3)
    queue.begin_read(100, 10)
    queue.replace("one too many", 90)
    queue.end_read(ReadResult(cursor=(50, 7), next_us=100))
    assert not_none(queue.begin_read(100, 10)).after == START


def test_timer_delivered_during_a_read_is_not_taken_again():
    queue = DueQueue(OTHER, permits=3)
    scan_into(queue, "landed")
    queue.end_read(loaded("landed"))
    queue.take(now_us=100)
    queue.restart()
    scan_into(queue, "landed")
    queue.finish("landed", 800, failed=False)
    queue.end_read(loaded("landed"))
    assert queue.take(now_us=100) is None
    assert queue.next_us() == 800


def test_timer_set_behind_the_scan_is_looked_up():
    queue = DueQueue(OTHER, permits=3)
    scan_into(queue, "first")
    queue.end_read(loaded("first"))
    queue.take(now_us=100)
    assert queue.replace("behind", 20)
    assert queue.begin_read(100, 10) == DueRead(OTHER, 100, uids=("behind",))


@pytest.mark.parametrize("seconds", [-5, 60], ids=["overdue", "due later"])
@pytest.mark.parametrize("error", [None, TryLaterError("away"), PermanentError("no")], ids=repr)
async def test_timer_set_during_its_delivery_survives(world, error, seconds):
    gate = world.broker.hang()
    async with world.running() as engine:
        await engine.set([timer(seconds=-9)])
        await until(lambda: world.broker.waiting == 1)
        await engine.set([timer(seconds=seconds)])
        world.broker.failures = [error] if error else []
        gate.set()
        world.clock.advance(max(seconds, 0))  # no back-off: the replacement has not failed yet
        await until_pending(engine, 0)
        assert world.broker.fired[-1] == timer(seconds=seconds)


async def test_purposes_of_one_object_have_separate_timers(world):
    async with world.running() as engine:
        await engine.set([timer(seconds=1), timer(seconds=2, purpose=OTHER)])
        assert await engine.pending() == 2
        world.clock.advance(5)
        await until(lambda: len(world.broker.fired) == 2)
        assert {fired.purpose for fired in world.broker.fired} == {Purpose.EXPIRE, OTHER}


# Deliveries that fail


@pytest.mark.parametrize(
    ("attempts", "error", "jitter", "seconds"),
    [
        (0, TimeoutError(), 0.0, 0.5),
        (1, TimeoutError(), 0.0, 1.0),
        (4, TimeoutError(), 0.0, 8.0),
        (7, TimeoutError(), 0.0, 60.0),
        (10**9, TimeoutError(), 0.0, 60.0),
        (7, TimeoutError(), 1.0, 45.0),
        (0, TryLaterError("", retry_after_seconds=5), 1.0, 5.0),
        (0, TryLaterError("", retry_after_seconds=86_400), 0.0, 60.0),
        (0, EventError(""), 0.0, 60.0),
        (0, ForbiddenError(""), 1.0, 45.0),
    ],
)
def test_back_off_doubles_up_to_its_maximum(attempts, error, jitter, seconds):
    assert LIMITS.retry_seconds(attempts, error, jitter) == seconds


async def test_failed_delivery_is_retried_with_doubling_back_off(world):
    world.broker.failing[Purpose.EXPIRE] = OSError("connection refused")
    async with world.running() as engine:
        await engine.set([timer()])
        for attempts, seconds in enumerate([0.5, 1.0, 2.0, 4.0], start=1):
            await until(lambda attempts=attempts: len(world.broker.attempts) == attempts)
            await until_next_due(engine, world.clock.at + timedelta(seconds=seconds))
            world.clock.advance(seconds - 0.000_001)
            await turns(engine)
            assert len(world.broker.attempts) == attempts
            world.clock.advance(0.000_001)
        world.broker.failing.clear()
        world.clock.advance(60)
        await until_pending(engine, 0)


async def test_set_resets_failed_attempts(world):
    world.broker.failing[Purpose.EXPIRE] = PermanentError("no")
    async with world.running() as engine:
        await engine.set([timer()])
        await until_next_due(engine, NOW + timedelta(seconds=60))
        world.broker.failing[Purpose.EXPIRE] = OSError("connection refused")
        await engine.set([timer()])
        await until_next_due(engine, NOW + timedelta(seconds=0.5))


@pytest.mark.parametrize("error", [EventError("not an event"), ForbiddenError("not admitted")], ids=repr)
async def test_refused_timer_is_kept_and_logged_at_each_attempt(world, caplog, error):
    world.broker.failing[Purpose.EXPIRE] = error
    async with world.running() as engine:
        await engine.set([timer()])
        for attempts in (1, 2, 3):
            await until_next_due(engine, world.clock.at + timedelta(seconds=60))
            assert [record.levelno for record in records(caplog, "timer refused")] == [logging.ERROR] * attempts
            world.clock.advance(60)
        world.broker.failing.clear()
        world.clock.advance(60)
        await until_pending(engine, 0)


async def test_outage_is_logged_once(world, caplog):
    world.broker.failing[Purpose.EXPIRE] = TryLaterError("away")
    async with world.running() as engine:
        await engine.set([timer(f"uid-{number}") for number in range(200)])
        await until(lambda: len(world.broker.attempts) == 200)
        await until_next_due(engine, NOW + timedelta(seconds=1))
        assert len(records(caplog, "timers not delivered")) == 1


async def test_delivery_that_never_ends_times_out_and_is_retried(world):
    world.broker.hang()
    quick = replace(QUICK, delivery_seconds=dict.fromkeys(Purpose, 0.001))
    async with world.running(quick) as engine:
        await engine.set([timer()])
        await until_next_due(engine, NOW + timedelta(seconds=0.5))
        world.broker.hanging.clear()
        world.clock.advance(1)
        await until(lambda: world.broker.fired)


async def cancel_the_delivery() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(1)


async def fail_in_a_group() -> None:
    """Python 3.11 counts the delivery as cancelled afterwards."""

    async def fail() -> None:
        raise TryLaterError("the Broker is away")

    async with asyncio.TaskGroup() as group:
        group.create_task(fail())


@pytest.mark.parametrize("fail", [cancel_the_delivery, fail_in_a_group])
async def test_attempt_of_a_publisher_that_cancels_itself_or_its_tasks_counts_once(world, monkeypatch, fail):
    publish, attempts = world.broker.publish, []

    async def fails_once(message: Timer) -> None:
        attempts.append(message.attempts)
        if len(attempts) == 1:
            await fail()
        await publish(message)

    monkeypatch.setattr(world.broker, "publish", fails_once)
    async with world.running() as engine:
        await engine.set([timer()])
        await until_next_due(engine, NOW + timedelta(seconds=0.5))
        world.clock.advance(1)
        await until_pending(engine, 0)
    assert attempts == [0, 1]


async def test_failing_purpose_delays_no_other(world):
    world.broker.hang(OTHER)
    async with world.running() as engine:
        await engine.set([timer(f"uid-{number}", -60, purpose=OTHER) for number in range(500)])
        await until(lambda: world.broker.waiting == ALONE)
        await engine.set([timer(f"uid-{number}") for number in range(300)])
        await until(lambda: len(world.broker.fired) == 300)
        assert world.broker.waiting_most == ALONE


@pytest.mark.parametrize("namespaces", [1, 10, 400])
async def test_engine_delivers_other_kinds_while_the_timers_of_one_kind_hang(world, namespaces):
    world.broker.hang("RayJob")
    broken = [
        timer(f"broken-{number}", -60, kind="RayJob", namespace=f"n{number % namespaces}") for number in range(2000)
    ]
    async with world.running() as engine:
        await engine.set(broken)
        await until(lambda: world.broker.waiting >= min(ALONE, QUICK.in_flight // 3))
        await engine.set([timer(f"honest-{number}", namespace="n0") for number in range(300)])
        await until(lambda: len(world.broker.fired) == 300)
        assert await engine.pending() >= len(broken)


async def test_engine_delivers_other_namespaces_while_the_timers_of_one_hang(world):
    world.broker.hang("stuck")
    async with world.running() as engine:
        await engine.set([timer(f"broken-{number}", -60, namespace="stuck") for number in range(2000)])
        await until(lambda: world.broker.waiting == ALONE)
        await engine.set([timer(f"honest-{number}", namespace="fine") for number in range(300)])
        await until(lambda: len(world.broker.fired) == 300)


async def test_engine_gives_a_share_that_fails_few_permits_until_a_delivery_succeeds(world):
    world.broker.failures = [TryLaterError("no conversion")]
    async with world.running() as engine:
        await engine.set([timer("first")])
        await until(lambda: not world.broker.failures)
        await until_next_due(engine, NOW + timedelta(seconds=1))
        gate = world.broker.hang()
        await engine.set([timer(f"uid-{number}") for number in range(100)])
        await until(lambda: world.broker.waiting == FAILING_PERMITS)
        await turns(engine)
        assert world.broker.waiting_most == FAILING_PERMITS
        gate.set()
        await until(lambda: len(world.broker.fired) == 100)


async def test_engine_counts_a_retry_timer_set_during_a_delivery_as_a_failure(world):
    """What `expire` replies while the API server is busy: the delivery succeeds, and the share still fails."""
    gate = world.broker.hang()
    async with world.running() as engine:
        await engine.set([timer("first")])
        await until(lambda: world.broker.waiting == 1)
        await engine.set([replace_timer(timer("first", 60), attempts=1)])
        gate.set()
        await until(lambda: world.broker.fired)
        await until_next_due(engine, NOW + timedelta(seconds=60))
        world.broker.hanging.clear()
        gate = world.broker.hang()
        await engine.set([timer(f"uid-{number}") for number in range(100)])
        await until(lambda: world.broker.waiting == FAILING_PERMITS)
        await turns(engine)
        assert world.broker.waiting_most == FAILING_PERMITS


async def test_engine_adds_its_failed_attempts_to_those_of_a_timer(world):
    world.broker.failing[Purpose.EXPIRE] = TryLaterError("away")
    async with world.running() as engine:
        await turns(engine)  # the start of the engine
        await engine.set([replace_timer(timer(), attempts=5)])
        await until_next_due(engine, NOW + timedelta(seconds=6))  # its back-off, by the engine's own clock
        world.clock.advance(6)
        await until_next_due(engine, NOW + timedelta(seconds=6 + 16))
        world.broker.failing.clear()
        world.clock.advance(16)
        await until(lambda: world.broker.fired)
        assert [fired.attempts for _, fired in world.broker.attempts] == [5, 6]


async def test_many_due_timers_of_many_shares_all_fire(world):
    timers = [
        timer(f"uid-{number}", -number % 7, kind=f"K{number % 5}", namespace=f"n{number % 37}")
        for number in range(3000)
    ]
    async with world.running() as engine:
        await engine.set(timers)
        world.clock.advance(10)
        await until_pending(engine, 0)
        assert sorted(fired.ref.uid for fired in world.broker.fired) == sorted(each.ref.uid for each in timers)


async def test_corrupt_row_delays_no_other(world, caplog):
    engine = world.open()
    await engine.set([timer("broken", -60), timer("sound", -30)])
    await engine.close()
    with sqlite3.connect(world.path) as db:
        db.execute("UPDATE timers SET ref = 'nonsense' WHERE uid = 'broken'")
    db.close()
    async with world.running() as engine:
        await until(lambda: world.broker.fired == [timer("sound", -30)])
        await until(lambda: records(caplog, "timers not delivered"))
        assert await engine.pending() >= 1


# The time of a retry


async def test_restart_keeps_the_back_off(world):
    world.broker.failing[Purpose.EXPIRE] = PermanentError("no")
    async with world.running() as engine:
        await engine.set([timer()])
        await until_next_due(engine, NOW + timedelta(seconds=60))
    world.broker.failing.clear()
    async with world.running() as engine:
        world.clock.advance(59.9)
        await turns(engine)
        assert await engine.next_due() == NOW + timedelta(seconds=60)
        assert len(world.broker.attempts) == 1
        world.clock.advance(0.1)
        await until_pending(engine, 0)


@pytest.mark.parametrize("restarts", [False, True])
async def test_retry_planned_by_a_clock_that_was_ahead_waits_for_the_longest_back_off(world, restarts):
    ahead = NOW + 1000 * HOUR
    async with world.running() as engine:
        await engine.set([timer("not due", 7200)])
        world.clock.at = ahead
        world.broker.failing[Purpose.EXPIRE] = TryLaterError("away")
        await engine.set([timer()])
        await until(lambda: len(world.broker.attempts) == 2)
        await until_next_due(engine, ahead + timedelta(seconds=1))
        world.broker.failing.clear()
        if not restarts:
            world.clock.at = NOW
            await until_next_due(engine, NOW + timedelta(seconds=60))
    world.clock.at = NOW
    async with world.running() as engine:
        await until_next_due(engine, NOW + timedelta(seconds=60))
        world.clock.advance(60)
        await until_pending(engine, 1)
        assert [fired.ref.uid for fired in world.broker.fired] == ["uid-1"]
        world.clock.advance(7140)
        await until_pending(engine, 0)


# Durable


async def test_reopened_file_has_all_timers(world):
    timers = [timer(f"uid-{number:03}", 60 + number) for number in range(100)]
    engine = world.open()
    await engine.set(timers)
    await engine.close()
    reopened = world.open()
    assert stored_timers(world) == timers
    assert isinstance(stored_timers(world)[0].purpose, Purpose)
    await reopened.close()


async def test_restart_fires_the_oldest_first_within_the_limit(world):
    engine = world.open()
    await engine.set([timer(f"uid-{number}", -number) for number in range(300)])
    await engine.close()
    gate = world.broker.hang()
    async with world.running() as engine:
        await until(lambda: world.broker.waiting == ALONE)
        await turns(engine)
        gate.set()
        await until(lambda: len(world.broker.fired) == 300)
    dues = [each.due_at for _, each in world.broker.attempts]
    assert dues == sorted(dues)
    assert world.broker.waiting_most == ALONE


async def test_cancelled_set_is_stored(world):
    async with world.running(replace(QUICK, rest_seconds=3600)) as engine:
        await engine.set([timer("far", 3600)])
        request = asyncio.create_task(engine.set([timer("near")]))
        await asyncio.sleep(0)
        request.cancel()
        await until(lambda: world.broker.fired == [timer("near")])
        assert request.cancelled()


async def test_concurrent_sets_share_a_transaction(world):
    engine = world.open()
    gate = threading.Event()
    begun = engine._commits.submit(lambda _: gate.wait())  # its transaction ends after all sets have come
    seen = statements(engine._file.writer)
    sets = [asyncio.create_task(engine.set([timer(f"uid-{number}", 60)])) for number in range(500)]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(begun, *sets)
    assert seen.count("COMMIT") <= 2
    assert await engine.pending() == 500
    await engine.close()


async def test_full_disk_raises_try_later_and_the_engine_continues(world):
    async with world.running() as engine:
        await engine.set([timer("before", 60)])
        engine._file.writer.execute("PRAGMA max_page_count = 8")
        with pytest.raises(TryLaterError, match="full"):
            await engine.set([timer(f"uid-{number}", 60) for number in range(1000)])
        assert await engine.pending() == 1
        engine._file.writer.execute("PRAGMA max_page_count = 100000")
        await engine.set([timer("after", 60)])
        world.clock.advance(60)
        await until(lambda: {fired.ref.uid for fired in world.broker.fired} == {"before", "after"})


async def test_delivered_timer_is_not_repeated_while_the_disk_fails(world):
    async with world.running() as engine:
        engine._file.writer.execute("PRAGMA busy_timeout = 0")
        await engine.set([timer(seconds=60)])
        other = sqlite3.connect(world.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        world.clock.advance(60)
        await until(lambda: world.broker.fired)
        with pytest.raises(TryLaterError, match="locked"):
            await engine.set([timer("other", 60)])
        await turns(engine)
        other.execute("ROLLBACK")
        other.close()
        await until_pending(engine, 0)
        assert len(world.broker.attempts) == 1


async def test_timer_with_invalid_unicode_is_refused_alone(world):
    async with world.running() as engine:
        with pytest.raises(EventError, match="Unicode"):
            await engine.set([timer("half a pair: \ud83d")])
        await engine.set([timer("whole: \U0001f600")])
        await until(lambda: world.broker.fired)


# The end


async def test_cancelled_engine_starts_no_delivery_and_lets_others_end(world):
    gate = world.broker.hang()
    engine = world.open(replace(QUICK, in_flight=6))
    await engine.set([timer(f"uid-{number}", -9 + number) for number in range(5)])
    running = asyncio.create_task(engine.run())
    await until(lambda: world.broker.waiting == 2)
    running.cancel()
    await until(lambda: engine._closing)
    assert not running.done()
    gate.set()
    await asyncio.wait([running])
    assert running.cancelled()
    assert len(world.broker.attempts) == 2
    assert await count_in_file(world) == 3


async def test_deliveries_beyond_the_grace_period_are_repeated_by_the_next_process(world):
    world.broker.hang()
    engine = world.open(replace(QUICK, grace_seconds=0.001))
    await engine.set([timer()])
    running = asyncio.create_task(engine.run())
    await until(lambda: world.broker.waiting == 1)
    running.cancel()
    await asyncio.wait([running])
    assert world.broker.fired == []
    world.broker.hanging.clear()
    async with world.running():
        await until(lambda: world.broker.fired == [timer()])


async def count_in_file(world) -> int:
    engine = world.open()
    try:
        return await engine.pending()
    finally:
        await engine.close()


async def test_closed_engine_raises_try_later(world):
    engine = world.open()
    await engine.close()
    await engine.close()
    with pytest.raises(TryLaterError, match="shutting down"):
        await engine.set([timer()])


# The file


async def test_second_owner_is_refused_until_the_first_closes(world):
    first = world.open()
    with pytest.raises(TtlError, match=r"timers\.db: expected to be its only owner"):
        world.open()
    await first.close()
    await world.open().close()


@pytest.mark.parametrize("version", [0, SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
async def test_file_of_another_version_is_refused_unchanged(world, version):
    await world.open().close()
    with sqlite3.connect(world.path) as db:
        db.execute(f"PRAGMA user_version = {version}")
    db.close()
    before = world.path.read_bytes()
    with pytest.raises(
        TtlError,
        match=rf"timers\.db: .* version {SCHEMA_VERSION}, got version {version}; the file is left as it is; use",
    ):
        world.open()
    assert world.path.read_bytes() == before


def test_file_that_is_not_a_database_is_refused(world):
    world.path.write_text("to be, or not to be\n" * 100)
    with pytest.raises(TtlError, match=r"timers\.db: expected a timer file .* not a database"):
        world.open()


def test_database_of_another_program_is_refused(world):
    with sqlite3.connect(world.path) as db:
        db.execute("CREATE TABLE cookies (name TEXT)")
    db.close()
    with pytest.raises(TtlError, match=r"timers\.db: expected a timer file, got another program's"):
        world.open()


def test_missing_folder_is_named(tmp_path):
    clock = FakeClock(NOW)
    with pytest.raises(TtlError, match=r"nowhere/timers\.db: expected a timer file"):
        SqliteTimers(tmp_path / "nowhere" / "timers.db", clock, Broker(clock))


# Pending timers


async def test_next_due_is_the_first_of_all_purposes(world):
    engine = world.open()
    assert await engine.next_due() is None
    await engine.set([timer("b", 30), timer("a", 20, purpose=OTHER), timer("c", 40)])
    assert await engine.next_due() == NOW + timedelta(seconds=20)
    await engine.close()


# Any sequence of steps


UIDS = st.sampled_from(["a", "b", "c"])
PURPOSES = st.sampled_from([Purpose.EXPIRE, OTHER])
STEPS = st.one_of(
    st.tuples(st.just("set"), st.lists(st.tuples(UIDS, PURPOSES, st.integers(-5, 30)), min_size=1, max_size=4)),
    st.tuples(st.just("advance"), st.floats(0, 20)),
    st.tuples(st.just("set back"), st.floats(0, 20)),
    st.tuples(st.just("fail"), st.integers(1, 3)),
    st.tuples(st.just("restart"), st.none()),
)


@settings(max_examples=60)
@given(st.lists(STEPS, max_size=12))
def test_each_timer_fires_at_its_last_due_time_after_any_sequence_of_faults(steps):
    with tempfile.TemporaryDirectory() as folder:
        clock = FakeClock(NOW)
        asyncio.run(live_through(steps, World(Path(folder, "timers.db"), clock, Broker(clock))))


async def live_through(steps, world: World) -> None:
    """The model is a dict: the last due of each uid and purpose."""
    model: dict[tuple[str, str], datetime] = {}
    for life in lives_of(steps):
        async with world.running() as engine:
            for step, argument in life:
                model |= await take_step(world, engine, step, argument)
                await turns(engine)
    world.broker.failures.clear()
    async with world.running() as engine:
        world.clock.advance(10_000)
        await until_pending(engine, 0)
    fired = defaultdict(list)
    for each in world.broker.fired:
        fired[each.ref.uid, each.purpose].append(each.due_at)
    assert {key: dues[-1] for key, dues in fired.items()} == model
    assert world.broker.early == []


def lives_of(steps):
    """The steps between restarts."""
    lives: list[list[Any]] = [[]]
    for step in steps:
        if step[0] == "restart":
            lives.append([])
        else:
            lives[-1].append(step)
    return lives


async def take_step(world: World, engine: SqliteTimers, step: str, argument) -> dict[tuple[str, str], datetime]:
    """Take the step; return its change of the model."""
    if step == "advance":
        world.clock.advance(argument)
    elif step == "set back":
        await until(lambda: not engine._running)  # one that has begun cannot be called back
        world.clock.advance(-argument)
    elif step == "fail":
        world.broker.failures = [TryLaterError("away") for _ in range(argument)]
    else:
        timers = [
            Timer.model_construct(ref=timer(uid).ref, purpose=purpose, due_at=world.clock.at + seconds * SECOND)
            for uid, purpose, seconds in argument
        ]
        await engine.set(timers)
        return {(each.ref.uid, each.purpose): each.due_at for each in timers}
    return {}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777], ids=oct)
async def test_timer_file_and_its_side_files_have_mode_0600(world, umask):
    before = os.umask(umask)
    try:
        async with world.running() as engine:
            await engine.set([timer(seconds=60)])
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in world.path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("timers.db", "timers.db-wal", "timers.db-shm", "timers.db.lock"), 0o600)


async def test_timer_files_with_a_wider_mode_are_tightened(world):
    async with world.running() as engine:
        await engine.set([timer(seconds=60)])
        names = ("timers.db", "timers.db-wal", "timers.db-shm")
        left = {name: (world.path.parent / name).read_bytes() for name in names}  # as a killed process leaves them
    left["timers.db.lock"] = b""
    for name, content in left.items():
        (world.path.parent / name).write_bytes(content)
        (world.path.parent / name).chmod(0o664)

    async with world.running() as engine:
        assert await engine.pending() == 1
        modes = {name: stat.S_IMODE((world.path.parent / name).stat().st_mode) for name in left}
    assert modes == dict.fromkeys(left, 0o600)


async def test_timer_file_of_another_owner_opens_with_a_warning(world, monkeypatch, caplog):
    def refuse(*_, **__):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    world.path.touch(0o664)
    monkeypatch.setattr(os, "chmod", refuse)
    async with world.running() as engine:
        await engine.set([timer(seconds=60)])
        assert await engine.pending() == 1
    warned = {record.fields["file"] for record in caplog.records if "cannot be set to 0600" in record.message}
    assert str(world.path) in warned
