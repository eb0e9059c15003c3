"""What a process has beside the API server: a clock, the shared state, the Broker and a timer engine."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from shared.messages import Message, Purpose, Timer


def loop_now() -> float:
    """Return the clock of the event loop, in seconds: it never jumps, and counts only within this process."""
    return asyncio.get_running_loop().time()


class Clock(Protocol):
    """This process's wall clock."""

    def now(self) -> datetime:
        """Return the current instant, aware."""
        ...


class State(Protocol):
    """What the processes of an installation share: a few named texts."""

    async def read(self) -> Mapping[str, str]:
        """Return all texts; an empty mapping if none was ever written.

        Raises:
            TryLaterError: The API server is busy or away.
            PermanentError: The right to read them is missing.
        """
        ...

    async def write(self, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Mapping[str, str]:
        """Replace the present texts by what `change` returns for them; `change` may be called more than once.

        Returns:
            The texts after the write.

        Raises:
            TryLaterError: The API server is busy or away.
            ConflictError: Other processes keep writing.
            PermanentError: The right to write them is missing.
        """
        ...


class Publisher(Protocol):
    """Publishes to the Broker."""

    async def publish(self, message: Message) -> None:
        """Publish a message; return once the Broker accepted it.

        Raises:
            TryLaterError: The Broker did not accept it.
        """
        ...


TIMERS_OF_ONE_PAGE = 500
"""Timers of one page, unless the caller names another number."""


class Timers(Protocol):
    """Sets timers. A timer is a hint: the function of its purpose reads the object and decides.

    So a timer that arrives twice, at an old due time, or for an object that is gone costs one read; with a stale proof,
    a refused DELETE and two reads.
    """

    async def set(self, timers: Sequence[Timer]) -> None:
        """Set timers, and return once they are durable.

        After that, the timer of this due time fires. An earlier timer of the same uid and purpose may fire too. Of
        timers that are due in the same second, or that failed, an engine may deliver one only, once all of them are
        due by its clock. An engine that keeps earlier timers makes the retries of one object meet: otherwise each event
        that arrives twice while the object fails would begin one more chain of retries.

        Raises:
            TryLaterError: The timers cannot be stored now; none of them is certain.
            EventError: A timer can never be stored.
        """
        ...


@dataclass(frozen=True, slots=True)
class TimerFilter:
    """Which pending timers are wanted: those that match every field that is set.

    Attributes:
        purpose: The purpose.
        kind: The kind of the object, such as `Job`.
        namespace: The namespace of the object.
        due_by: The last due time.
    """

    purpose: Purpose | None = None
    kind: str = ""
    namespace: str = ""
    due_by: datetime | None = None

    def matches(self, timer: Timer) -> bool:
        """Return whether the timer is wanted."""
        return (
            self.purpose in (None, timer.purpose)
            and self.kind in ("", timer.ref.kind)
            and self.namespace in ("", timer.ref.namespace)
            and (self.due_by is None or timer.due_at <= self.due_by)
        )


EVERY_TIMER = TimerFilter()


@dataclass(frozen=True, slots=True)
class TimerPage:
    """A page of pending timers.

    Attributes:
        timers: The timers of this page that are wanted; may be empty although more follow.
        after: The position of the next page; empty after the last one. Its form is the engine's own.
    """

    timers: tuple[Timer, ...]
    after: str = ""


@runtime_checkable
class CountedTimers(Protocol):
    """A timer engine that can count its timers."""

    async def pending(self) -> int:
        """Return how many timers are pending, those in flight included."""
        ...

    async def next_due(self) -> datetime | None:
        """Return when the next timer fires or is retried; None if no timer is pending.

        An engine whose server keeps the time knows overdue timers only: then None if no timer is overdue.
        """
        ...


class PendingTimers(CountedTimers, Protocol):
    """A timer engine whose pending timers can be read."""

    async def page(
        self, after: str = "", *, limit: int = TIMERS_OF_ONE_PAGE, wanted: TimerFilter = EVERY_TIMER
    ) -> TimerPage:
        """Read a page of pending timers.

        Each timer that is pending from the first page to the last one is on one of them. A timer that is set or
        delivered in the meantime may be on none, and a timer that is set again may be on two.

        Args:
            after: The position that the page before has named; empty for the first page.
            limit: The timers to read, those that are not wanted included.
            wanted: Which timers are wanted.

        Raises:
            TryLaterError: The timers cannot be read now.
            ValueError: `after` is no position of this engine.
        """
        ...


@runtime_checkable
class ConnectedTimers(Protocol):
    """A timer engine that must be opened before its timers can be set and read without `run`."""

    async def open(self, *, creates: bool) -> None:
        """Connect to the store of the timers; no timer fires before `run`, and no setting of the store changes.

        Args:
            creates: Whether to create the store if it does not exist.

        Raises:
            TtlError: The timers cannot be set or read.
        """
        ...


class DurableTimers(Timers, PendingTimers, Protocol):
    """A timer engine: it stores timers, and publishes each when it is due.

    - Each timer fires at least once, and never before its own due time, even after kill -9. If its object is set again
      with another due time, the newest one fires; an older one may fire too.
    - After a failed delivery, the timer is retried with back-off. One target that fails delays no other.
    """

    async def run(self) -> None:
        """Fire timers until cancelled, then close.

        Raises:
            TtlError: The engine cannot work, and a restart of this process does not help.
        """
        ...

    async def close(self) -> None:
        """Close; `run` ends with this call. Deliveries that this process started itself end before."""
        ...


@dataclass(frozen=True, slots=True)
class FiredTask:
    """A timer that the engine's server sent to the function `timers`, because its time has come by the server's clock.

    Attributes:
        timer: The timer.
        task: The name of the task; unique, and chosen by the engine.
        scheduled_at: When the server was to send it: the due time, a retry, or an earlier instant if the due time is
            further ahead than the server accepts.
    """

    timer: Timer
    task: str
    scheduled_at: datetime


@runtime_checkable
class TaskTimers(Protocol):
    """A timer engine whose server sends each due timer to the function `timers`."""

    async def fire(self, fired: FiredTask) -> None:
        """Publish a timer that its server sent; set it again if it is early, or if it could not be published.

        After the return, the server may forget the task.

        Raises:
            TryLaterError: The timer could neither be published nor set again: the server must keep the task.
        """
        ...
