"""Results of deliveries that a full or locked disk refused: kept in memory and retried."""

import asyncio
import itertools
import logging
import sqlite3
from collections.abc import Callable

from shared.adapters.timers.group_commit import GroupCommit
from shared.adapters.timers.lane import Lane

UNWRITTEN_MAX = 10_000
"""Maximum number of kept results (a few MiB); beyond it, each delivery holds its place until its result is written."""

BATCH = 256
"""Results per transaction."""

Write = Callable[[sqlite3.Connection], int]
"""Writes the result of a delivery; returns when to read its row again."""

_log = logging.getLogger("ttl")


class UnwrittenResults:
    """Writes kept results as soon as the disk accepts them, oldest first; until then their timers are not delivered.

    Args:
        commits: Writes the results.
        pause_seconds: Pause between two attempts.
        wake: Called after each attempt.
    """

    def __init__(self, commits: GroupCommit, pause_seconds: float, wake: Callable[[], None]) -> None:
        self._commits = commits
        self._pause_seconds = pause_seconds
        self._wake = wake
        self._kept: dict[tuple[str, str], tuple[Lane, Write]] = {}
        self._writing: asyncio.Task[None] | None = None
        self._closed = False

    async def keep(self, lane: Lane, uid: str, write: Write, *, failed: bool) -> None:
        """Keep a result that could not be written, and free its place; wait while too many are kept."""
        while len(self._kept) >= UNWRITTEN_MAX and not self._closed:  # noqa: ASYNC110 - rare: the disk is full
            await asyncio.sleep(self._pause_seconds)
        lane.finish_unwritten(uid, failed=failed)
        self._kept[lane.purpose, uid] = lane, write
        if self._writing is None and not self._closed:
            _log.error("timer results not written", extra={"fields": {"purpose": lane.purpose, "uid": uid}})
            self._writing = asyncio.create_task(self._write())

    def close(self) -> None:
        """Drop the kept results: the next process delivers their timers again."""
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
                        lane.written(key[1], done.result())
                self._wake()
                if written[-1].exception() is not None:
                    await asyncio.sleep(self._pause_seconds)
        finally:
            self._writing = None
