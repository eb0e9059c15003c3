"""The replicated timer engine: delayed CloudEvents in a stream of NATS JetStream, shared by several processes.

Each timer fires at least once after it is due, and never before; this survives kill -9 of any process and any server:

- A timer is a message schedule. The servers keep the time, and publish the timer in the stream when it is due. One of
  the processes pulls it, delivers it, and acknowledges it after the delivery.
- Before a delivery, the process reads its own clock, and asks the leader of the stream whether the timer was replaced.
  Writes of one key exclude each other: `heads.py`.
- A failed delivery becomes a new schedule, so a target that is down holds up nothing. A restart hastens no retry.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime

from nats.aio.msg import Msg

from shared.adapters.timers.limits import LIMITS, EngineLimits
from shared.adapters.timers.nats.connection import NatsConnection
from shared.adapters.timers.nats.deliveries import NatsDeliveries
from shared.adapters.timers.nats.fired import FiredTimer, Holding
from shared.adapters.timers.nats.heads import Heads, NewTimer
from shared.adapters.timers.nats.lane import NatsLane
from shared.adapters.timers.nats.pages import Pages
from shared.adapters.timers.nats.pull import Pull
from shared.adapters.timers.nats.records import body_of, fire_at, is_cancellation, timer_of
from shared.adapters.timers.nats.revived import Revived
from shared.adapters.timers.nats.room import StreamRoom
from shared.adapters.timers.nats.servers import NatsServers
from shared.adapters.timers.nats.stream import START_RETRY_SECONDS, TimerStream
from shared.adapters.timers.nats.stuck import StuckTimers
from shared.adapters.timers.nats.subjects import CANCELLED, fired_subjects, subjects_of, token_of
from shared.errors import TryLaterError, TtlError
from shared.messages import Timer
from shared.ports import EVERY_TIMER, Clock, Publisher, TimerFilter, TimerPage
from shared.ports.timers import TIMERS_OF_ONE_PAGE

READY_SECONDS = 5.0
"""How long a call waits for the connection."""
_log = logging.getLogger("ttl")


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
        self._clock, self._limits, self._name = clock, limits, stream
        self._connection = NatsConnection(servers, stream)
        self._stream = TimerStream(self._connection, stream, replicas)
        self._room = StreamRoom(self._stream, bytes_max)
        self._heads, self._revived = Heads(self._connection, clock), Revived(self._connection)
        self._stuck = StuckTimers(self._connection, self._heads, self._revived, clock, stream)
        self._pages, self._holding = Pages(self._connection, stream), Holding()
        self._deliveries = NatsDeliveries(
            publisher, clock, self._heads, limits=limits, jitter=jitter, ended=self._release
        )
        self._lanes: dict[str, NatsLane] = {}
        self._pulls: list[Pull] = []
        self._ready, self._wake = asyncio.Event(), asyncio.Event()
        self._problem, self._closing = "the engine starts", False

    async def set(self, timers: Sequence[Timer]) -> None:
        """Set timers, each in place of the pending one with its uid and purpose; return once the servers stored them.

        Raises:
            TryLaterError: The timers could not be stored now; none of them is certain.
            EventError: A reference can never be stored.
        """
        last = {timer.key: timer for timer in timers}
        now = self._clock.now()
        new = [NewTimer(subjects_of(self._name, key), body_of(one), fire_at(one, now)) for key, one in last.items()]
        await self._started()
        await self._heads.put(new, await self._room.take(new))

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
            self._connection.reconnected = self._on_reconnect
            async with asyncio.TaskGroup() as group:
                for purpose in purposes:
                    self._add(purpose)
                for pull in self._pulls:
                    group.create_task(pull.run())
                group.create_task(self._holding.sign())
                group.create_task(self._stuck.run(purposes))
                self._ready.set()
                await self._fire()
        except* TtlError as errors:
            raise errors.exceptions[0] from None
        finally:
            await self.close()

    async def close(self) -> None:
        """Wait for the deliveries in flight, give back what waits, and close the connection; `run` ends with this."""
        if self._closing:
            return
        self._closing = True
        try:
            for lane in self._lanes.values():
                for fired in lane.clear():
                    await fired.give_back()
            await self._deliveries.drain()
        finally:
            await self._connection.close()

    async def pending(self) -> int:
        """Return the number of timers, those in flight included."""
        await self._started()
        cancelled = await self._stream.count(f"{self._name}.*.*.{CANCELLED}.*")
        return max(0, int((await self._stream.info())["messages"]) - cancelled)

    async def next_due(self) -> datetime | None:
        """Return when the oldest fired timer that is not delivered was due; None without one."""
        await self._started()
        sequence = 1
        while found := await self._connection.first(fired_subjects(self._name, "*"), sequence):
            with suppress(ValueError):
                return timer_of(found.body).due_at
            sequence = found.sequence + 1
        return None

    async def page(
        self, after: str = "", *, limit: int = TIMERS_OF_ONE_PAGE, wanted: TimerFilter = EVERY_TIMER
    ) -> TimerPage:
        """Read a page of pending timers, in the order of the stream; see `PendingTimers.page`."""
        await self._started()
        return await self._pages.read(after, limit, wanted)

    async def _start(self, prepare: Callable[[], Awaitable[tuple[str, ...]]]) -> tuple[str, ...]:
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
        if self._closing:
            raise TryLaterError("timers cannot be stored: the process is shutting down")
        if not self._ready.is_set():
            try:
                await asyncio.wait_for(self._ready.wait(), READY_SECONDS)
            except TimeoutError:
                reason = self._connection.problem or self._problem
                raise TryLaterError(f"timers cannot be stored: {reason}") from None

    def _add(self, purpose: str) -> None:
        lane = self._lanes[purpose] = NatsLane(purpose, self._limits.in_flight)
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._name}.{token_of(purpose)}"
        self._pulls.append(
            Pull(self._connection, subject, lambda one: self._take(lane, one), lambda: lane.room, self._stream.ensure)
        )

    def _on_reconnect(self) -> None:
        self._stuck.wake()
        for pull in self._pulls:
            pull.restart()

    async def _take(self, lane: NatsLane, message: Msg) -> None:
        """Let a fired timer wait for its delivery."""
        if is_cancellation(message.headers):
            await self._revived.end(message)
        elif fired := await self._holding.add(message):
            if self._closing:
                await fired.give_back()
            else:
                lane.add(fired, time.monotonic())
                self._wake.set()

    def _release(self, fired: FiredTimer) -> None:
        self._holding.release(fired)
        self._wake.set()

    async def _fire(self) -> None:
        """Start deliveries in free places."""
        while not self._connection.closed:
            self._wake.clear()
            for lane in self._lanes.values():
                while fired := lane.take():
                    self._deliveries.start(lane, fired)
                self._deliveries.postpone(lane.surplus(time.monotonic()))
            for pull in self._pulls:
                pull.wake()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._limits.rest_seconds):
                    await self._wake.wait()
        raise TtlError("the NATS servers closed the connection for good; see the error before this line")
