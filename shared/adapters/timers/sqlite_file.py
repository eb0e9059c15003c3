"""The timer file: who owns it, whether it is ours to open, and how SQLite is set up on it.

Two connections: one thread writes with the first while another reads with the second, and neither waits (WAL).
"""

import fcntl
import logging
import os
import sqlite3
import stat
from contextlib import ExitStack, suppress
from pathlib import Path

from shared.adapters.timers.room import Room, room_of
from shared.adapters.timers.sqlite_store import list_purposes
from shared.errors import TtlError

SCHEMA_VERSION = 1
APPLICATION_ID = 0x74746C31
"""Marks a SQLite file as ours (`ttl1`), so that no other program's file gets our table."""

BUSY_SECONDS = 1.0
"""We own the file; only a person's shell or a backup can lock it. Waiting longer would hold up every `set`."""

WRITER_CACHE_KIB = 8 * 1024
READER_CACHE_KIB = 2 * 1024
"""The kernel caches the file anyway; a larger cache of our own only makes the process larger."""

WAL_BYTES_MAX = 64 * 1024 * 1024
"""What a burst may leave behind of the write-ahead log, in bytes."""

OWNER_ONLY = 0o600
"""Mode of the file and of those beside it: a timer names an object, its namespace and when it is deleted."""

_log = logging.getLogger("ttl")

# `fire_us` is the next attempt: due_us until one has failed. The rowid is an integer of its own since random uids as
# the key of the table halve the speed. The small index is for `hasten` alone.
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


class OwnedError(TtlError):
    """Another process owns the timer file."""


class TimerFile:
    """The open file: this process is its only owner until `close`, or until it dies.

    The file, its write-ahead log, its index and its lock have mode 0600, whatever the umask and the mode before.

    Attributes:
        writer: For the one thread that commits.
        reader: For the one thread that reads.
        purposes: Of the timers in the file as it was opened.
        room: How large it may grow.

    Raises:
        OwnedError: Another process owns the file.
        TtlError: It cannot be written, or is not a timer file that this version understands.
    """

    def __init__(self, path: Path, room: Room | None = None) -> None:
        with ExitStack() as opened:
            try:
                opened.callback(os.close, _lock(path))
                _keep_private(path)
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
        """Close the connections and let go of the lock; no thread may use them any more."""
        self._opened.close()


class _Connection(sqlite3.Connection):
    """A connection that closes when its `with` ends; sqlite3's own only commits there."""

    def __init__(self, path: Path, cache_kib: int) -> None:
        # Opened in one thread and used in one other, never in two at once.
        super().__init__(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            self.execute(f"PRAGMA cache_size = -{cache_kib}")
        except sqlite3.Error:
            self.close()  # the caller never gets a connection to close
            raise

    def __exit__(self, *_: object) -> None:  # type: ignore[override]
        self.close()


def _lock(path: Path) -> int:
    """Take the file's lock; the kernel lets go of it when the process ends, however it ends.

    Not a lock on the file itself: closing any descriptor of a SQLite file drops SQLite's own locks.
    """
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise OwnedError(f"{path}: expected to be its only owner, but another process has locked {path}.lock") from None
    _tighten(lock, f"{path}.lock")
    return lock


def _keep_private(path: Path) -> None:
    """Create the file, or tighten the mode of an older one; SQLite gives its own files beside it the same mode.

    Only while no connection is open: closing a descriptor of the file drops the locks of SQLite.
    """
    file = path.resolve()  # SQLite follows a link before it names the files beside it
    for name in (f"{file}", f"{file}-wal", f"{file}-shm", f"{file}-journal"):
        with suppress(FileNotFoundError):
            descriptor = os.open(name, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if name == f"{file}" else 0), OWNER_ONLY)
            try:
                _tighten(descriptor, name)
            finally:
                os.close(descriptor)


def _tighten(descriptor: int, name: str) -> None:
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    try:
        if mode != OWNER_ONLY:
            os.fchmod(descriptor, OWNER_ONLY)
    except OSError as error:  # another user's file, or a volume without modes: its timers still have to fire
        fields = {"file": name, "mode": f"{mode:04o}", "error": str(error)}
        _log.warning("the mode of the timer file cannot be set to 0600", extra={"fields": fields})


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    """Check whose file it is before anything is changed in it; make the schema in a new one."""
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
