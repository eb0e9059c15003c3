"""Write timers to the stream. A key has at most one schedule, its head, and each write names what it replaces.

Each write expects a last sequence of all subjects of its key. The servers refuse it if anything of the key was stored
in the meantime, and two writes that are in process at once exclude each other, since both name the same filter.
"""

import asyncio
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto

from nats.nuid import NUID

from shared.adapters.timers.nats.acks import Answer, ExpectationError
from shared.adapters.timers.nats.connection import NatsConnection
from shared.adapters.timers.nats.records import CANCELLED_HEADER, schedule_headers
from shared.adapters.timers.nats.subjects import KeySubjects, is_cancelled, is_head
from shared.errors import TryLaterError

CANCELLED_FOR = timedelta(minutes=2)
"""How long a cancellation stays: longer than the server takes from the start of a firing to its end (20 s for 10^6)."""

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
        body: The timer; None cancels it.
        at: When it fires.
    """

    key: KeySubjects
    body: bytes | None
    at: datetime


class Heads:
    """Sets, cancels and postpones timers.

    Args:
        connection: The connection.
    """

    def __init__(self, connection: NatsConnection) -> None:
        self._connection = connection
        self._nuid = NUID()
        self._replacing = asyncio.Semaphore(REPLACED_AT_ONCE)

    async def put(self, timers: Sequence[NewTimer]) -> None:
        """Set timers, each in place of the one of its key.

        First each is stored as if its key had none; that is one request a timer. Those that the servers refuse replace
        what there is.

        Raises:
            TryLaterError: A timer was not stored, or that is unknown.
            EventError: A timer is too large.
        """
        stored = [await self._send(timer, 0, "") for timer in timers]
        results = await asyncio.gather(*stored, return_exceptions=True)
        again = [timer for timer, result in zip(timers, results, strict=True) if isinstance(result, ExpectationError)]
        _raise_first(result for result in results if not isinstance(result, ExpectationError))
        _raise_first(await asyncio.gather(*map(self._replace, again), return_exceptions=True))

    async def _replace(self, timer: NewTimer) -> None:
        """Set a timer whose key has something in the stream."""
        async with self._replacing:
            for attempt in range(_TRIES):
                expected, head = await self._newest(timer.key)
                try:
                    await (await self._send(timer, expected, head))
                except ExpectationError:
                    await _pause(attempt)
                else:
                    return
        raise TryLaterError("the timer was not stored: other processes set it at the same time")

    async def cancel(self, keys: Sequence[KeySubjects], now: datetime) -> None:
        """Cancel the timers of keys: pending, or fired and not delivered yet.

        Raises:
            TryLaterError: A timer was not cancelled, or that is unknown.
        """
        _raise_first(await asyncio.gather(*(self._cancel(key, now) for key in keys), return_exceptions=True))

    async def _cancel(self, key: KeySubjects, now: datetime) -> None:
        """Let a schedule without a timer take the place of the timer.

        So a firing that the server has begun, and a retry of a delivery in flight, find that the timer is gone.
        """
        cancellation = NewTimer(key, None, now + CANCELLED_FOR)
        async with self._replacing:
            for attempt in range(_TRIES):
                expected, head = await self._newest(key)
                if not expected or is_cancelled(head):
                    return
                try:
                    await (await self._send(cancellation, expected, head))
                except ExpectationError:
                    await _pause(attempt)
                else:
                    return
        raise TryLaterError("the timer was not cancelled: other processes set it at the same time")

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
        for attempt in range(_TRIES):
            try:
                await (await self._send(timer, sequence, ""))
            except ExpectationError:
                await _pause(attempt)
                if await self.standing(timer.key, sequence, schedule) is Standing.REPLACED:
                    return False
            else:
                return True
        raise TryLaterError("the next attempt was not set: other processes set the timer at the same time")

    async def standing(self, key: KeySubjects, sequence: int, schedule: str) -> Standing:
        """Return what became of a fired timer, by the leader of the stream.

        The schedule that replaces a timer may be older than the firing that the server had begun, so a key with another
        schedule has no fired timer that counts. The leader may not know yet what another server has delivered: then it
        still has the schedule that fired, or less.

        Args:
            key: The key.
            sequence: The sequence of the fired timer.
            schedule: The subject of the schedule that fired it.

        Raises:
            TryLaterError: The servers do not answer.
        """
        newest, head = await asyncio.gather(self._connection.last(key.every), self._connection.last(key.heads))
        if (newest and newest.sequence > sequence) or (head and head.subject != schedule):
            return Standing.REPLACED
        if newest and (newest.sequence == sequence or newest.subject == schedule):
            return Standing.CURRENT
        return Standing.UNKNOWN

    async def _newest(self, key: KeySubjects) -> tuple[int, str]:
        """Return the last sequence of a key, and the subject of its head; 0 and empty without."""
        newest = await self._connection.last(key.every)
        if newest is None or is_head(newest.subject):
            return (newest.sequence, newest.subject) if newest else (0, "")
        head = await self._connection.last(key.heads)
        return newest.sequence, head.subject if head else ""

    async def _send(self, timer: NewTimer, expected: int, head: str) -> asyncio.Future[Answer]:
        """Send a schedule that replaces a head.

        Args:
            timer: What to store.
            expected: The last sequence of the key; 0 if the key has nothing.
            head: The subject of the schedule that is replaced; empty if there is none.
        """
        key, slot = timer.key, self._nuid.next().decode()
        headers = schedule_headers(timer.at, key.fired)
        headers["Nats-Expected-Last-Subject-Sequence"] = str(expected)
        headers["Nats-Expected-Last-Subject-Sequence-Subject"] = key.every
        if head:
            headers["Nats-Scheduler"] = head
            headers["Nats-Schedule-Next"] = "purge"
        if timer.body is None:
            headers[CANCELLED_HEADER] = "1"
            return await self._connection.store(key.cancelled(slot), b"", headers)
        return await self._connection.store(key.pending(slot), timer.body, headers)


def _raise_first(results: Iterable[object]) -> None:
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def _pause(attempt: int) -> None:
    """Wait before another try; at once for the first, since most conflicts are with a timer that is set again."""
    if attempt:
        await asyncio.sleep(random.uniform(0, _PAUSE_SECONDS * 2.0 ** min(attempt, 6)))  # noqa: S311
