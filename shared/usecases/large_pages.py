"""Large pages of LISTs: one at a time in a process, whichever sweeps want one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

TURN_SECONDS = 30.0
"""After that the next kind has its turn: deletions that hang must not stop the sweeps of all others."""


class LargePages:
    """The turns of the sweeps of one process."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._kinds: set[str] = set()

    @asynccontextmanager
    async def turn(self, kind: str) -> AsyncIterator[bool]:
        """Wait for the turn of a kind, if its last page was large; the turn ends with the block, or by its time.

        Yields:
            Whether this is a turn.
        """
        if kind not in self._kinds:
            yield False
            return
        await self._lock.acquire()
        turn = _Turn(self._lock)
        timer = asyncio.get_running_loop().call_later(TURN_SECONDS, turn.end)
        try:
            yield True
        finally:
            timer.cancel()
            turn.end()

    def note(self, kind: str, *, is_large: bool) -> None:
        """What the last page of a kind was."""
        if is_large:
            self._kinds.add(kind)
        else:
            self._kinds.discard(kind)


class _Turn:
    """Ends once."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock: asyncio.Lock | None = lock

    def end(self) -> None:
        if self._lock is not None:
            self._lock.release()
        self._lock = None
