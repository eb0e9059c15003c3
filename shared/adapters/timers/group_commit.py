"""Group commit: one thread that commits all writes that wait in one transaction.

A commit costs an fsync whether it holds one write or a thousand. So whatever arrives during one commit shares the
next one, and the price of durability falls as the load rises.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar

from shared.errors import TryLaterError

_ResultT = TypeVar("_ResultT")


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[_ResultT]):
    write: Callable[[sqlite3.Connection], _ResultT]
    shrinks: bool
    done: asyncio.Future[_ResultT]


class GroupCommit:
    """Commits writes; after trouble with the disk it goes on with the next ones.

    Args:
        db: A connection in autocommit mode, for the thread alone until `close`.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._waiting: SimpleQueue[_Waiting[Any] | None] = SimpleQueue()
        self._closed = False
        self._thread = Thread(target=self._run, name="timers-commit", daemon=True)
        self._thread.start()

    def submit(
        self, write: Callable[[sqlite3.Connection], _ResultT], *, shrinks: bool = False
    ) -> asyncio.Future[_ResultT]:
        """Hand over a write; to be called in an event loop.

        Args:
            write: Called in the thread, within a transaction; must not fail but by the disk, since all fail with it.
            shrinks: It needs no room in the file; where the disk is full, it does not fail with those that do.

        Returns:
            What `write` returned, once it is on disk; a TryLaterError where it is not.
        """
        done: asyncio.Future[_ResultT] = asyncio.get_running_loop().create_future()
        if self._closed:
            done.set_exception(TryLaterError("timers cannot be stored: the process is ending"))
        else:
            self._waiting.put(_Waiting(write, shrinks, done))
        return done

    def close(self) -> None:
        """Commit what waits and end the thread; blocks for as long as that takes."""
        self._closed = True
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while batch := self._take():
            results, error = self._commit(batch)
            shrinking = [waiting for waiting in batch if waiting.shrinks]
            if error is not None and 0 < len(shrinking) < len(batch):
                self._write_event([waiting for waiting in batch if not waiting.shrinks], [], error)
                batch, (results, error) = shrinking, self._commit(shrinking)
            self._write_event(batch, results, error)

    def _write_event(self, batch: list[_Waiting[Any]], results: list[Any], error: Exception | None) -> None:
        with suppress(RuntimeError):  # the loop is gone, and with it everyone who waited
            batch[0].done.get_loop().call_soon_threadsafe(_answer, batch, results, error)

    def _take(self) -> list[_Waiting[Any]]:
        """All that waits, at least one; nothing at the end."""
        batch: list[_Waiting[Any]] = []
        with suppress(Empty):
            while waiting := self._waiting.get(block=not batch):
                batch.append(waiting)
            self._waiting.put(None)  # the end, found behind others: to be found again
        return batch

    def _commit(self, batch: list[_Waiting[Any]]) -> tuple[list[Any], Exception | None]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            results = [waiting.write(self._db) for waiting in batch]
            self._db.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - those who wait are told; the thread must live on
            with suppress(sqlite3.Error):  # full disks and I/O errors roll back by themselves
                self._db.execute("ROLLBACK")
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                with suppress(sqlite3.Error):  # the log begins again, which readers may have kept from it
                    self._db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
            return [], error
        return results, None


def _answer(batch: list[_Waiting[Any]], results: list[Any], error: Exception | None) -> None:
    """Tell all who wait, in their loop; one who gave up meanwhile is passed over."""
    if error is None:
        for waiting, result in zip(batch, results, strict=True):
            if not waiting.done.done():
                waiting.done.set_result(result)
        return
    for waiting in batch:
        if not waiting.done.done():
            refusal = TryLaterError(f"timers could not be stored: {error}")
            refusal.__cause__ = error
            waiting.done.set_exception(refusal)
