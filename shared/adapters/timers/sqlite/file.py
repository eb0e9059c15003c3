"""Open the timer file: lock it, check that it is a timer file, set up SQLite, and limit the size of the file.

There are two connections: one thread writes with the first while another reads with the second; in WAL mode neither
waits.

Deleting a row needs space too: for the write-ahead log, and sometimes for a page. So new timers are refused while some
space is left; stored timers still fire, which frees space. Unused pages go back to the volume, in small steps.
"""

import os
import sqlite3
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from shared.adapters.timers.sqlite.health import FileHealth, describe_damage
from shared.adapters.timers.sqlite.lock import keep_private, lock_file
from shared.adapters.timers.sqlite.migration import migrate
from shared.adapters.timers.sqlite.schema import prepare
from shared.adapters.timers.sqlite.store import list_purposes, new_row_ids
from shared.errors import TtlError

FILE_BYTES_MAX = 512 * 1024 * 1024
"""Maximum size of the timer file without its log: about 1.5 million timers, half of the manifests' 1 GiB volume."""

RESERVE_BYTES = 32 * 1024 * 1024
"""Space within the file's limit, and on the volume, that new timers must leave free."""

LOG_BYTES = 8 * 1024 * 1024
"""Space reserved for the write-ahead log at start: twice its size at a checkpoint."""

STEP_PAGES = 32
"""Pages per step: a step takes about a millisecond, and `set` waits for one step at the most."""

SHRINK_PAGES_MIN = 1_024
"""Unused pages (4 MiB) from which the file shrinks, if they are also a quarter of the file."""

KEPT_PAGES = 256
"""Unused pages (1 MiB) that stay in the file for the next timers."""

_INCREMENTAL = 2


@dataclass(frozen=True, slots=True)
class Room:
    """The limits of one timer file.

    Attributes:
        path: The file.
        bytes_max: Maximum size of the file, without its log.
        reserve_bytes: Space that new timers must leave free.
        log_bytes: Space reserved for the write-ahead log at start.
    """

    path: Path
    bytes_max: int = FILE_BYTES_MAX
    reserve_bytes: int = RESERVE_BYTES
    log_bytes: int = LOG_BYTES

    def limit(self, db: sqlite3.Connection) -> None:
        """Set the limits of a connection's file and log; a file that is larger already keeps its size."""
        (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
        db.execute(f"PRAGMA max_page_count = {self.bytes_max // page_bytes}")
        if self.log_bytes:
            db.execute(f"PRAGMA wal_autocheckpoint = {max(1, self.log_bytes // page_bytes // 2)}")

    def take_log(self) -> None:
        """Reserve the space of the write-ahead log if possible; SQLite skips the zeros in it."""
        with suppress(OSError):
            log = os.open(f"{self.path.resolve()}-wal", os.O_RDWR | os.O_CLOEXEC)
            try:
                os.posix_fallocate(log, 0, self.log_bytes)
            finally:
                os.close(log)

    def shortage(self, db: sqlite3.Connection) -> str:
        """Return why there is no space for new timers; empty if there is."""
        page_bytes, pages, unused = (
            db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
        )
        used = (pages - unused) * page_bytes
        if used > self.bytes_max - self.reserve_bytes:
            return f"its timers take {used} of {self.bytes_max} bytes, and {self.reserve_bytes} must stay free"
        volume = os.statvfs(self.path.parent)
        free = volume.f_bavail * volume.f_frsize
        # Unused pages of the file need no more space on the volume.
        if free + unused * page_bytes < self.reserve_bytes:
            return f"its volume has {free} bytes left, and {self.reserve_bytes} must stay free"
        return ""


def room_of(path: Path) -> Room:
    """Return the limits of a file: the defaults, or smaller ones on a small volume.

    Raises:
        OSError: The folder does not exist.
    """
    volume = os.statvfs(path.parent)
    bytes_max = min(FILE_BYTES_MAX, volume.f_blocks * volume.f_frsize // 2)
    return Room(path, bytes_max, min(RESERVE_BYTES, bytes_max // 8), min(LOG_BYTES, bytes_max // 4))


BUSY_SECONDS = 1.0
"""Timeout for a lock on the file, which only a person's shell or a backup can hold. A longer one would delay `set`."""

WRITER_CACHE_KIB = 8 * 1024
READER_CACHE_KIB = 2 * 1024
"""The kernel caches the file too, so a larger cache only enlarges the process."""


class TimerFile:
    """The open timer file, locked by this process until `close` or until the process dies.

    The file, its write-ahead log, its index and its lock get mode 0600, whatever the umask and the earlier mode.

    Attributes:
        writer: The connection of the thread that commits.
        reader: The connection of the thread that reads.
        purposes: The purposes of the timers in the file when it was opened.
        row_ids: Numbers for the new rows of this process; for the thread that commits.
        room: The limits of the file's size.
        health: Whether new timers may be written.

    Raises:
        OwnedError: Another process owns the file.
        TtlError: The file cannot be written, or is not a timer file that this version can read.
    """

    def __init__(self, path: Path, room: Room | None = None) -> None:
        with ExitStack() as opened:
            try:
                opened.callback(os.close, lock_file(path))
                keep_private(path)
                migrate(path)
                self.writer = opened.enter_context(_Connection(path, WRITER_CACHE_KIB))
                prepare(self.writer, path)
                self.room = room or room_of(path)
                self.room.limit(self.writer)
                self.reader = opened.enter_context(_Connection(path, READER_CACHE_KIB))
                self.reader.execute("PRAGMA query_only = ON")
                self.purposes = list_purposes(self.reader)
                self.row_ids = new_row_ids(self.reader)
                self.room.take_log()
                self.health = FileHealth(path)
            except (sqlite3.Error, OSError) as error:
                if damage := describe_damage(path, error):
                    raise TtlError(damage) from error
                raise TtlError(f"{path}: expected a timer file that can be read and written, got: {error}") from error
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Close the connections and release the lock; no thread may use them afterwards."""
        self._opened.close()


class _Connection(sqlite3.Connection):
    """A connection that closes at the end of its `with` block; sqlite3's own class only commits there."""

    def __init__(self, path: Path, cache_kib: int) -> None:
        # Opened in one thread and used in another, never in two at the same time.
        super().__init__(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            self.execute(f"PRAGMA cache_size = -{cache_kib}")
        except sqlite3.Error:
            self.close()  # the caller never gets a connection to close
            raise

    def __exit__(self, *_: object) -> None:  # type: ignore[override]
        self.close()


class Shrinking:
    """Shrinks the file if a quarter of it is unused; a file of version 1 keeps its size."""

    def __init__(self) -> None:
        self._shrinks = False

    def step(self, db: sqlite3.Connection) -> bool:
        """Free some pages; return whether to call this again.

        Args:
            db: A connection without a transaction.

        Raises:
            sqlite3.Error: The disk accepts no write.
        """
        unused = _pragma(db, "freelist_count")
        self._shrinks = self._shrinks and unused > KEPT_PAGES
        if not self._shrinks:
            self._shrinks = unused >= max(SHRINK_PAGES_MIN, _pragma(db, "page_count") // 4)
            if not self._shrinks or _pragma(db, "auto_vacuum") != _INCREMENTAL:
                self._shrinks = False
                return False
        # `execute` would end the statement after its first page.
        db.executescript(f"PRAGMA incremental_vacuum({min(STEP_PAGES, unused - KEPT_PAGES)})")
        if unused <= KEPT_PAGES + STEP_PAGES:
            self._shrinks = False
            db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()  # the file itself shrinks at a checkpoint
        return True


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])
