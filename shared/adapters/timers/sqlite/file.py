"""Open the timer file: lock it, check that it is a timer file, set up SQLite, and watch its size and its health.

There are two connections: one thread writes with the first while another reads with the second; in WAL mode neither
waits.

Deleting a row needs space too: for the write-ahead log, and sometimes for a page. So new timers are refused while some
space is left; stored timers still fire, which frees space. Unused pages go back to the volume, in small steps.
"""

import fcntl
import logging
import os
import sqlite3
import stat
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

from shared.adapters.timers.sqlite.store import list_purposes
from shared.errors import TtlError

OWNER_ONLY = 0o600
"""Mode of the file and of the files beside it: a timer has an object's name, its namespace and when it is deleted."""

LOCK_SECONDS_MAX = 1.0
"""How long to wait for another process that owns the file."""

LOCK_PAUSE_SECONDS = 0.05
"""The pause between two attempts."""

_log = logging.getLogger("ttl")

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

BUSY_SECONDS = 1.0
"""Timeout for a lock on the file, which only a person's shell or a backup can hold. A longer one would delay `set`."""

WRITER_CACHE_KIB = 8 * 1024
READER_CACHE_KIB = 2 * 1024
"""The kernel caches the file too, so a larger cache only enlarges the process."""

SCHEMA_VERSION = 2

APPLICATION_ID = 0x74746C31
"""Marks a SQLite file as a timer file (`ttl1`), so that no table is added to another program's file."""

WAL_BYTES_MAX = 64 * 1024 * 1024
"""Maximum size of the write-ahead log after a burst of writes."""

# `fire_us` is the next attempt: `due_us` until one has failed. The rowid is a separate integer, since random uids as
# the table's key would halve the speed. The small index is for `cap_retries` only.
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

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


class OwnedError(TtlError):
    """Another process owns the timer file."""


def lock_file(path: Path) -> int:
    """Lock the file; the kernel releases the lock when the process ends, even after a crash.

    Not a lock on the file itself: closing any descriptor of a SQLite file drops SQLite's own locks.

    The lock stands beside the file itself, so that two links to one file have one lock.

    A process that starts owns the file for the moment of its own check, so an owned file is tried again for a while.
    """
    name = f"{path.resolve()}.lock"
    lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
    pauses = int(LOCK_SECONDS_MAX / LOCK_PAUSE_SECONDS)
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if pauses == 0:
                os.close(lock)
                expected = "expected to be its only owner, but another process holds the lock"
                raise OwnedError(f"{path}: {expected} {name}; stop that process, or set another TTL_TIMERS") from None
            pauses -= 1
            time.sleep(LOCK_PAUSE_SECONDS)
        else:
            return lock


def keep_private(path: Path) -> None:
    """Create the file, and set the mode of its files; SQLite gives its own files beside it the same mode."""
    file = path.resolve()  # SQLite follows a link before it names the files beside it
    with suppress(FileExistsError):
        file.touch(OWNER_ONLY, exist_ok=False)
    for one in (Path(f"{file}{ending}") for ending in ("", "-wal", "-shm", "-journal", ".lock")):
        mode = stat.S_IMODE(one.stat().st_mode) if one.exists() else OWNER_ONLY
        try:
            if mode != OWNER_ONLY:
                one.chmod(OWNER_ONLY)
        except OSError as error:  # another user's file, or a volume without modes: its timers must fire nevertheless
            fields = {"file": f"{one}", "mode": f"{mode:04o}", "error": str(error)}
            _log.warning("the mode of the timer file cannot be set to 0600", extra={"fields": fields})


def describe_damage(path: Path, error: BaseException) -> str:
    """Return what to do about a damaged file; empty if the error means something else."""
    if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _DAMAGED:  # without the bits of an extended code
        return ""
    return (
        f"{path}: expected a timer file that is not damaged, got: {error}; stop the process, then put a backup in its "
        "place, or move it away with its -wal: the next sweep sets the timers again"
    )


