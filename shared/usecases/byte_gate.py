"""A gate for bytes: limits how much of the memory of a process takes what is archived, or read from archives."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

ARCHIVE_BYTES_MAX = 64 * 1024 * 1024
"""Default for the bytes of objects and logs that are on the way to an archive at once."""

READ_BYTES_MAX = 48 * 1024 * 1024
"""Bytes of documents that a process decompresses and parses at once, with their copies; a larger one is read alone."""


class ByteGate:
    """Lets at most `bytes_max` bytes pass at once, in the order of the requests of each share.

    A share is a competitor for the bytes, such as a namespace: it may hold half of what the others leave. So one share
    gets half of all bytes, the next one a quarter, and there is room for one more at once. Requests without a share
    may take all bytes.

    A request for more than `bytes_max` bytes passes alone. While a task holds bytes of the gate it must not ask for
    more of this gate, nor wait for a task that does.

    Args:
        bytes_max: The limit, at least 1.
    """

    def __init__(self, bytes_max: int = ARCHIVE_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.in_flight = 0
        self._shares = Counter[str]()
        self._waiting: dict[asyncio.Future[None], _Request] = {}

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
        self._waiting[turn] = _Request(size, share)
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it had its turn, and was cancelled before it could run
                self.release(size, share)
            else:
                del self._waiting[turn]
                self._admit()  # a large request may have kept smaller ones waiting
            raise

    def release(self, size: int, share: str | None = None) -> None:
        """Give back what `acquire` has got, or a part of it."""
        self.in_flight -= size
        if share is not None:
            self._shares -= Counter({share: size})  # drops a share that holds nothing
        self._admit()

    def _admit(self) -> None:
        behind = set[str | None]()  # shares with a request that has to wait: none of theirs overtakes it
        for turn, (size, share) in list(self._waiting.items()):
            if turn.cancelled() or share in behind:
                continue
            if self._fits(size, share):
                del self._waiting[turn]
                self.in_flight += size
                if share is not None:
                    self._shares[share] += size
                turn.set_result(None)
            elif share is None or not self._shares[share]:
                return  # a share that holds nothing is overtaken by no other
            else:
                behind.add(share)

    def _fits(self, size: int, share: str | None) -> bool:
        if self.in_flight == 0:
            return True
        left = self.bytes_max - self.in_flight - size
        held = 0 if share is None else self._shares[share]
        return left >= (held + size if held else 0)


class _Request(NamedTuple):
    size: int
    share: str | None


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
