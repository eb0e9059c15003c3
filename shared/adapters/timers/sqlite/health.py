"""Whether what is written to the timer file is still there after a restart."""

import logging
import sqlite3
from contextlib import suppress
from pathlib import Path

from shared.errors import TtlError

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

_log = logging.getLogger("ttl")


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
        """Check the file before new timers are written; a few microseconds.

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
