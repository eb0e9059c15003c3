"""A gate for bytes: limits how much of the memory of a process takes what is archived, or read from archives."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

ARCHIVE_BYTES_MAX = 64 * 1024 * 1024
"""Default for the bytes of objects and logs that are on the way to an archive at once."""

READ_BYTES_MAX = 48 * 1024 * 1024
"""Bytes of documents that a process decompresses and parses at once, with their copies; a larger one is read alone."""


class ByteGate:
    """Lets at most `bytes_max` bytes pass at once, in the order of the requests.

    A request for more than `bytes_max` bytes passes alone. While a task holds bytes of the gate it must not ask for
    more of this gate, nor wait for a task that does.

    Args:
        bytes_max: The limit, at least 1.
    """

    def __init__(self, bytes_max: int = ARCHIVE_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.in_flight = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[None]:
        """Wait until `size` more bytes may be in flight, and hold them.

        Args:
            size: Bytes, 0 or more.
        """
        await self.acquire(size)
        try:
            yield
        finally:
            self.release(size)

    async def acquire(self, size: int) -> None:
        """Wait until `size` more bytes may be in flight; `release` gives them back."""
        if not self._waiting and self._fits(size):
            self.in_flight += size
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it had its turn, and was cancelled before it could run
                self.release(size)
            else:
                self._waiting = deque(one for one in self._waiting if one[1] is not turn)
                self._admit()  # a large request may have kept smaller ones waiting
            raise

    def release(self, size: int) -> None:
        """Give back what `acquire` has got."""
        self.in_flight -= size
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            if not turn.cancelled():
                self.in_flight += size
                turn.set_result(None)

    def _fits(self, size: int) -> bool:
        return self.in_flight == 0 or self.in_flight + size <= self.bytes_max


@dataclass(frozen=True, slots=True)
class ArchiveGates:
    """The gates of a process. A task may wait at a gate while it holds bytes of those before it, and of no other.

    Attributes:
        objects: For the objects, while they and all that belongs to them are archived.
        children: For the documents of children, while they are stored.
        logs: For the logs of containers, while they are stored.
    """

    objects: ByteGate = field(default_factory=ByteGate)
    children: ByteGate = field(default_factory=ByteGate)
    logs: ByteGate = field(default_factory=ByteGate)

    @classmethod
    def of(cls, bytes_max: int) -> "ArchiveGates":
        """Share a number of bytes among the gates."""
        eighth = max(1, bytes_max // 8)
        return cls(objects=ByteGate(5 * eighth), children=ByteGate(eighth), logs=ByteGate(2 * eighth))
