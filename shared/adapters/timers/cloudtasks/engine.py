"""The timer engine on Google Cloud Tasks: a timer is a task, which Cloud Tasks sends to `timers` when it is due.

- No process keeps time or remembers a task, so `timers` may have any number of instances, and scale to zero.
- A task is never changed or deleted. A timer that is set for another time gets a second task, and both fire.
- The name of a task follows from uid, purpose and the second in which it is sent, so timers of one object that are due
  in the same second are one task. A name that is taken counts as set only if its task was not sent yet: a task that was
  sent may have fired already.
- So a task is sent at a full second, up to a second after the due time, and a retry up to 16 s after its back-off.
- A task that is early by the clock of this process is set again. So are timers that are due in more than 30 days, with
  a stop on the way.
- After a failed delivery the timer is set again, and the old task is acknowledged. An answer with an error would slow
  down the whole queue (https://cloud.google.com/tasks/docs/common-pitfalls).
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from shared.adapters.timers.cloudtasks.task_queue import TASKS_OF_ONE_PAGE_MAX, Connect, TaskQueue, connect
from shared.adapters.timers.cloudtasks.tasks import (
    TaskForm,
    free_name_of,
    is_name_of,
    key_in,
    name_of,
    read_timer,
    second_in,
)
from shared.adapters.timers.delivery import LIMITS, Attempts, EngineLimits, Permits, once_more_failed, share_of
from shared.adapters.timers.stored import first_attempt_at, later, sent_at
from shared.core.values.objects import quote
from shared.core.values.timing import BACKOFF_SECONDS_MAX
from shared.errors import EventError
from shared.messages import Timer
from shared.ports import EVERY_TIMER, Clock, FiredTask, Publisher, TimerFilter, TimerPage
from shared.ports.process import TIMERS_OF_ONE_PAGE

EARLY_MAX = timedelta(seconds=1)
"""A task that is early by at most this time waits here, which is cheaper than a second task."""

AHEAD_MAX = timedelta(days=29)
"""How far ahead a task is scheduled: Cloud Tasks accepts 30 days by its own clock, and keeps a task for 31 days."""

PERMIT_CHECK_SECONDS = 0.2
"""How often a waiting timer looks for a permit."""

PUT_OFF_SECONDS = 2.0
"""About how long a timer that found no permit is put off at first."""

COUNTED_PAGES_MAX = 10
"""Pages that `pending` reads: a project may list 600 times a minute (https://cloud.google.com/tasks/docs/quotas)."""

ANSWER_SECONDS = 18.0
"""How much longer than a delivery Cloud Tasks waits for an answer: to wait for a permit, and to set the timer again."""

_NOW = timedelta()


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
        self._form, self._clock, self._limits, self._jitter = form, clock, limits, jitter
        self._queue = TaskQueue(form.queue, connect)
        self._attempts = Attempts(publisher, limits, jitter)
        self._attempts.are_cancelled = True  # by the server of the request, which Cloud Tasks then repeats
        self._permits = defaultdict[str, Permits](lambda: Permits(limits.in_flight))
        self._in_flight: list[datetime] = []

    async def set(self, timers: Sequence[Timer]) -> None:
        """Create a task for each timer; the tasks of earlier sets stay.

        Raises:
            TryLaterError: Not all tasks could be created now.
            EventError: Cloud Tasks can never store a timer.
        """
        now = self._clock.now()
        last = {timer.key: timer for timer in timers}
        calls = (self._create(timer, max(first_attempt_at(timer, now), now)) for timer in last.values())
        for outcome in await asyncio.gather(*calls, return_exceptions=True):  # one that fails stops no other
            if outcome is not None:
                raise outcome

    async def fire(self, fired: FiredTask) -> None:
        """Publish a timer that Cloud Tasks sent; see `TaskTimers`.

        Raises:
            EventError: The task is none of this timer: it is forged.
        """
        timer = fired.timer
        if not is_name_of(timer, fired.task):
            raise EventError(f"task: expected the name of a task of {quote(timer.ref.uid)}, got {quote(fired.task)}")
        scheduled_at = min(fired.scheduled_at, second_in(fired.task))  # a forged header says what it likes
        early = timer.due_at - self._clock.now()
        if _NOW < early <= EARLY_MAX:
            await asyncio.sleep(early.total_seconds())
            early = timer.due_at - self._clock.now()
        if early > _NOW:  # a server whose clock is ahead would send it at once at its due time, again and again
            return await self._continue(fired.task, timer, max(timer.due_at, later(scheduled_at, early)))
        if await self._finds_permit(timer):
            pause = await self._deliver(timer)
            if pause is None:
                return None
            timer, seconds = once_more_failed(timer), pause
        else:  # it waits as long as since its due time, so that a crowd thins out
            seconds = min(max(-early.total_seconds(), PUT_OFF_SECONDS), BACKOFF_SECONDS_MAX) * (1 - self._jitter() / 4)
        # A server whose clock is ahead would send a task at once that is scheduled by this clock.
        now = max(self._clock.now(), scheduled_at)
        return await self._continue(fired.task, timer, sent_at(timer, later(now, timedelta(seconds=seconds)), seconds))

    async def run(self) -> None:
        """Check the queue, then wait until cancelled, and close: Cloud Tasks keeps the time.

        Raises:
            TtlError: There is no such queue, or the right to read it is missing.
        """
        try:
            await self._queue.check()
            await asyncio.Event().wait()
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connection; `run` ends with this call.

        A delivery is a request to this process: its server lets it end before, and Cloud Tasks repeats it otherwise.
        """
        await self._queue.close()

    async def pending(self) -> int:
        """Return the number of timers, those in flight included; at most 10,000, since each page is a call."""
        found, after = set[str](), ""
        for _ in range(COUNTED_PAGES_MAX):
            tasks, after = await self._queue.read(after, TASKS_OF_ONE_PAGE_MAX, full=False)
            found.update(key_in(task.name) for task in tasks)
            if not after:
                break
        return len(found)

    async def next_due(self) -> datetime | None:
        """Return when the oldest timer was due that this process delivers now; None without one."""
        return min(self._in_flight, default=None)

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

    async def _finds_permit(self, timer: Timer) -> bool:
        """Wait a moment for a permit, and return whether there is one."""
        permits, share = self._permits[timer.purpose], share_of(timer.ref)
        for _ in range(round(self._limits.permit_seconds / PERMIT_CHECK_SECONDS)):
            if permits.may_take(share):
                return True
            await asyncio.sleep(PERMIT_CHECK_SECONDS)
        return permits.may_take(share)

    async def _deliver(self, timer: Timer) -> float | None:
        """Publish a timer for which there is a permit; see `Attempts.publish`."""
        permits, share, failed = self._permits[timer.purpose], share_of(timer.ref), True
        permits.take(share)
        self._in_flight.append(timer.due_at)
        try:
            pause = await self._attempts.publish(timer)
            failed = pause is not None
            return pause
        finally:
            self._in_flight.remove(timer.due_at)
            permits.give(share, failed=failed)

    async def _continue(self, task: str, timer: Timer, at: datetime) -> None:
        """Create the task that continues a task that was sent.

        A forged task continues nothing: otherwise any caller could fill the queue with timers of the year 9999.

        Raises:
            EventError: No such task was sent. If Cloud Tasks sent it nevertheless, it sends it again.
        """
        if not await self._queue.sent(task):
            raise EventError(f"task: expected a task that {self._form.queue} has sent, got {quote(task)}")
        await self._create(timer, at)

    async def _create(self, timer: Timer, at: datetime) -> None:
        """Create a task, or find one that will still be sent at the same second."""
        now = self._clock.now()
        is_now = at <= now
        name = name_of(timer, at, is_now=is_now)
        until = at if is_now else min(sent_at(timer, at), later(now, AHEAD_MAX))
        seconds = self._limits.timeout_of(timer.purpose) + ANSWER_SECONDS
        if await self._queue.create(self._form.make(timer, name, until, seconds)):
            return
        if await self._queue.sent(name) != 0:  # it has fired, or fires now: maybe before this call began
            await self._queue.create(self._form.make(timer, free_name_of(name), until, seconds))
