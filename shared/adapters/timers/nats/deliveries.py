"""Deliver the fired timers of one purpose, and ack them.

A fired timer stays in the stream until it is acked. While this process has it, the servers get heartbeats for it; if
the process dies, they deliver the timer to another process.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import datetime, timedelta

from nats.aio.msg import Msg
from nats.errors import Error

from shared.adapters.timers.in_flight import Attempts, drain, once_more_failed
from shared.adapters.timers.limits import EngineLimits
from shared.adapters.timers.nats.queues import FiredQueues, FiredTimer
from shared.adapters.timers.nats.records import timer_of
from shared.adapters.timers.nats.stream import ACK_SECONDS
from shared.errors import TryLaterError
from shared.messages import Timer
from shared.ports import Clock

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
