"""The replicated timer engine: delayed CloudEvents in a stream of NATS JetStream, shared by several processes.

- A timer is a message schedule; its subject is purpose, object and time, so a set is one idempotent publish. The
  servers keep the time, and publish the timer in the stream when it is due.
- One of the processes pulls it, delivers it, and acks it after the delivery. Until then it stays in the stream, also if
  processes or servers are killed.
- A failed delivery becomes a new schedule, so a target that is down holds up nothing. A restart hastens no retry.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TypeVar

from nats.aio.msg import Msg

from shared.adapters.timers.delivery import LIMITS, Attempts, EngineLimits
from shared.adapters.timers.nats.connection import NatsConnection
from shared.adapters.timers.nats.deliveries import NatsDeliveries
from shared.adapters.timers.nats.pages import read_messages, read_page, sequence_of
from shared.adapters.timers.nats.pull import Pull
from shared.adapters.timers.nats.schedules import fired_subjects, message_of, timer_of, token_of
from shared.adapters.timers.nats.servers import NatsServers
from shared.adapters.timers.nats.stream import START_RETRY_SECONDS, TimerStream
from shared.adapters.timers.nats.stuck import StuckTimers
from shared.adapters.timers.stored import first_attempt_at
from shared.errors import TryLaterError, TtlError
from shared.messages import Timer
from shared.ports import EVERY_TIMER, Clock, Publisher, TimerFilter, TimerPage
from shared.ports.process import TIMERS_OF_ONE_PAGE

READY_SECONDS = 5.0
"""How long a call waits for the connection."""
_log = logging.getLogger("ttl")
_Result = TypeVar("_Result")


class NatsTimers:
    """Timers in a stream that several processes may share; call all methods in one event loop.

    Args:
        servers: The servers.
        stream: The name of the stream.
        clock: The wall clock.
        publisher: Publishes due timers. If it raises any error, the timer is kept and retried.
        replicas: On how many servers the stream is stored.
        bytes_max: The maximum size of the stream.
        limits: Limits other than the defaults, for tests.
        jitter: Returns a random number from 0 to 1, so that timers that failed together are not retried together.
    """

    def __init__(  # noqa: PLR0913 - most are settings
        self,
        servers: NatsServers,
        stream: str,
        clock: Clock,
        publisher: Publisher,
        *,
        replicas: int = 1,
        bytes_max: int = 1024**3,
        limits: EngineLimits = LIMITS,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._name, self._clock, self._limits = stream, clock, limits
        self._attempts = Attempts(publisher, limits, jitter)
        self._connection = NatsConnection(servers, stream)
        self._stream = TimerStream(self._connection, stream, replicas, bytes_max)
        self._deliveries: list[NatsDeliveries] = []
        self._ready, self._problem, self._is_closing = asyncio.Event(), "the engine starts", False

    async def set(self, timers: Sequence[Timer]) -> None:
        """Set timers, and return once the servers stored them; earlier timers with another due time stay.

        Raises:
            TryLaterError: The timers could not be stored now; none of them is certain.
            EventError: A reference can never be stored.
        """
        now = self._clock.now()
        last = {timer.key: timer for timer in timers}
        messages = [message_of(self._name, timer, first_attempt_at(timer, now)) for timer in last.values()]
        await self._started()
        await self._stream.require_room(messages)
        await self._connection.request(messages)

    async def open(self, *, creates: bool) -> None:
        """Connect, and check the stream; see `ConnectedTimers.open`."""
        await self._start(lambda: self._stream.open(creates=creates))
        self._ready.set()

    async def run(self) -> None:
        """Fire timers until cancelled, then close.

        Raises:
            TtlError: The servers cannot hold the timers, and only an operator can change that.
        """
        try:
            purposes = await self._start(self._stream.ensure)
            async with asyncio.TaskGroup() as group:
                consumers = [token_of(purpose) for purpose in purposes]
                stuck = StuckTimers(self._connection, self._name, consumers, self._set_again)
                asking: list[StuckTimers | Pull] = [stuck, *map(self._pull, purposes)]

                def restart() -> None:
                    for one in asking:
                        one.restart()

                self._connection.reconnected = restart
                for part in (*asking, *self._deliveries):
                    group.create_task(part.run())
                self._ready.set()
                await self._connection.until_lost()
        except* TtlError as errors:
            raise errors.exceptions[0] from None
        finally:
            await self.close()

    async def close(self) -> None:
        """Wait for the deliveries in flight, nak what waits, and close the connection; `run` ends with this."""
        if self._is_closing:
            return
        self._is_closing = self._attempts.are_cancelled = True
        try:
            await asyncio.gather(*(one.close() for one in self._deliveries))
        finally:
            await self._connection.close()

    async def pending(self) -> int:
        """Return the number of timers, those in flight included."""
        await self._started()
        return int((await self._stream.info())["messages"])

    async def next_due(self) -> datetime | None:
        """Return when the oldest fired timer that is not delivered was due; None without one."""
        await self._started()
        sequence = 0
        while found := await read_messages(self._connection, self._name, fired_subjects(self._name, "*"), sequence + 1):
            with suppress(ValueError):  # another program wrote the message
                return timer_of(found[0].data).due_at
            sequence = sequence_of(found[0])
        return None

    async def page(
        self, after: str = "", *, limit: int = TIMERS_OF_ONE_PAGE, wanted: TimerFilter = EVERY_TIMER
    ) -> TimerPage:
        """Read a page of pending timers, in the order of the stream; see `PendingTimers.page`."""
        await self._started()
        return await read_page(self._connection, self._name, after, limit, wanted)

    async def _start(self, prepare: Callable[[], Awaitable[_Result]]) -> _Result:
        """Connect, and prepare the stream; retry while the servers are not ready."""
        await self._connection.open()
        reported = ""
        while True:
            try:
                return await prepare()
            except TryLaterError as error:
                self._problem = str(error)
                if self._problem != reported:
                    reported = self._problem
                    _log.error("timers not started; trying again", extra={"fields": {"error": reported}})
                await asyncio.sleep(START_RETRY_SECONDS)

    async def _started(self) -> None:
        """Wait until the engine can work.

        Raises:
            TryLaterError: The engine is closed, or the servers are not ready.
        """
        if self._is_closing:
            raise TryLaterError("timers cannot be stored: the process is shutting down")
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self._ready.wait()
        except TimeoutError:
            reason = self._connection.problem or self._problem
            raise TryLaterError(f"timers cannot be stored: {reason}") from None

    def _pull(self, purpose: str) -> Pull:
        """Make what pulls and delivers the timers of a purpose."""
        deliveries = NatsDeliveries(purpose, self._attempts, self._clock, self._set_at, self._limits)
        self._deliveries.append(deliveries)
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._name}.{token_of(purpose)}"
        return Pull(self._connection, subject, deliveries.receive, self._stream.ensure)

    async def _set_at(self, timer: Timer, at: datetime, pause: float) -> None:
        """Set a timer that fired, for another time."""
        await self._connection.request([message_of(self._name, timer, at, pause)])

    async def _set_again(self, fired: Msg) -> None:
        """Set a timer that the servers do not deliver, due now."""
        with suppress(ValueError):  # another program wrote the message
            await self._set_at(timer_of(fired.data), self._clock.now(), 0.0)
