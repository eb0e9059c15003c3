"""A fired timer that this process holds, and its answers to the servers."""

from contextlib import suppress
from dataclasses import dataclass

from nats.aio.msg import Msg
from nats.errors import Error

from shared.adapters.timers.nats.subjects import KeySubjects
from shared.adapters.timers.places import Share, share_of
from shared.errors import TryLaterError
from shared.messages import Timer


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
