"""A gate for bytes: limits how much of the memory of a process takes what is archived, or read from archives."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

ARCHIVE_BYTES_MAX = 64 * 1024 * 1024
"""Default for the bytes of objects and logs that are on the way to an archive at once."""

READ_BYTES_MAX = 48 * 1024 * 1024
"""Bytes of documents that a process decompresses and parses at once, with their copies; a larger one is read alone."""


class ByteGate:
    """Lets at most `bytes_max` bytes pass at once, and keeps the order of the requests of each share.

    A share is a competitor for the bytes, such as a namespace. The shares take turns, and one that holds bytes already
    gets more only if it leaves as many free: so one share has about half of all bytes, the next one a quarter, and
    another one finds room at once. Requests without a share may take all bytes.

    A request for more than `bytes_max` bytes passes alone. While a task holds bytes of the gate it must not ask for
    more of this gate, nor wait for a task that does.

    Args:
        bytes_max: The limit, at least 1.
    """

    def __init__(self, bytes_max: int = ARCHIVE_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.in_flight = 0
        self._held = Counter[str]()
        self._waiting: OrderedDict[str | None, deque[tuple[int, asyncio.Future[None]]]] = OrderedDict()

    @asynccontextmanager
    async def hold(self, size: int, share: str | None = None) -> AsyncIterator["HeldBytes"]:
        """Wait until `size` more bytes may be in flight, and hold them.

        Args:
            size: Bytes, 0 or more.
            share: Who competes for them; None for no share.
        """
        await self.acquire(size, share)
        held = HeldBytes(self, size, share)
        try:
            yield held
        finally:
            self.release(held.size, share)

    async def acquire(self, size: int, share: str | None = None) -> None:
        """Wait until `size` more bytes may be in flight; `release` gives them back."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(share, deque()).append((size, turn))
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._admit()  # a large request may have kept smaller ones waiting
            else:  # it had its turn, and was cancelled before it could run
                self.release(size, share)
            raise

    def release(self, size: int, share: str | None = None) -> None:
        """Give back what `acquire` has got, or a part of it."""
        self.in_flight -= size
        if share is not None:
            self._held -= Counter({share: size})  # drops a share that holds nothing
        self._admit()

    def _admit(self) -> None:
        while self._admit_next():
            pass

    def _admit_next(self) -> bool:
        """Let the first request pass that may pass, and move its share to the end; False if there is none."""
        for share, queue in list(self._waiting.items()):
            while queue and queue[0][1].cancelled():
                queue.popleft()
            if not queue:
                del self._waiting[share]
                continue
            size, turn = queue[0]
            left = self.bytes_max - self.in_flight - size
            if self.in_flight and left < 0:
                return False  # a large request is not overtaken by small ones
            if self.in_flight and share is not None and left < self._held[share]:
                continue  # it has its share
            queue.popleft()
            self._waiting.move_to_end(share)
            self.in_flight += size
            if share is not None:
                self._held[share] += size
            turn.set_result(None)
            return True
        return False


@dataclass(slots=True)
class HeldBytes:
    """Bytes of a gate that a task holds.

    Attributes:
        gate: The gate.
        size: How many bytes.
        share: Who competes for them.
    """

    gate: ByteGate
    size: int
    share: str | None

    def shrink(self, size: int) -> None:
        """Give back all but `size` bytes, if that are fewer."""
        if size < self.size:
            spare, self.size = self.size - size, size
            self.gate.release(spare, self.share)


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
