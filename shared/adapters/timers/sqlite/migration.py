"""Migrate a timer file of version 1, which never shrinks, to version 2.

SQLite can add `auto_vacuum` only by writing the whole file again. The new file is written beside the old one, checked,
and renamed over it, so after kill -9 there is the old file or the new one. If the migration fails, for example on a
full volume, the old file is used as it is.
"""

import logging
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from shared.adapters.timers.sqlite.lock import OWNER_ONLY
from shared.adapters.timers.sqlite.schema import APPLICATION_ID, SCHEMA_VERSION

BYTES_A_SECOND_MIN = 10 * 1024 * 1024
"""How fast a slow disk writes the new file, for the estimate in the log; a local disk was seven times as fast."""

SPARE_BYTES = 1024 * 1024
"""Space that the migration leaves free on the volume."""

_MAGIC = b"SQLite format 3\0"
_VERSION = slice(60, 64)
_APPLICATION = slice(68, 72)
_HEADER_BYTES = 100

_log = logging.getLogger("ttl")


class MigrationError(Exception):
    """The file stays as it is; the message says why."""


def migrate(path: Path) -> None:
    """Migrate a file of version 1; any other file is left as it is.

    Call this with the lock of the file, and before the file is opened.
    """
    file = path.resolve()
    copy = file.with_name(f"{file.name}-migrating")
    _remove(copy)  # of a process that was killed
    if not _is_version_1(file):
        return
    size = file.stat().st_size
    about = {"file": f"{path}", "bytes": size, "version": SCHEMA_VERSION}
    _log.warning(
        "migrating the timer file before the start",
        extra={"fields": {**about, "seconds_max": 1 + size // BYTES_A_SECOND_MIN}},
    )
    try:
        _write(file, copy)
        _replace(copy, file)
    except (sqlite3.Error, OSError, MigrationError) as error:
        _remove(copy)
        _log.warning(
            "timer file not migrated; it is used as it is, and does not shrink",
            extra={"fields": {**about, "error": str(error)}},
        )
        return
    _log.warning("timer file migrated", extra={"fields": {**about, "bytes": file.stat().st_size}})


def _is_version_1(file: Path) -> bool:
    """Read the version from the header, without SQLite: to open and close a file costs a checkpoint of its log.

    A version that is still in the log is not seen; then the next start migrates the file.
    """
    with suppress(FileNotFoundError), file.open("rb") as opened:
        header = opened.read(_HEADER_BYTES)
        found = (int.from_bytes(header[part], "big") for part in (_APPLICATION, _VERSION))
        return header.startswith(_MAGIC) and tuple(found) == (APPLICATION_ID, 1)
    return False


def _write(file: Path, copy: Path) -> None:
    """Write the new file, with the same timers."""
    with closing(sqlite3.connect(file, timeout=1.0, isolation_level=None)) as old:
        # Without a log beside it, the file may be renamed. Another connection to the file makes this fail.
        old.execute("PRAGMA locking_mode = EXCLUSIVE")
        (journal,) = old.execute("PRAGMA journal_mode = DELETE").fetchone()
        if journal != "delete":
            raise MigrationError("expected to be the only user of the file, but another process has it open")
        _check_space(old, file)
        os.close(os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ONLY))
        old.execute("PRAGMA auto_vacuum = INCREMENTAL")  # takes effect in the copy
        old.execute("VACUUM INTO ?", (f"{copy}",))
        with closing(sqlite3.connect(copy, isolation_level=None)) as new:
            _check_copy(old, new)
            new.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _check_space(old: sqlite3.Connection, file: Path) -> None:
    page_bytes, pages, unused = (
        old.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
    )
    volume = os.statvfs(file.parent)
    free = volume.f_bavail * volume.f_frsize
    expected = (pages - unused) * page_bytes + SPARE_BYTES
    if free < expected:
        raise MigrationError(f"expected {expected} free bytes on the volume for a second file, got {free}")


def _check_copy(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    before, after = (db.execute("SELECT count(*), sum(generation) FROM timers").fetchone() for db in (old, new))
    if before != after:
        raise MigrationError(f"expected {before[0]} timers in the new file, got {after[0]}")


def _replace(copy: Path, file: Path) -> None:
    _sync(copy)  # SQLite does not sync the file that VACUUM INTO has written
    copy.replace(file)
    _sync(file.parent)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _remove(copy: Path) -> None:
    for ending in ("", "-journal"):
        with suppress(FileNotFoundError):
            Path(f"{copy}{ending}").unlink()
