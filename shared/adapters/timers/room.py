"""Limits on the size of the timer file, so that a full disk does not stop due timers.

Deleting a row needs space too: for the write-ahead log, and sometimes for a page. So new timers are refused while some
space is left; stored timers still fire, which frees space.
"""

import os
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

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
