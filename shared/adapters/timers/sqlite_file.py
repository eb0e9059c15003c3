"""Open the timer file: lock it, check that it is a timer file, set up SQLite, and limit the size of the file.

There are two connections: one thread writes with the first while another reads with the second; in WAL mode neither
waits.

Deleting a row needs space too: for the write-ahead log, and sometimes for a page. So new timers are refused while some
space is left; stored timers still fire, which frees space.
"""

import os
import sqlite3
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from shared.adapters.timers.sqlite_lock import keep_private, lock_file
from shared.adapters.timers.sqlite_store import list_purposes
from shared.errors import TtlError

FILE_BYTES_MAX = 512 * 1024 * 1024
"""Maximum size of the timer file without its log: about two million timers, half of the manifests' 1 GiB volume."""

RESERVE_BYTES = 32 * 1024 * 1024
"""Space within the file's limit, and on the volume, that new timers must leave free."""

LOG_BYTES = 8 * 1024 * 1024
"""Space reserved for the write-ahead log at start: twice its size at a checkpoint."""


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


SCHEMA_VERSION = 1
APPLICATION_ID = 0x74746C31
"""Marks a SQLite file as a timer file (`ttl1`), so that no table is added to another program's file."""

BUSY_SECONDS = 1.0
"""Timeout for a lock on the file, which only a person's shell or a backup can hold. A longer one would delay `set`."""

WRITER_CACHE_KIB = 8 * 1024
READER_CACHE_KIB = 2 * 1024
"""The kernel caches the file too, so a larger cache only enlarges the process."""

WAL_BYTES_MAX = 64 * 1024 * 1024
"""Maximum size of the write-ahead log after a burst of writes."""


# `fire_us` is the next attempt: `due_us` until one has failed. The rowid is a separate integer, since random uids as
# the table's key would halve the speed. The small index is for `retry_now` only.
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE timers (
    id INTEGER PRIMARY KEY,
    uid TEXT NOT NULL,
    purpose TEXT NOT NULL,
    due_us INTEGER NOT NULL,
    fire_us INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    generation INTEGER NOT NULL DEFAULT 1,
    ref TEXT NOT NULL,
    UNIQUE (uid, purpose)
) STRICT;
CREATE INDEX timers_by_fire ON timers (purpose, fire_us);
CREATE INDEX timers_retried ON timers (fire_us) WHERE attempts > 0;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""


class TimerFile:
    """The open timer file, locked by this process until `close` or until the process dies.

    The file, its write-ahead log, its index and its lock get mode 0600, whatever the umask and the earlier mode.

    Attributes:
        writer: The connection of the thread that commits.
        reader: The connection of the thread that reads.
        purposes: The purposes of the timers in the file when it was opened.
        room: The limits of the file's size.

    Raises:
        OwnedError: Another process owns the file.
        TtlError: The file cannot be written, or is not a timer file that this version can read.
    """

    def __init__(self, path: Path, room: Room | None = None) -> None:
        with ExitStack() as opened:
            try:
                opened.callback(os.close, lock_file(path))
                keep_private(path)
                self.writer = opened.enter_context(_Connection(path, WRITER_CACHE_KIB))
                _prepare(self.writer, path)
                self.room = room or room_of(path)
                self.room.limit(self.writer)
                self.reader = opened.enter_context(_Connection(path, READER_CACHE_KIB))
                self.reader.execute("PRAGMA query_only = ON")
                self.purposes = list_purposes(self.reader)
                self.room.take_log()
            except (sqlite3.Error, OSError) as error:
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


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    """Check that the file is a timer file before any change; create the schema in a new file."""
    application = db.execute("PRAGMA application_id").fetchone()[0]
    version = db.execute("PRAGMA user_version").fetchone()[0]
    is_new = application == version == 0 and not db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
    if not is_new and application != APPLICATION_ID:
        raise TtlError(f"{path}: expected a timer file, got another program's SQLite file")
    if version > SCHEMA_VERSION:
        raise TtlError(f"{path}: expected schema version {SCHEMA_VERSION} or older, got {version} of a newer release")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_MAX}")
    if is_new:
        db.executescript(_SCHEMA)
