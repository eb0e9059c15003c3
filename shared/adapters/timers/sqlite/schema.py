"""The schema of the timer file: its tables, its version, and the settings of SQLite that the file needs."""

import sqlite3
from pathlib import Path

from shared.errors import TtlError

SCHEMA_VERSION = 2
"""Version 2 differs from version 1 only by `auto_vacuum`: its file can shrink. Both have the same tables."""

APPLICATION_ID = 0x74746C31
"""Marks a SQLite file as a timer file (`ttl1`), so that no table is added to another program's file."""

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


def check_file(db: sqlite3.Connection, path: Path) -> bool:
    """Check that a file is a timer file that this version can read; return whether it is new and empty.

    Raises:
        TtlError: It is another program's file, or of a newer release.
    """
    application = db.execute("PRAGMA application_id").fetchone()[0]
    version = db.execute("PRAGMA user_version").fetchone()[0]
    is_new = application == version == 0 and not db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
    if not is_new and application != APPLICATION_ID:
        raise TtlError(f"{path}: expected a timer file, got another program's SQLite file")
    if version > SCHEMA_VERSION:
        raise TtlError(f"{path}: expected schema version {SCHEMA_VERSION} or older, got {version} of a newer release")
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