class FileHealth:
    """Finds out that the open file was deleted, replaced, cut off or damaged: then a timer that is set would be lost.

    Args:
        path: The file, which is open.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files = (f"{path.resolve()}", f"{path.resolve()}-wal")
        self._opened = tuple(_identify(name) for name in self._files)
        self._bytes = 0
        self._damage = ""

    def check(self) -> None:
        """Check the file before a write; a few microseconds.

        Raises:
            TtlError: A timer that is written now would be lost.
        """
        if self._damage:
            raise TtlError(self._damage)
        try:
            is_same = self._opened == tuple(_identify(name) for name in self._files)
            size = Path(self._files[0]).stat().st_size
        except FileNotFoundError:
            is_same = False
        if not is_same:
            problem = "the timer file or its -wal was deleted or replaced while it is open"
            raise TtlError(f"{self._path}: {problem}; restart this process; the next sweep sets the timers again")
        if size < self._bytes:
            problem = f"the timer file was cut off: expected at least {self._bytes} bytes, got {size}"
            advice = "stop this process, then put a backup in its place, or move it away with its -wal"
            self._damage = f"{self._path}: {problem}; {advice}"
            raise TtlError(self._damage)

    def note(self) -> None:
        """Remember the size of the file after a write of this process, the only one that may shrink it."""
        with suppress(OSError):  # then the old size stays
            self._bytes = Path(self._files[0]).stat().st_size

    def explain(self, error: BaseException) -> str:
        """Return the reason of an error of SQLite; after damage, `check` refuses all new timers."""
        if damage := describe_damage(self._path, error):
            if not self._damage:
                _log.critical("the timer file is damaged", extra={"fields": {"error": damage}})
            self._damage = damage
        return damage or str(error)


def _identify(name: str) -> tuple[int, int]:
    found = Path(name).stat()
    return found.st_dev, found.st_ino


def check_file(db: sqlite3.Connection, path: Path) -> bool:
    """Check that a file is a timer file of this version; return whether it is new and empty.

    Raises:
        TtlError: It is another program's file, or of another version.
    """
    application, version = _pragma(db, "application_id"), _pragma(db, "user_version")
    is_new = application == version == 0 and not db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
    if not is_new and application != APPLICATION_ID:
        raise TtlError(f"{path}: expected a timer file, got another program's SQLite file")
    if not is_new and version != SCHEMA_VERSION:
        expected = (
            f"expected a timer file of version {SCHEMA_VERSION}, got version {version}; the file is left as it is"
        )
        advice = "use the release that wrote it, or move it away with its -wal: the next sweep sets the timers again"
        raise TtlError(f"{path}: {expected}; {advice}")
    return is_new


def prepare(db: sqlite3.Connection, path: Path) -> None:
    """Check the file before any change, set up SQLite, and create the schema in a new file.

    Raises:
        TtlError: See `check_file`.
    """
    is_new = check_file(db, path)
    if is_new:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # before the first page is written
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_MAX}")
    if is_new:
        db.executescript(_SCHEMA)


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


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
        page_bytes = _pragma(db, "page_size")
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
        page_bytes, pages, unused = (_pragma(db, name) for name in ("page_size", "page_count", "freelist_count"))
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


class TimerFile:
    """The open timer file, locked by this process until `close` or until the process dies.

    The file, its write-ahead log, its index and its lock get mode 0600, whatever the umask and the earlier mode.

    Attributes:
        writer: The connection of the thread that commits.
        reader: The connection of the thread that reads.
        purposes: The purposes of the timers in the file when it was opened.
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
                self.writer = _connect(opened, path, WRITER_CACHE_KIB)
                prepare(self.writer, path)
                self.room = room or room_of(path)
                self.room.limit(self.writer)
                self.reader = _connect(opened, path, READER_CACHE_KIB)
                self.reader.execute("PRAGMA query_only = ON")
                self.purposes = list_purposes(self.reader)
                self.room.take_log()
                self.health = FileHealth(path)
            except (sqlite3.Error, OSError) as error:
                problem = f"{path}: expected a timer file that can be read and written, got: {error}"
                raise TtlError(describe_damage(path, error) or problem) from error
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Close the connections and release the lock; no thread may use them afterwards."""
        self._opened.close()


def _connect(opened: ExitStack, path: Path, cache_kib: int) -> sqlite3.Connection:
    # Opened in one thread and used in another, never in two at the same time.
    db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    opened.enter_context(closing(db))
    db.execute(f"PRAGMA cache_size = -{cache_kib}")
    return db


class Shrinking:
    """Shrinks the file if a quarter of it is unused."""

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
        least = KEPT_PAGES + 1 if self._shrinks else max(SHRINK_PAGES_MIN, _pragma(db, "page_count") // 4)
        self._shrinks = unused >= least
        if not self._shrinks:
            return False
        # `execute` would end the statement after its first page.
        db.executescript(f"PRAGMA incremental_vacuum({min(STEP_PAGES, unused - KEPT_PAGES)})")
        if _pragma(db, "freelist_count") >= unused:  # another program switched auto_vacuum off
            self._shrinks = False
            return False
        if unused <= KEPT_PAGES + STEP_PAGES:
            self._shrinks = False
            db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()  # the file itself shrinks at a checkpoint
        return True
