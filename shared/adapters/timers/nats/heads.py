"""Write timers to the stream. A key has at most one schedule, its head, and each write names what it replaces.

Each write expects a last sequence of all subjects of its key. The servers refuse it if anything of the key was stored
in the meantime, and two writes that are in process at once exclude each other, since both name the same filter.
"""

import asyncio
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto

from shared.adapters.timers.nats.acks import Answer, ExpectationError
from shared.adapters.timers.nats.connection import NatsConnection, StreamMessage, contents_of
from shared.adapters.timers.nats.records import (
    CANCELLED_FOR,
    CANCELLED_HEADER,
    REPLACED_HEADER,
    SCHEDULER_HEADER,
    microseconds,
    schedule_headers,
)
from shared.adapters.timers.nats.subjects import KeySubjects, is_cancelled, is_head, order_of
from shared.errors import TryLaterError
from shared.ports import Clock

REPLACED_AT_ONCE = 256
"""Maximum number of timers that are replaced or cancelled at once: each is read before it is written."""

_TRIES = 20
_PAUSE_SECONDS = 0.01


class Standing(Enum):
    """What became of a fired timer."""

    CURRENT = auto()
    """It was neither replaced nor cancelled."""
    REPLACED = auto()
    """It was replaced or cancelled."""
    UNKNOWN = auto()
    """The leader of the stream does not know it yet, or no more."""


@dataclass(frozen=True, slots=True)
class NewTimer:
    """What to store for a key.

    Attributes:
        key: The key.
        body: The timer; None cancels the timer of the key.
        at: When it fires.
        replaced: The last sequence of what it is known to have replaced; 0 if there is none.
    """

    key: KeySubjects
    body: bytes | None
    at: datetime
    replaced: int = 0


def cancellation_of(key: KeySubjects, now: datetime, replaced: int = 0) -> NewTimer:
    """Return a schedule without a timer, which takes the place of the timer of a key.

    So a firing that the server has begun, a retry of a delivery in flight, and a timer that a server brings back find
    that the timer is gone.
    """
    return NewTimer(key, None, now + CANCELLED_FOR, replaced)


@dataclass(frozen=True, slots=True)
class _Found:
    """What a key has in the stream.

    Attributes:
        sequence: The last sequence of the key; 0 if it has nothing.
        head: The subject of its schedule; empty if there is none.
        order: The order of its newest timer or cancellation; 0 without one.
        differs: Whether it is, or was, another timer than the one that replaces it.
    """

    sequence: int = 0
    head: str = ""
    order: int = 0
    differs: bool = False


_NOTHING = _Found()


