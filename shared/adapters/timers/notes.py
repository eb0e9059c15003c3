"""What came of deliveries and could not be written to a full or locked disk: kept in memory until it can."""

import asyncio
import itertools
import logging
import sqlite3
from collections.abc import Callable

from shared.adapters.timers.group_commit import GroupCommit
from shared.adapters.timers.lane import Lane

UNNOTED_MAX = 10_000
"""Deliveries that are remembered so, a few MiB; beyond it each holds its place until it is written."""

BATCH = 256
"""Written at once, in one transaction."""

Write = Callable[[sqlite3.Connection], int]
"""Writes what came of a delivery; returns when to look at its row again."""

_log = logging.getLogger("ttl")


class Notes:
    """Writes them as soon as the disk takes them, oldest first; until then no timer of theirs is delivered again.

    Args:
        commits: Writes them.
        pause_seconds: Between two attempts.
        wake: Called after each that was written.
    """

    def __init__(self, commits: GroupCommit, pause_seconds: float, wake: Callable[[], None]) -> None:
        self._commits = commits
        self._pause_seconds = pause_seconds
        self._wake = wake
        self._kept: dict[tuple[str, str], tuple[Lane, Write]] = {}
        self._writing: asyncio.Task[None] | None = None
        self._closed = False

    async def keep(self, lane: Lane, uid: str, write: Write, *, failed: bool) -> None:
        """Free the place of a delivery whose result could not be written; wait where too many are kept."""
        while len(self._kept) >= UNNOTED_MAX and not self._closed:  # noqa: ASYNC110 - rare, and for as long as a disk
            await asyncio.sleep(self._pause_seconds)
        lane.land_unnoted(uid, failed=failed)
        self._kept[lane.purpose, uid] = lane, write
        if self._writing is None and not self._closed:
            _log.error("timers not noted", extra={"fields": {"purpose": lane.purpose, "uid": uid}})
            self._writing = asyncio.create_task(self._write())

    def close(self) -> None:
        """Forget them: the next process delivers their timers again."""
        self._closed = True
        if self._writing:
            self._writing.cancel()

    async def _write(self) -> None:
        try:
            while self._kept:
                batch = list(itertools.islice(self._kept.items(), BATCH))
                written = [self._commits.submit(write, shrinks=True) for _, (_, write) in batch]
                await asyncio.wait(written)
                for (key, (lane, _)), done in zip(batch, written, strict=True):
                    if done.exception() is None:
                        del self._kept[key]
                        lane.noted(key[1], done.result())
                self._wake()
                if written[-1].exception() is not None:
                    await asyncio.sleep(self._pause_seconds)
        finally:
            self._writing = None
