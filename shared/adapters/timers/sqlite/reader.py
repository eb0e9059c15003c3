"""Read and copy a timer file that another process may use: read-only, and without its lock."""

import asyncio
import os
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from shared.adapters.timers.sqlite import store
from shared.adapters.timers.sqlite.health import describe_damage
from shared.adapters.timers.sqlite.schema import check_file
from shared.adapters.timers.sqlite.store import FOREVER_US, from_us, page_of, parse_position, read_page
from shared.errors import TryLaterError, TtlError
from shared.ports import EVERY_TIMER, TimerFilter, TimerPage
from shared.ports.timers import TIMERS_OF_ONE_PAGE

READ_BUSY_SECONDS = 10.0
"""Timeout for the lock that a process holds while it starts or migrates the file."""

_ResultT = TypeVar("_ResultT")


class SqliteReader:
    """The pending timers of a file; nothing fires, and the process that owns the file is not disturbed.

    Args:
        path: The file.

    Raises:
        TtlError: There is no such file, or it is not a timer file that this version can read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with ExitStack() as opened:
            self._db = opened.enter_context(closing(_open(path)))
            try:
                is_new = check_file(self._db, path)
            except sqlite3.Error as error:
                raise TtlError(describe_damage(path, error) or f"{path}: cannot be read: {error}") from error
            if is_new:
                raise TtlError(f"{path}: expected a timer file, got an empty file")
            opened.pop_all()

    async def page(
        self, after: str = "", *, limit: int = TIMERS_OF_ONE_PAGE, wanted: TimerFilter = EVERY_TIMER
    ) -> TimerPage:
        """Read a page of pending timers, in the order of their rows; see `PendingTimers.page`."""
        position = parse_position(after)
        return page_of(await self._read(partial(read_page, after=position, limit=limit)), limit, wanted)

    async def pending(self) -> int:
        """Return the number of timers."""
        return await self._read(store.count)

    async def next_due(self) -> datetime | None:
        """Return when the next timer fires: its due time, or its next attempt; None without timers."""
        next_us = await self._read(store.first_us)
        return None if next_us == FOREVER_US else from_us(next_us)

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
            raise TryLaterError(
                describe_damage(self._path, error) or f"{self._path}: cannot be read: {error}"
            ) from error


def _open(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise TtlError(f"{path}: expected a timer file, got none")
    address = f"{path.resolve().as_uri()}?mode=ro"
    try:
        return sqlite3.connect(
            address, uri=True, timeout=READ_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
    except sqlite3.Error as error:
        raise TtlError(f"{path}: cannot be read: {error}") from error


def _copy(db: sqlite3.Connection, target: Path) -> None:
    with closing(sqlite3.connect(target, isolation_level=None)) as copy:
        db.backup(copy)  # all pages in one read: in steps, each write of the owner would start it again
        copy.execute("PRAGMA journal_mode = DELETE")  # so that the copy is one file, also while it is read
    opened = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
