"""How large the timer file may grow, so that a full disk never stops what is due.

Deleting a row needs space, too: for the write-ahead log, and now and then for a page. So new timers are refused while
there is some left, and what is there still fires, which makes room again.
"""

import os
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

FILE_BYTES_MAX = 512 * 1024 * 1024
"""Of the timer file without its log: about two million timers, and half of the 1 GiB that our volumes have."""

RESERVE_BYTES = 32 * 1024 * 1024
"""Of the file's limit and of the volume, that new timers leave free."""

LOG_BYTES = 8 * 1024 * 1024
"""Of the write-ahead log, taken at the start: twice what it holds between two checkpoints."""


@dataclass(frozen=True, slots=True)
class Room:
    """The limits of one timer file.

    Attributes:
        path: The file.
        bytes_max: Of the file, without its log.
        reserve_bytes: That new timers leave free.
        log_bytes: Of the write-ahead log, taken at the start.
    """

    path: Path
    bytes_max: int = FILE_BYTES_MAX
    reserve_bytes: int = RESERVE_BYTES
    log_bytes: int = LOG_BYTES

    def limit(self, db: sqlite3.Connection) -> None:
        """Limit what the connection writes to the file and to its log; a file that is larger already stays as it is."""
        (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
        db.execute(f"PRAGMA max_page_count = {self.bytes_max // page_bytes}")
        if self.log_bytes:
            db.execute(f"PRAGMA wal_autocheckpoint = {max(1, self.log_bytes // page_bytes // 2)}")

    def take_log(self) -> None:
        """Take the space of the write-ahead log; best effort, and SQLite passes over the zeros in it."""
        with suppress(OSError):
            log = os.open(f"{self.path.resolve()}-wal", os.O_RDWR | os.O_CLOEXEC)
            try:
                os.posix_fallocate(log, 0, self.log_bytes)
            finally:
                os.close(log)

    def shortage(self, db: sqlite3.Connection) -> str:
        """Why there is no room for new timers; empty where there is."""
        page_bytes, pages, unused = (
            db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
        )
        used = (pages - unused) * page_bytes
        if used > self.bytes_max - self.reserve_bytes:
            return f"its timers take {used} of {self.bytes_max} bytes, and {self.reserve_bytes} are kept free"
        volume = os.statvfs(self.path.parent)
        free = volume.f_bavail * volume.f_frsize
        # What the file has unused, it needs no more of the volume for.
        if free + unused * page_bytes < self.reserve_bytes:
            return f"its volume has {free} bytes left, and {self.reserve_bytes} are kept free"
        return ""


def room_of(path: Path) -> Room:
    """The limits of a file: the usual ones, or smaller ones on a small volume.

    Raises:
        OSError: There is no such folder.
    """
    volume = os.statvfs(path.parent)
    bytes_max = min(FILE_BYTES_MAX, volume.f_blocks * volume.f_frsize // 2)
    return Room(path, bytes_max, min(RESERVE_BYTES, bytes_max // 8), min(LOG_BYTES, bytes_max // 4))
