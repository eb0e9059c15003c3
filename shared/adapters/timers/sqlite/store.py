"""The rows of the timer file, and the SQL on them; synchronous, in the thread that uses the connection."""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from shared.adapters.timers.stored import first_attempt_at, microseconds, ref_text, restored, with_extras
from shared.core.values.jsontext import parse_json
from shared.messages import Timer

FOREVER_US = 2**63 - 1
"""A time that never comes: the largest integer of SQLite."""

SECOND_US = 1_000_000

Row = tuple[str, str, int, int, int, str]
"""uid, purpose, due_us, fire_us, attempts, ref."""


def row_of(timer: Timer, now: datetime) -> Row:
    """Convert a timer to a row.

    Raises:
        EventError: The reference is text that cannot be stored.
    """
    fire_us = microseconds(first_attempt_at(timer, now))
    ref = with_extras(ref_text(timer), timer)
    return timer.ref.uid, str(timer.purpose), microseconds(timer.due_at), fire_us, timer.attempts, ref


@dataclass(frozen=True, slots=True)
class StoredTimer:
    """A row of the timer file.

    Attributes:
        row_id: The number of the row; that of a deleted row is used again.
        generation: Counts how often the timer was set; a delivery may end only the generation that it delivered.
        attempts: The attempts of the timer when it was set, plus the failed deliveries since.
        ref: JSON, decoded only for a delivery; beside the fields of the reference it has the extras, if any.
    """

    row_id: int
    uid: str
    purpose: str
    due_us: int
    fire_us: int
    attempts: int
    generation: int
    ref: str

    def timer(self) -> Timer:
        """Return the timer as it was set, plus the attempts that failed since.

        Raises:
            ValueError: Another program wrote the row.
        """
        fields = parse_json(self.ref)
        return restored(self.purpose, self.due_us, self.attempts, fields, fields)


COLUMNS = "id, uid, purpose, due_us, fire_us, attempts, generation, ref"
"""The columns of a `StoredTimer`."""


def put(db: sqlite3.Connection, rows: Sequence[Row], shortage: Callable[[sqlite3.Connection], str]) -> str:
    """Store timers, each in place of the one with its uid and purpose; store all of them, or none.

    Args:
        db: A connection within a transaction.
        rows: The timers.
        shortage: Returns why there is no space for new rows; empty if there is. A replaced row needs no space.

    Returns:
        Why no timer was stored; empty if all were.
    """
    is_stored = "SELECT 1 FROM timers WHERE uid = ? AND purpose = ?"
    if (why := shortage(db)) and not all(db.execute(is_stored, row[:2]).fetchone() for row in rows):
        return why
    db.executemany(
        "INSERT INTO timers (uid, purpose, due_us, fire_us, attempts, ref) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (uid, purpose) DO UPDATE SET due_us = excluded.due_us, fire_us = excluded.fire_us,"
        " attempts = excluded.attempts, generation = generation + 1, ref = excluded.ref",
        rows,
    )
    return ""


def delete(db: sqlite3.Connection, delivered: StoredTimer) -> int:
    """Delete a delivered timer, unless it was replaced during the delivery.

    Returns:
        When to read its row again: never, or when its replacement fires.
    """
    deleted = db.execute("DELETE FROM timers WHERE id = ? AND generation = ?", (delivered.row_id, delivered.generation))
    return FOREVER_US if deleted.rowcount else _fire_us(db, delivered.row_id)


def postpone(db: sqlite3.Connection, failed: StoredTimer, fire_us: int) -> int:
    """Count a failed attempt and set the next one, unless the timer was replaced during the delivery.

    Returns:
        When to read its row again: at `fire_us`, or when its replacement fires.
    """
    postponed = db.execute(
        "UPDATE timers SET attempts = attempts + 1, fire_us = ? WHERE id = ? AND generation = ?",
        (fire_us, failed.row_id, failed.generation),
    )
    return fire_us if postponed.rowcount else _fire_us(db, failed.row_id)


def _fire_us(db: sqlite3.Connection, row_id: int) -> int:
    row = db.execute("SELECT fire_us FROM timers WHERE id = ?", (row_id,)).fetchone()
    return row[0] if row else FOREVER_US


def count(db: sqlite3.Connection) -> int:
    """Return the number of timers."""
    return int(db.execute("SELECT count(*) FROM timers").fetchone()[0])


def list_purposes(db: sqlite3.Connection) -> list[str]:
    """Return the purposes of all timers; takes one index step per purpose, not one per timer."""
    rows = db.execute(
        "WITH RECURSIVE found (purpose) AS (SELECT min(purpose) FROM timers UNION ALL SELECT"
        " (SELECT min(purpose) FROM timers AS more WHERE more.purpose > found.purpose) FROM found"
        " WHERE found.purpose IS NOT NULL) SELECT purpose FROM found WHERE purpose IS NOT NULL"
    )
    return [purpose for (purpose,) in rows]


def first_us(db: sqlite3.Connection) -> int:
    """Return when the first timer fires or is retried; FOREVER_US without timers."""
    first = "SELECT coalesce(min(fire_us), ?) FROM timers WHERE purpose = ?"
    firsts = (db.execute(first, (FOREVER_US, purpose)).fetchone()[0] for purpose in list_purposes(db))
    return min(firsts, default=FOREVER_US)


def read_page(db: sqlite3.Connection, *, after: int, limit: int) -> list[StoredTimer]:
    """Read the timers after a row."""
    query = f"SELECT {COLUMNS} FROM timers WHERE id > ? ORDER BY id LIMIT ?"  # noqa: S608
    return [StoredTimer(*row) for row in db.execute(query, (after, limit))]


def cap_retries(db: sqlite3.Connection, latest_us: int) -> None:
    """Bring forward the retries that were planned by a clock that was ahead: to their due times, or to `latest_us`."""
    db.execute("UPDATE timers SET fire_us = max(due_us, ?) WHERE attempts > 0 AND fire_us > ?", (latest_us, latest_us))
