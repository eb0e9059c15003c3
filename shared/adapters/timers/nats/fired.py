"""The fired timers that this process holds, and its answers to the servers."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from nats.aio.msg import Msg
from nats.errors import Error

from shared.adapters.timers.nats.records import SCHEDULER_HEADER, replaced_by, timer_of
from shared.adapters.timers.nats.stream import ACK_SECONDS
from shared.adapters.timers.nats.subjects import KeySubjects, key_subjects
from shared.adapters.timers.places import Share, share_of
from shared.errors import TryLaterError
from shared.messages import Timer

SIGN_SECONDS = ACK_SECONDS / 3
"""How often the servers get a sign of life for what is held."""

SETTLED_MAX = 10_000
"""How many settled timers are remembered: the servers deliver one again if they did not get the acknowledgement."""

_Stored = tuple[int, datetime]
"""The sequence of a message, and when it was stored: a stream that is created again begins with the first sequence."""

_log = logging.getLogger("ttl")


@dataclass(slots=True)
class FiredTimer:
    """A fired timer that this process holds.

    Attributes:
        key: The subjects of its key.
        sequence: Its position in the stream.
        schedule: The subject of the schedule that fired it.
        replaced: The last sequence of what it has replaced; 0 if it replaced no other timer.
        message: The message, to acknowledge it; the newest if the servers delivered it again.
        settled: It was acknowledged, so the stream has it no more.
    """

    timer: Timer
    key: KeySubjects
    sequence: int
    schedule: str
    replaced: int
    message: Msg
    settled: bool = False

    @property
    def share(self) -> Share:
        """The share whose place the delivery takes."""
        return share_of(self.timer.ref)

    async def settle(self) -> None:
        """Let the servers remove the timer from the stream.

        Raises:
            TryLaterError: The connection is closed.
        """
        try:
            await self.message.ack()
        except Error as error:
            raise TryLaterError(f"NATS: {error}") from error
        self.settled = True

    async def give_back(self, seconds: float = 0.0) -> None:
        """Let the servers deliver the timer again, after a time; without a connection, they do so by themselves."""
        with suppress(Error):
            await self.message.nak(seconds)

    async def sign(self) -> None:
        """Report that this process still has the timer."""
        with suppress(Error):
            await self.message.in_progress()


class Holding:
    """What this process pulled and has not settled."""

    def __init__(self) -> None:
        self._held: dict[_Stored, FiredTimer] = {}
        self._settled: dict[_Stored, None] = {}

    async def add(self, message: Msg) -> FiredTimer | None:
        """Hold a fired timer; None if it needs no delivery: it is held or settled already, or is no timer."""
        stored = _stored(message)
        if held := self._held.get(stored):
            held.message = message  # only the newest delivery can be acknowledged
            return None
        if stored in self._settled:
            await _drop(message)
            return None
        try:
            timer = timer_of(message.data)
        except ValueError as error:
            _log.error("fired message dropped", extra={"fields": {"subject": message.subject, "error": str(error)}})
            await _drop(message)
            return None
        schedule = (message.headers or {}).get(SCHEDULER_HEADER, "")
        key, replaced = key_subjects(message.subject), replaced_by(message.headers)
        fired = self._held[stored] = FiredTimer(timer, key, stored[0], schedule, replaced, message)
        return fired

    def release(self, fired: FiredTimer) -> None:
        """Hold a timer no more."""
        stored = _stored(fired.message)
        self._held.pop(stored, None)
        if fired.settled:
            self._settled[stored] = None
            if len(self._settled) > SETTLED_MAX:
                del self._settled[next(iter(self._settled))]

    async def sign(self) -> None:
        """Report to the servers, again and again, that this process still has the timers that it holds."""
        while True:
            await asyncio.sleep(SIGN_SECONDS)
            for fired in tuple(self._held.values()):
                await fired.sign()


def _stored(message: Msg) -> _Stored:
    return message.metadata.sequence.stream, message.metadata.timestamp


async def _drop(message: Msg) -> None:
    with suppress(Error):
        await message.ack()
