"""The timer engine on Google Cloud Tasks: a timer is a task, which Cloud Tasks sends to `timers` when it is due.

- Several processes may work on one queue. None of them keeps time, so `timers` may scale to zero.
- A task cannot be changed. A replaced timer gets a new task, and its old task is deleted.
- A task is found by its name only. So a process replaces or cancels the tasks that it knows: see `DurableTimers`.
- A task that is early by the clock of this process is set again. So are timers that are due in more than 30 days, with
  a stop on the way.
- After a failed delivery the timer is set again with one more attempt, and the old task is acknowledged. An answer with
  an error would slow down the whole queue (https://cloud.google.com/tasks/docs/common-pitfalls).
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from google.cloud.tasks_v2 import Task

from shared.adapters.timers.cloudtasks.live_tasks import LiveTasks
from shared.adapters.timers.cloudtasks.names import is_name_of, key_in, names_of, successor_of
from shared.adapters.timers.cloudtasks.send_times import first_at, later, put_off_seconds, within_reach
from shared.adapters.timers.cloudtasks.task_deliveries import NoPlaceError, TaskDeliveries
from shared.adapters.timers.cloudtasks.task_form import TaskForm, read_timer
from shared.adapters.timers.cloudtasks.task_queue import (
    TASKS_OF_ONE_PAGE_MAX,
    Connect,
    TaskQueue,
    check_until_answered,
    connect,
)
from shared.adapters.timers.limits import LIMITS, EngineLimits
from shared.core.values.objects import quote
from shared.errors import EventError, TryLaterError
from shared.messages import ATTEMPTS_COUNTED_MAX, Timer, TimerKey
from shared.ports import EVERY_TIMER, Clock, FiredTask, Publisher, TimerFilter, TimerPage
from shared.ports.timers import TIMERS_OF_ONE_PAGE

EARLY_SECONDS_MAX = 1.0
"""A task that is early by at most this time waits here, which is cheaper than a second task."""

COUNTED_PAGES_MAX = 10
"""Pages that `pending` reads: a project may list 600 times a minute (https://cloud.google.com/tasks/docs/quotas)."""

ANSWER_SECONDS = 15.0
"""How much longer than a delivery Cloud Tasks waits for an answer: for a place, and to set the timer again."""


class CloudTasksTimers:
    """Timers in a queue of Cloud Tasks; call all methods in one event loop.

    Args:
        form: Where the queue sends its tasks, and as whom.
        clock: The wall clock.
        publisher: Publishes due timers. If it raises any error, the timer is set again.
        connect: Makes the client, for tests.
        limits: Limits other than the defaults, for tests.
        jitter: Returns a random number from 0 to 1, so that timers that failed together are not retried together.
    """

    def __init__(  # noqa: PLR0913 - most are for tests
        self,
        form: TaskForm,
        clock: Clock,
        publisher: Publisher,
        *,
        connect: Connect = connect,
        limits: EngineLimits = LIMITS,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._form = form
        self._clock = clock
        self._limits = limits
        self._jitter = jitter
        self._queue = TaskQueue(form.queue, connect)
        self._path = form.path_of
        self._live = LiveTasks()
        self._deliveries = TaskDeliveries(publisher, limits)
        self._closing = False

    async def set(self, timers: Sequence[Timer]) -> None:
        """Create a task for each timer, and delete the task that it replaces, if this process knows it.

        Raises:
            TryLaterError: Not all tasks could be created now.
            EventError: Cloud Tasks can never store a timer.
        """
        last = {timer.key: timer for timer in timers}
        await _each(self._set(timer) for timer in last.values())

    async def cancel(self, keys: Sequence[TimerKey]) -> None:
        """Delete the tasks of timers, if this process knows them.

        Raises:
            TryLaterError: Not all of them could be deleted now.
        """
        await _each(self._cancel(key) for key in dict.fromkeys(keys))

    async def fire(self, fired: FiredTask) -> None:
        """Publish a timer that Cloud Tasks sent; see `TaskTimers`.

        Raises:
            EventError: The task is none of this timer: it is forged.
        """
        self._require_open()
        timer = fired.timer
        if not is_name_of(timer.key, fired.task):
            raise EventError(f"task: expected the name of a task of {quote(timer.ref.uid)}, got {quote(fired.task)}")
        if self._live.is_ended(fired.task):
            return
        self._live.learn(timer.key, fired.task)
        early = timer.due_at - self._clock.now()
        if timedelta() < early <= timedelta(seconds=EARLY_SECONDS_MAX):
            await asyncio.sleep(early.total_seconds())
            early = timer.due_at - self._clock.now()
        if early > timedelta():
            # If the clock of Cloud Tasks is ahead of this one, the due time is over there.
            await self._continue(fired, timer, max(timer.due_at, later(fired.scheduled_at, early)))
        elif self._live.is_ended(fired.task):
            return
        elif (error := await self._deliveries.deliver(timer, lambda: self._live.is_ended(fired.task))) is None:
            self._live.forget(timer.key, fired.task)
        elif isinstance(error, NoPlaceError):
            seconds = put_off_seconds(timer, fired.scheduled_at, self._jitter())
            await self._continue(fired, timer, self._after(fired, seconds))
        else:
            await self._retry(fired, error)

    async def run(self) -> None:
        """Check the queue, then wait until cancelled, and close: Cloud Tasks keeps the time.

        Raises:
            TtlError: There is no such queue, or the right to read it is missing.
        """
        try:
            await check_until_answered(self._queue)
            await asyncio.Event().wait()
        finally:
            await self.close()

    async def close(self) -> None:
        """Wait for the deliveries in flight, and close the connection; `run` ends with this call."""
        if self._closing:
            return
        self._closing = True
        try:
            await self._deliveries.drain()
        finally:
            await self._queue.close()

    async def pending(self) -> int:
        """Return the number of timers, those in flight included; at most 10,000, since each page is a call."""
        found: set[str] = set()
        after = ""
        for _ in range(COUNTED_PAGES_MAX):
            tasks, after = await self._queue.read(after, TASKS_OF_ONE_PAGE_MAX, full=False)
            found.update(key_in(task.name) for task in tasks)
            if not after:
                break
        return len(found)

    async def next_due(self) -> datetime | None:
        """Return when the oldest timer was due that this process delivers now; None without one."""
        return self._deliveries.oldest()

    async def page(
        self, after: str = "", *, limit: int = TIMERS_OF_ONE_PAGE, wanted: TimerFilter = EVERY_TIMER
    ) -> TimerPage:
        """Read a page of pending timers, in any order; see `PendingTimers.page`. A position is valid for two hours."""
        tasks, next_page = await self._queue.read(after, limit, full=True)
        timers = []
        for task in tasks:
            with suppress(ValueError):  # another program made the task
                timers.append(read_timer(task))
        return TimerPage(tuple(filter(wanted.matches, timers)), next_page)

    async def _set(self, timer: Timer) -> None:
        self._require_open()
        async with self._live.turn(timer.key):
            old = self._live.get(timer.key)
            name = await self._create(timer, first_at(timer, self._clock.now()))
            self._live.put(timer.key, name)
            for other in old:
                # It ends only once it is deleted: until then, another process may set the same timer again.
                with suppress(TryLaterError):  # it fires at its old due time, which costs one GET
                    if other != name:
                        await self._queue.delete(self._path(other))
                        self._live.end(other)

    async def _cancel(self, key: TimerKey) -> None:
        self._require_open()
        async with self._live.turn(key):
            for name in self._live.get(key):
                await self._queue.delete(self._path(name))
                self._live.forget(key, name)
                self._live.end(name)

    async def _create(self, timer: Timer, at: datetime) -> str:
        """Create the task of a timer, or find it: a task of the same timer that was not sent yet."""
        for name in names_of(timer):
            task = self._task(timer, name, at)
            self._live.add(timer.key, name)
            if await self._queue.create(task) or await self._queue.sent(self._path(name)) == 0:
                return name
        raise TryLaterError(f"no free name for the timer of {timer.ref.uid}")

    async def _retry(self, fired: FiredTask, error: Exception) -> None:
        timer = fired.timer
        seconds = self._limits.retry_seconds(timer.attempts, error, self._jitter())
        attempts = min(timer.attempts + 1, ATTEMPTS_COUNTED_MAX)
        self._deliveries.failures.failed(timer.purpose, timer.ref.uid, attempts=attempts, error=error, seconds=seconds)
        await self._continue(fired, timer.model_copy(update={"attempts": attempts}), self._after(fired, seconds))

    async def _continue(self, fired: FiredTask, timer: Timer, at: datetime) -> None:
        """Create the task that continues a task; if it exists, the task arrived twice.

        A forged task continues nothing: otherwise any caller could fill the queue with timers of the year 9999.

        Raises:
            EventError: There is no such task. If Cloud Tasks sent it nevertheless, it sends it again.
        """
        async with self._live.turn(timer.key):
            name = successor_of(fired.task, timer)
            if self._live.is_ended(fired.task) or self._live.is_ended(name):
                return
            if await self._queue.sent(self._path(fired.task)) is None:
                self._live.forget(timer.key, fired.task)
                raise EventError(f"task: expected a task of {self._form.queue}, got {quote(fired.task)}")
            if fired.task in self._live.get(timer.key):
                self._live.add(timer.key, name)
            await self._queue.create(self._task(timer, name, at))
            self._live.forget(timer.key, fired.task)

    def _after(self, fired: FiredTask, seconds: float) -> datetime:
        return later(max(self._clock.now(), fired.scheduled_at), timedelta(seconds=seconds))

    def _task(self, timer: Timer, name: str, at: datetime) -> Task:
        seconds = self._limits.timeout_of(timer.purpose) + ANSWER_SECONDS
        return self._form.make(timer, name, within_reach(at, self._clock.now()), seconds)

    def _require_open(self) -> None:
        if self._closing:
            raise TryLaterError("the timer engine is stopping")


async def _each(calls: Iterable[Awaitable[None]]) -> None:
    """Make calls concurrently; all end before the first error is raised."""
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if outcome is not None:
            raise outcome
