"""Read the pending timers of a file; and read or copy a file that another process may use: without its lock."""

import asyncio
import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from shared.adapters.timers.sqlite import store
from shared.adapters.timers.sqlite.file import check_file, describe_damage
from shared.adapters.timers.stored import instant_of
from shared.errors import TryLaterError, TtlError
from shared.ports import EVERY_TIMER, TimerFilter, TimerPage
from shared.ports.process import TIMERS_OF_ONE_PAGE

READ_BUSY_SECONDS = 10.0
"""Timeout for the lock that a process holds while it starts."""

_ResultT = TypeVar("_ResultT")


class PendingInFile(ABC):
    """The pending timers of a file that `_read` reads."""

    async def page(
        self, after: str = "", *, limit: int = TIMERS_OF_ONE_PAGE, wanted: TimerFilter = EVERY_TIMER
    ) -> TimerPage:
        """Read a page of pending timers, in the order of their rows; see `PendingTimers.page`."""
        if after and not (after.isascii() and after.isdecimal() and int(after) <= store.FOREVER_US):
            raise ValueError(f"expected a position in the timer file, got {after!r}")
        rows = await self._read(partial(store.read_page, after=int(after or 0), limit=limit))
        timers = []
        for row in rows:
            with suppress(ValueError):  # another program wrote the row
                timers.append(row.timer())
        return TimerPage(tuple(filter(wanted.matches, timers)), str(rows[-1].row_id) if len(rows) == limit else "")

    async def pending(self) -> int:
        """Return the number of timers, those in flight included."""
        return await self._read(store.count)

    async def next_due(self) -> datetime | None:
        """Return when the next timer fires: its due time, or its next attempt; None without timers."""
        next_us = await self._read(store.first_us)
        return None if next_us == store.FOREVER_US else instant_of(next_us)

    @abstractmethod
    async def _read(self, query: Callable[[sqlite3.Connection], _ResultT]) -> _ResultT:
        """Read the file; raise a TryLaterError if it cannot be read now."""


class SqliteReader(PendingInFile):
    """The pending timers of a file; nothing fires, and the process that owns the file is not disturbed.

    Args:
        path: The file.

    Raises:
        TtlError: There is no such file, or it is not a timer file that this version can read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.is_file():
            raise TtlError(f"{path}: expected a timer file, got none")
        address = f"{path.resolve().as_uri()}?mode=ro"
        with ExitStack() as opened:
            try:
                self._db = sqlite3.connect(
                    address, uri=True, timeout=READ_BUSY_SECONDS, isolation_level=None, check_same_thread=False
                )
                opened.callback(self._db.close)
                is_new = check_file(self._db, path)
            except sqlite3.Error as error:
                raise TtlError(self._explain(error)) from error
            if is_new:
                raise TtlError(f"{path}: expected a timer file, got an empty file")
            opened.pop_all()

    async def copy(self, target: Path) -> None:
        """Copy the file, as it is now, to an empty file, and sync it.

        Raises:
            TtlError: The file could not be copied.
        """
        try:
            await asyncio.to_thread(_copy, self._db, target)
        except (sqlite3.Error, OSError) as error:
            raise TtlError(describe_damage(self._path, error) or f"{target}: cannot be written: {error}") from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    async def _read(self, query: Callable[[sqlite3.Connection], _ResultT]) -> _ResultT:
        try:
            return await asyncio.to_thread(query, self._db)
        except sqlite3.Error as error:
            raise TryLaterError(self._explain(error)) from error

    def _explain(self, error: sqlite3.Error) -> str:
        return describe_damage(self._path, error) or f"{self._path}: cannot be read: {error}"


def _copy(db: sqlite3.Connection, target: Path) -> None:
    with closing(sqlite3.connect(target, isolation_level=None)) as copy:
        db.backup(copy)  # all pages in one read: in steps, each write of the owner would start it again
        copy.execute("PRAGMA journal_mode = DELETE")  # so that the copy is one file, also while it is read
    opened = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
