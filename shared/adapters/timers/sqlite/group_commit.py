"""Group commit: one thread commits all waiting writes in one transaction.

A commit costs one fsync, for one write or for a thousand. Writes that arrive during a commit share the next one, so the
cost per write falls as the load rises. The outcome of a delivery is not urgent: it waits a moment for those that
follow, because each wake-up of the thread also interrupts the event loop, which sends DELETEs meanwhile.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar

from shared.adapters.timers.sqlite.file import FileHealth
from shared.errors import TryLaterError, TtlError

GATHER_SECONDS = 0.002
"""How long a write that shrinks the file waits for others; a delivery keeps its permit for so long."""

SHRINKING_MAX = 256
"""Maximum number of shrinking writes of one transaction: a larger one may not fit into the log of a full volume."""

_ResultT = TypeVar("_ResultT")
_log = logging.getLogger("ttl")


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[_ResultT]):
    write: Callable[[sqlite3.Connection], _ResultT]
    shrinks: bool
    done: asyncio.Future[_ResultT]


class GroupCommit:
    """Commits writes in a thread; an error of the disk fails the waiting writes, not later ones.

    Args:
        db: A connection in autocommit mode, used by the thread only until `close`.
        health: Refuses new timers that would be lost, and gives errors their reasons.
        spare: A step of work for the time in which no write waits; returns whether there is more of it.

    Attributes:
        failure: An unexpected error of the thread, after which it refuses all writes; None if there was none.
    """

    def __init__(self, db: sqlite3.Connection, health: FileHealth, spare: Callable[[sqlite3.Connection], bool]) -> None:
        self._db, self._health, self._spare = db, health, spare
        self._waiting: SimpleQueue[_Waiting[Any] | None] = SimpleQueue()
        self._closed = False
        self.failure: Exception | None = None
        self._thread = Thread(target=self._run, name="timers-commit", daemon=True)
        self._thread.start()

    def submit(
        self, write: Callable[[sqlite3.Connection], _ResultT], *, shrinks: bool = False
    ) -> asyncio.Future[_ResultT]:
        """Queue a write; call this in an event loop.

        Args:
            write: Called in the thread, within a transaction. It must fail only by an error of the disk, since all
                writes of the transaction fail with it.
            shrinks: The write needs no space in the file; if the disk is full, it is committed without those that do.

        Returns:
            A future of the result of `write`, set once it is on disk; a TryLaterError if it could not be written.
        """
        done: asyncio.Future[_ResultT] = asyncio.get_running_loop().create_future()
        if self._closed:
            done.set_exception(TryLaterError("timers cannot be stored: the process is shutting down"))
        else:
            self._waiting.put(_Waiting(write, shrinks, done))
        return done

    def close(self) -> None:
        """Commit the waiting writes and end the thread; blocks until then."""
        self._closed = True
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while batch := self._take():
            try:
                if self.failure is None:
                    self._write(batch)
            except Exception as error:  # noqa: BLE001 - the thread must not die, so that each write gets an answer
                self._fail(error)
            if self.failure:  # the batch that failed is answered too
                _answer(batch, [], self.failure, f"unexpected error: {self.failure!r}")

    def _fail(self, error: Exception) -> None:
        self.failure = error
        _log.critical("timers cannot be stored", exc_info=error)

    def _write(self, batch: list[_Waiting[Any]]) -> None:
        results, error = self._commit(batch)
        self._health.note()
        shrinking = [waiting for waiting in batch if waiting.shrinks]
        if error is not None and 0 < len(shrinking) < len(batch):
            _answer([waiting for waiting in batch if not waiting.shrinks], [], error, self._health.explain(error))
            batch, (results, error) = shrinking, self._commit(shrinking)
        _answer(batch, results, error, self._health.explain(error) if error else "")

    def _take(self) -> list[_Waiting[Any]]:
        """Return waiting writes, at least one; none at the end."""
        batch, shrinking = list[_Waiting[Any]](), 0
        self._use_spare_time()
        with suppress(Empty):
            while waiting := self._waiting.get(block=not batch):
                if not batch and waiting.shrinks and not self._closed:
                    time.sleep(GATHER_SECONDS)
                batch.append(waiting)
                shrinking += waiting.shrinks
                if shrinking >= SHRINKING_MAX:
                    return batch
            self._waiting.put(None)  # the end marker, taken after writes: put it back for the next call
        return batch

    def _use_spare_time(self) -> None:
        try:
            while self.failure is None and self._waiting.empty() and self._spare(self._db):
                self._health.note()
        except sqlite3.Error:  # a full disk, or a damaged file: writes report it
            return
        except Exception as error:  # noqa: BLE001 - see `_run`
            self._fail(error)

    def _commit(self, batch: list[_Waiting[Any]]) -> tuple[list[Any], Exception | None]:
        try:
            # An outcome is written to any file, but `note` must not take a file that was cut off for one that shrank.
            with suppress(TtlError, OSError) if all(waiting.shrinks for waiting in batch) else nullcontext():
                self._health.check()
            self._db.execute("BEGIN IMMEDIATE")
            results = [waiting.write(self._db) for waiting in batch]
            self._db.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - the waiting futures get the error; the thread must not die
            with suppress(sqlite3.Error):  # SQLite itself rolls back on a full disk or an I/O error
                self._db.execute("ROLLBACK")
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                with suppress(sqlite3.Error):  # restart the write-ahead log, which open readers may have prevented
                    self._db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
            return [], error
        return results, None


def _answer(batch: list[_Waiting[Any]], results: list[Any], error: Exception | None, reason: str) -> None:
    """Set the results of the waiting futures, in their loop; skip cancelled ones."""

    def answer() -> None:
        for number, waiting in enumerate(batch):
            if waiting.done.done():
                continue
            if error is None:
                waiting.done.set_result(results[number])
            else:
                failure = TryLaterError(f"timers could not be stored: {reason}")
                failure.__cause__ = error
                waiting.done.set_exception(failure)

    with suppress(RuntimeError):  # the loop is closed, so no task waits for the results
        batch[0].done.get_loop().call_soon_threadsafe(answer)