class Heads:
    """Sets, cancels and postpones timers.

    Args:
        connection: The connection.
        clock: The wall clock.
    """

    def __init__(self, connection: NatsConnection, clock: Clock) -> None:
        self._connection, self._clock = connection, clock
        self._replacing = asyncio.Semaphore(REPLACED_AT_ONCE)

    async def put(self, timers: Sequence[NewTimer], full: TryLaterError | None = None) -> None:
        """Set or cancel timers, each in place of the one of its key.

        First each is stored as if its key had none; that is one request a timer. Those that the servers refuse replace
        what there is. A key without a timer is cancelled by a write too: a server that has lost its quorum knows no
        newer timer, and would say that there is none.

        Args:
            timers: What to store.
            full: If there is no room: what to raise for a key that has nothing in the stream.

        Raises:
            TryLaterError: A timer was not stored, or that is unknown.
            EventError: A timer is too large.
        """
        again = timers if full else await self._put_new(timers)
        _raise_first(await asyncio.gather(*(self._replace(one, full) for one in again), return_exceptions=True))

    async def _put_new(self, timers: Sequence[NewTimer]) -> Sequence[NewTimer]:
        """Store timers of keys without a timer; return those of other keys."""
        stored = [await self._send(timer, _NOTHING) for timer in timers]
        results = await asyncio.gather(*stored, return_exceptions=True)
        _raise_first(result for result in results if not isinstance(result, ExpectationError))
        return [timer for timer, result in zip(timers, results, strict=True) if isinstance(result, ExpectationError)]

    async def _replace(self, timer: NewTimer, full: TryLaterError | None) -> None:
        """Set or cancel a timer whose key has something in the stream."""
        async with self._replacing:
            for attempt in range(_TRIES):
                found = await self._newest(timer)
                if full and not found.sequence:
                    raise full
                try:
                    await (await self._send(timer, found))
                except ExpectationError:
                    await _pause(attempt)
                else:
                    return
        raise TryLaterError("the timer was not stored: other processes set it at the same time")

    async def postpone(self, timer: NewTimer, sequence: int, schedule: str) -> bool:
        """Set the next attempt of a fired timer, unless it was replaced or cancelled.

        Args:
            timer: The timer, with the time of the next attempt.
            sequence: The sequence of the fired timer.
            schedule: The subject of the schedule that fired it.

        Returns:
            False if the timer was replaced or cancelled.

        Raises:
            TryLaterError: The attempt was not set, or that is unknown.
        """
        last = sequence
        for attempt in range(_TRIES):
            try:
                await (await self._send(timer, _Found(last, order=order_of(schedule))))
            except ExpectationError:
                await _pause(attempt)
                standing, found = await self._look(timer.key, sequence, schedule)
                if standing is Standing.REPLACED:
                    return False
                last = max(sequence, found) if standing is Standing.CURRENT else sequence
            else:
                return True
        raise TryLaterError("the next attempt was not set: other processes set the timer at the same time")

    async def standing(self, key: KeySubjects, sequence: int, schedule: str) -> Standing:
        """Return what became of a fired timer, by the server that leads the stream, or that still believes so.

        This is a read without a quorum. A server that is cut off from most others notices that after up to 10 s. A
        process that is cut off with it may start a delivery meanwhile, although others replaced or cancelled the timer.

        The leader may not know yet what another server has delivered: then it still has the schedule that fired, or
        less.

        Args:
            key: The key.
            sequence: The sequence of the fired timer.
            schedule: The subject of the schedule that fired it.

        Raises:
            TryLaterError: The servers do not answer.
        """
        return (await self._look(key, sequence, schedule))[0]

    async def _look(self, key: KeySubjects, sequence: int, schedule: str) -> tuple[Standing, int]:
        """Return what became of a fired timer, and the last sequence of its key."""
        found = await contents_of(self._connection, key)
        last = max((one.sequence for one in found), default=0)
        if any(_is_later(one, sequence, order_of(schedule)) for one in found):
            return Standing.REPLACED, last
        is_there = any(one.sequence == sequence or one.subject == schedule for one in found)
        return (Standing.CURRENT if is_there else Standing.UNKNOWN), last

    async def _newest(self, timer: NewTimer) -> _Found:
        """Read what the key of a timer has in the stream."""
        newest = await self._connection.last(timer.key.every)
        if newest is None:
            return _NOTHING
        order = _order_of(newest)
        if is_head(newest.subject):
            was_replaced = is_cancelled(newest.subject) or REPLACED_HEADER in newest.headers
            return _Found(newest.sequence, newest.subject, order, was_replaced or newest.body != timer.body)
        head = await self._connection.last(timer.key.heads)
        if head is None:
            return _Found(newest.sequence, order=order, differs=True)
        return _Found(newest.sequence, head.subject, max(order, _order_of(head)), differs=True)

    async def _send(self, timer: NewTimer, replaced: _Found) -> asyncio.Future[Answer]:
        """Send a schedule that replaces what its key has in the stream.

        Its order is the time by the clock of this process. If another process was ahead, it is the next free number.
        """
        key, order = timer.key, max(microseconds(self._clock.now()), replaced.order + 1)
        headers = schedule_headers(timer.at, key.fired)
        headers["Nats-Expected-Last-Subject-Sequence"] = str(replaced.sequence)
        headers["Nats-Expected-Last-Subject-Sequence-Subject"] = key.every
        if replaced.head:
            headers[SCHEDULER_HEADER] = replaced.head
            headers["Nats-Schedule-Next"] = "purge"
        if gone := replaced.sequence if replaced.differs else timer.replaced:
            headers[REPLACED_HEADER] = str(gone)
        if timer.body is None:
            headers[CANCELLED_HEADER] = "1"
            return await self._connection.store(key.cancelled(order), b"", headers)
        return await self._connection.store(key.pending(order), timer.body, headers)


def _is_later(message: StreamMessage, sequence: int, order: int) -> bool:
    """Return whether what is in the stream was set later than a fired timer with this sequence and order."""
    was_set_after_the_firing = is_head(message.subject) and message.sequence > sequence
    return was_set_after_the_firing or (_order_of(message), message.sequence) > (order, sequence)


def _order_of(message: StreamMessage) -> int:
    """Return the order of a schedule, or of the schedule that fired a timer."""
    return order_of(message.subject if is_head(message.subject) else message.headers.get(SCHEDULER_HEADER, ""))


def _raise_first(results: Iterable[object]) -> None:
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def _pause(attempt: int) -> None:
    """Wait before another try; at once for the first, since most conflicts are with a timer that is set again."""
    if attempt:
        await asyncio.sleep(random.uniform(0, _PAUSE_SECONDS * 2.0 ** min(attempt, 6)))  # noqa: S311
