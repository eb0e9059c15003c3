"""Deliver the fired timers of one purpose, and ack them.

A fired timer stays in the stream until it is acked. While this process has it, the servers get heartbeats for it; if
the process dies, they deliver the timer to another process.

The servers send the timers of all shares (a kind in a namespace) in the order in which they fired. So that a share with
many timers delays no other, only some of them wait here. The others are delayed, and the servers send what is behind.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from nats.aio.msg import Msg
from nats.errors import Error

from shared.adapters.timers.delivery import Attempts, EngineLimits, Permits, Share, drain, once_more_failed, share_of
from shared.adapters.timers.nats.schedules import timer_of
from shared.adapters.timers.nats.stream import ACK_SECONDS
from shared.errors import TryLaterError
from shared.messages import Timer
from shared.ports import Clock

FIRED_WAITING_MAX = 1_024
"""How many timers wait here. A share may add one if it has fewer than half as many as may still be added."""

SHARE_MIN = 8
"""How many timers of a share may wait in any case, if any may still be added."""

FIRED_SHARES_MAX = 10_000
"""How many shares are remembered; beyond it, or beyond twice as many as then remain, those are forgotten that have
nothing here, and no delayed timer."""

REDELIVERIES_PER_SECOND = 1_000
"""How many delayed timers of all shares return in a second: as many as a process delivers over HTTP."""

DELAY_SECONDS_MIN = 0.25
"""The shortest delay."""

_RATE_SECONDS = 1.0

PROGRESS_SECONDS = ACK_SECONDS / 3
"""How often the servers get a heartbeat for each timer of this process."""

EARLY_SECONDS_MAX = 60.0
"""The longest delay of a timer that the servers fired early by the clock of this process."""

NAK_SECONDS_MAX = 10.0
"""The longest delay of a nak for a timer that cannot be delivered now; above it, the timer is set again."""

CLOSING_SECONDS = 1.0
"""The delay of a nak when the process ends; without one, it would get the timer again."""

SET_LATER_AT_ONCE = 256
"""Maximum number of timers that are set again at once because they cannot be delivered now."""

_log = logging.getLogger("ttl")


@dataclass(slots=True, eq=False)
class FiredTimer:
    """A timer that the servers delivered to this process.

    Attributes:
        timer: The timer.
        message: Its message, for ack and nak; the newest if the servers delivered it again.
    """

    timer: Timer
    message: Msg

    @property
    def share(self) -> Share:
        """The share whose permit the delivery takes."""
        return share_of(self.timer.ref)


@dataclass(slots=True)
class _Queue:
    waiting: deque[FiredTimer] = field(default_factory=deque)
    in_flight: int = 0
    returns_at: float = 0.0
    per_second: float = 0.0
    delivered: int = 0
    counted_at: float = 0.0

    def is_idle(self, now: float) -> bool:
        return not self.in_flight and not self.waiting and self.returns_at < now


class FiredQueues:
    """The timers that wait in this process, in a queue for each share.

    The shares take turns, and within a share the oldest is first. All times are of the monotonic clock, in seconds.

    Args:
        in_flight: The maximum number of deliveries in flight.
    """

    def __init__(self, in_flight: int) -> None:
        self._permits = Permits(in_flight)
        self._queues: dict[Share, _Queue] = {}
        self._turns: dict[Share, _Queue] = {}  # those with waiting timers
        self._waiting, self._kept_max = 0, FIRED_SHARES_MAX

    def add(self, fired: FiredTimer, now: float) -> float | None:
        """Let a timer wait; return None, or for how many seconds it must be delayed instead."""
        queue = self._queues.get(fired.share) or self._new_queue(fired.share, now)
        free = FIRED_WAITING_MAX - self._waiting
        if len(queue.waiting) >= max(SHARE_MIN if free > 0 else 0, free // 2):
            per_second = max(REDELIVERIES_PER_SECOND / (len(self._turns) or 1), 1.5 * queue.per_second)
            queue.returns_at = max(queue.returns_at, now + DELAY_SECONDS_MIN) + 1 / per_second
            return queue.returns_at - now
        queue.waiting.append(fired)
        self._turns[fired.share] = queue
        self._waiting += 1
        return None

    def take(self) -> FiredTimer | None:
        """Return the next timer whose share has a permit; its permit is taken until `finish`."""
        if not self._permits.free:
            return None
        for share, queue in self._turns.items():
            if self._permits.may_take(share):
                del self._turns[share]
                fired = queue.waiting.popleft()
                if queue.waiting:
                    self._turns[share] = queue  # at the end: the shares take turns
                self._permits.take(share)
                self._waiting -= 1
                queue.in_flight += 1
                return fired
        return None

    def finish(self, fired: FiredTimer, now: float, *, failed: bool) -> None:
        """Free the permit of a delivery that ended."""
        self._permits.give(fired.share, failed=failed)
        queue = self._queues[fired.share]
        queue.in_flight -= 1
        queue.delivered += not failed
        if (seconds := now - queue.counted_at) >= _RATE_SECONDS:
            queue.per_second, queue.delivered, queue.counted_at = queue.delivered / seconds, 0, now
        if queue.is_idle(now):
            del self._queues[fired.share]

    def clear(self) -> list[FiredTimer]:
        """Remove and return all waiting timers."""
        waiting = [fired for queue in self._turns.values() for fired in queue.waiting]
        for queue in self._turns.values():
            queue.waiting.clear()
        self._turns.clear()
        self._waiting = 0
        return waiting

    def _new_queue(self, share: Share, now: float) -> _Queue:
        if len(self._queues) >= self._kept_max:
            self._queues = {share: queue for share, queue in self._queues.items() if not queue.is_idle(now)}
            self._kept_max = max(FIRED_SHARES_MAX, 2 * len(self._queues))  # so that few calls pay for a pass
        queue = self._queues[share] = _Queue(counted_at=now)
        return queue


class NatsDeliveries:
    """The fired timers that this process has, of one purpose.

    Args:
        purpose: The purpose.
        attempts: Publishes due timers.
        clock: The wall clock.
        set_at: Sets a timer for a time, after a pause of so many seconds; returns once it is durable.
        limits: The maximum number of deliveries in flight, and how long their end may take.
    """

    def __init__(
        self,
        purpose: str,
        attempts: Attempts,
        clock: Clock,
        set_at: Callable[[Timer, datetime, float], Awaitable[None]],
        limits: EngineLimits,
    ) -> None:
        self._purpose, self._attempts, self._clock, self._set_at = purpose, attempts, clock, set_at
        self._limits = limits
        self._queues = FiredQueues(limits.in_flight)
        self._fired: dict[str, FiredTimer] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._setting = asyncio.Semaphore(SET_LATER_AT_ONCE)
        self._is_closing = False

    async def receive(self, message: Msg) -> None:
        """Let a fired timer wait for its delivery, or let the servers deliver it again later."""
        try:
            timer = timer_of(message.data)
        except ValueError as error:
            _log.error("fired message dropped", extra={"fields": {"subject": message.subject, "error": str(error)}})
            await _answer(message.ack())
            return
        position, fired = _position_of(message), FiredTimer(timer, message)
        if has := self._fired.get(position):
            has.message = message  # only the newest delivery can be acked
        elif self._is_closing:
            await _answer(message.nak(CLOSING_SECONDS))
        elif (early := (timer.due_at - self._clock.now()).total_seconds()) > 0:
            await self._delay(fired, min(early, EARLY_SECONDS_MAX))
        elif (delay := self._queues.add(fired, time.monotonic())) is not None:
            await self._delay(fired, delay)
        else:
            self._fired[position] = fired
            self._start()

    async def run(self) -> None:
        """Send the heartbeats, until cancelled."""
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            for fired in tuple(self._fired.values()):
                await _answer(fired.message.in_progress())

    async def close(self) -> None:
        """Give waiting timers to other processes, and wait for the deliveries in flight, then cancel late ones."""
        self._is_closing = True
        for fired in self._queues.clear():
            await _answer(fired.message.nak(CLOSING_SECONDS))
        await drain(self._running, self._limits.grace_seconds)

    def _start(self) -> None:
        """Start deliveries in free permits."""
        while fired := self._queues.take():
            self._spawn(self._deliver(fired))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _delay(self, fired: FiredTimer, seconds: float) -> None:
        """Let the servers deliver a timer again later: by a nak, or as a new schedule above NAK_SECONDS_MAX.

        The servers remember a limited number of delayed messages, and the more there are, the slower they become.
        """
        if seconds <= NAK_SECONDS_MAX:
            await _answer(fired.message.nak(seconds))
        else:
            await self._setting.acquire()  # wait before the next timer is pulled
            self._spawn(self._move(fired, seconds))

    async def _move(self, fired: FiredTimer, seconds: float) -> None:
        try:
            await self._set_later(fired, fired.timer, seconds)
            await _answer(fired.message.ack())
        except TryLaterError:
            await _answer(fired.message.nak(NAK_SECONDS_MAX))
        finally:
            self._setting.release()

    async def _set_later(self, fired: FiredTimer, timer: Timer, seconds: float) -> None:
        """Set a timer that fired; the clock of the servers decides if this process's clock is behind."""
        now = max(self._clock.now(), fired.message.metadata.timestamp)
        await self._set_at(timer, now + timedelta(seconds=seconds), seconds)

    async def _deliver(self, fired: FiredTimer) -> None:
        """Publish a timer and ack it; if that failed, only after its next attempt is durable."""
        seconds: float | None = CLOSING_SECONDS  # until the next attempt
        try:
            seconds = await self._attempts.publish(fired.timer)
            if seconds is not None:
                await self._set_later(fired, once_more_failed(fired.timer), seconds)
            await _answer(fired.message.ack())
        except BaseException as error:
            await _answer(fired.message.nak(seconds))
            if not isinstance(error, TryLaterError):
                raise
            fields = {"purpose": self._purpose, "error": str(error)}
            _log.warning("timer not acknowledged: NATS delivers it again", extra={"fields": fields})
        finally:
            self._queues.finish(fired, time.monotonic(), failed=seconds is not None)
            del self._fired[_position_of(fired.message)]
            self._start()


def _position_of(message: Msg) -> str:
    """Return what tells a message from all others: its sequence, and when it was stored, since streams are remade."""
    return f"{message.metadata.sequence.stream} {message.metadata.timestamp.timestamp()}"


async def _answer(answer: Awaitable[None]) -> None:
    """Send an ack, a nak or a heartbeat; without a connection, the servers deliver the message again by themselves."""
    with suppress(Error):
        await answer
