"""Deliver the fired timers of one purpose, and ack them.

A fired timer stays in the stream until it is acked. While this process has it, the servers get heartbeats for it; if
the process dies, they deliver the timer to another process.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from nats.aio.msg import Msg
from nats.errors import Error

from shared.adapters.timers.in_flight import FailureLog, drain
from shared.adapters.timers.limits import EngineLimits
from shared.adapters.timers.nats.queues import FiredQueues, FiredTimer
from shared.adapters.timers.nats.records import timer_of
from shared.adapters.timers.nats.stream import ACK_SECONDS
from shared.errors import TryLaterError
from shared.messages import ATTEMPTS_COUNTED_MAX, Timer
from shared.ports import Clock, Publisher

PROGRESS_SECONDS = ACK_SECONDS / 3
"""How often the servers get a heartbeat for each timer of this process."""

EARLY_SECONDS_MAX = 5.0
"""The longest time after which a timer that fired early, by the clock of this process, is delivered again."""

_log = logging.getLogger("ttl")


class NatsDeliveries:
    """The fired timers that this process has, of one purpose.

    Args:
        purpose: The purpose.
        publisher: Publishes due timers. If it raises any error, the timer is retried.
        clock: The wall clock.
        retry: Sets the next attempt of a timer, in some seconds; returns once it is durable.
        limits: Timeouts, and the maximum number of deliveries in flight.
        jitter: Returns a random number from 0 to 1.
    """

    def __init__(  # noqa: PLR0913 - the parts of the engine that a delivery needs
        self,
        purpose: str,
        publisher: Publisher,
        clock: Clock,
        retry: Callable[[Timer, float], Awaitable[None]],
        *,
        limits: EngineLimits,
        jitter: Callable[[], float],
    ) -> None:
        self._purpose, self._publisher, self._clock, self._retry = purpose, publisher, clock, retry
        self._limits, self._jitter, self._failures = limits, jitter, FailureLog()
        self._queues = FiredQueues(limits.in_flight)
        self._fired: dict[str, FiredTimer] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._is_closing = False

    async def receive(self, message: Msg) -> None:
        """Let a fired timer wait for its delivery, or let the servers deliver it again later."""
        try:
            timer = timer_of(message.data)
        except ValueError as error:
            _log.error("fired message dropped", extra={"fields": {"subject": message.subject, "error": str(error)}})
            return await _answer(message.ack())
        position = _position_of(message)
        if has := self._fired.get(position):
            has.message = message  # only the newest delivery can be acked
            return None
        fired = FiredTimer(timer, message)
        early = (timer.due_at - self._clock.now()).total_seconds()
        if self._is_closing or early > 0:
            return await _answer(message.nak(min(max(early, 0.0), EARLY_SECONDS_MAX)))
        if (delay := self._queues.add(fired, time.monotonic())) is not None:
            return await _answer(message.nak(delay))
        self._fired[position] = fired
        self._start()
        return None

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
            await _answer(fired.message.nak())
        await drain(self._running, self._limits.grace_seconds)

    def _start(self) -> None:
        """Start deliveries in free places."""
        while fired := self._queues.take():
            task = asyncio.create_task(self._deliver(fired))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _deliver(self, fired: FiredTimer) -> None:
        """Publish a timer and ack it; if that failed, only after its next attempt is durable."""
        seconds: float | None = 0.0  # until the next attempt
        try:
            seconds = await self._publish(fired.timer)
            if seconds is not None:
                attempts = min(fired.timer.attempts + 1, ATTEMPTS_COUNTED_MAX)
                await self._retry(fired.timer.model_copy(update={"attempts": attempts}), seconds)
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

    async def _publish(self, timer: Timer) -> float | None:
        """Publish a timer; return None, or after how many seconds to try it again."""
        try:
            async with asyncio.timeout(self._limits.timeout_of(self._purpose)):
                await self._publisher.publish(timer)
        except (Exception, asyncio.CancelledError) as error:  # no error of a publisher may lose a timer
            if self._is_closing and isinstance(error, asyncio.CancelledError):
                raise
            seconds = self._limits.retry_seconds(timer.attempts, error, self._jitter())
            self._failures.failed(
                self._purpose, timer.ref.uid, attempts=timer.attempts + 1, error=error, seconds=seconds
            )
            return seconds
        self._failures.succeeded(self._purpose)
        return None


def _position_of(message: Msg) -> str:
    """Return what tells a message from all others: its sequence, and when it was stored, since streams are remade."""
    return f"{message.metadata.sequence.stream} {message.metadata.timestamp.timestamp()}"


async def _answer(answer: Awaitable[None]) -> None:
    """Send an ack, a nak or a heartbeat; without a connection, the servers deliver the message again by themselves."""
    with suppress(Error):
        await answer
