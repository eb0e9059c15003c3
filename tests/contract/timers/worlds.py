"""Timer engines under test: each over its real store, with a clock that can be shifted and a target that can fail."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shared.adapters.timers.delivery import EngineLimits
from shared.adapters.timers.sqlite.engine import SqliteTimers
from shared.core.values.objects import ObjectRef
from shared.messages import Message, Purpose, Timer
from shared.ports import DurableTimers, Publisher
from tests.simulation.memory_timers import MemoryTimers, TimerStore

QUICK = EngineLimits(rest_seconds=0.02, disk_seconds=0.01, grace_seconds=1.0)
"""The clock is read often, so that a shifted clock is noticed soon."""


@dataclass
class ShiftedClock:
    """The machine's clock, plus a shift that tests change."""

    shift: timedelta = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.shift


@dataclass(frozen=True)
class Delivery:
    """A timer that arrived, and when by the clock of the engine."""

    timer: Timer
    at: datetime


@dataclass
class Target:
    """What the engine delivers to.

    Attributes:
        arrived: What arrived and was accepted.
        attempts: What arrived, refused deliveries included.
        errors: By kind of the object: what refuses its timers.
        hanging: By kind of the object: what must be set before its timers are answered.
    """

    clock: ShiftedClock
    arrived: list[Delivery] = field(default_factory=list)
    attempts: list[Delivery] = field(default_factory=list)
    errors: dict[str, Exception] = field(default_factory=dict)
    hanging: dict[str, asyncio.Event] = field(default_factory=dict)

    async def publish(self, message: Message) -> None:
        assert isinstance(message, Timer)
        delivery = Delivery(message, self.clock.now())
        self.attempts.append(delivery)
        if gate := self.hanging.get(message.ref.kind):
            await gate.wait()
        if error := self.errors.get(message.ref.kind):
            raise error
        self.arrived.append(delivery)

    def count(self) -> Counter[str]:
        """How often each uid arrived."""
        return Counter(one.timer.ref.uid for one in self.arrived)

    def early(self) -> list[Delivery]:
        return [one for one in self.attempts if one.at < one.timer.due_at]


@dataclass
class World:
    """A store, and the engines that work on it.

    Attributes:
        build: Makes an engine over the store, as a new process does.
        knows_next_due: Whether the engine knows when the next timer fires; else it knows overdue timers only.
        keeps_order: Whether overdue timers start in the order of their due times.
        resolution: How late the store fires a timer by design.
    """

    build: Callable[[ShiftedClock, Publisher, EngineLimits], DurableTimers]
    knows_next_due: bool = True
    keeps_order: bool = True
    resolution: timedelta = timedelta()
    clock: ShiftedClock = field(default_factory=ShiftedClock)

    def __post_init__(self) -> None:
        self.target = Target(self.clock)

    @asynccontextmanager
    async def running(self, limits: EngineLimits = QUICK) -> AsyncIterator[DurableTimers]:
        """An engine from its start to its graceful stop."""
        engine = self.build(self.clock, self.target, limits)
        task = asyncio.create_task(engine.run())
        try:
            yield engine
        finally:
            for gate in self.target.hanging.values():
                gate.set()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await engine.close()

    def timer(
        self,
        uid: str,
        seconds: float = 0.0,
        *,
        purpose: Purpose = Purpose.EXPIRE,
        kind: str = "Job",
        namespace: str = "ci",
        attempts: int = 0,
    ) -> Timer:
        """A timer that is due some seconds from now, by the clock of the engine."""
        ref = ObjectRef("batch/v1", kind, namespace, f"build-{uid}", uid)
        due_at = self.clock.now() + timedelta(seconds=seconds)
        return Timer(ref=ref, purpose=purpose, due_at=due_at, attempts=attempts)

    async def arrival(self, *uids: str, seconds: float = 60.0) -> None:
        """Wait until each uid has arrived at least once."""
        await until(lambda: {*uids} <= self.target.count().keys(), f"arrival of {uids}", seconds)


Engine = Callable[[Path], AbstractAsyncContextManager[World]]
"""Provides the world of an engine, given a folder of the test."""


async def until(true: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """Wait until a condition holds."""
    try:
        async with asyncio.timeout(seconds):
            while not true():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"{what} did not happen within {seconds} s") from None


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[World]:
    """Timers in a file."""

    def build(clock: ShiftedClock, publisher: Publisher, limits: EngineLimits) -> DurableTimers:
        return SqliteTimers(folder / "timers.db", clock, publisher, limits=limits, jitter=lambda: 0.0)

    yield World(build)


@asynccontextmanager
async def memory(_folder: Path) -> AsyncIterator[World]:
    """Timers in the store of the simulations."""
    store = TimerStore()

    def build(clock: ShiftedClock, publisher: Publisher, limits: EngineLimits) -> DurableTimers:
        return MemoryTimers(store, clock, publisher, limits=limits)

    yield World(build)
