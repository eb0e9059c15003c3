"""All SQL on the timer file; synchronous, in the thread that uses the connection."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shared.adapters.timers.places import Share
from shared.adapters.timers.stored_timer import FOREVER_US, Row, StoredTimer

LISTED_AT_ONCE = 500
"""Timers per read of a list; other reads run between two of them."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The shares to read: only one, or all except some."""

    only: Share | None = None
    without: tuple[Share, ...] = ()


ALL = Selection()

_COLUMNS = "id, uid, purpose, due_us, fire_us, attempts, generation, ref"
_SHARE = (
    "CASE WHEN json_valid(ref) THEN json_extract(ref, '$.api_version') || ' ' || json_extract(ref, '$.kind') || ' '"
    " || json_extract(ref, '$.namespace') ELSE ' ' END"
)


def put(db: sqlite3.Connection, rows: Sequence[Row], shortage: Callable[[sqlite3.Connection], str]) -> str:
    """Store timers, each in place of the one with its uid and purpose; store all of them, or none.

    Args:
        db: A connection within a transaction.
        rows: The timers.
        shortage: Returns why there is no space for new rows; empty if there is. A replaced row needs no space.

    Returns:
        Why no timer was stored; empty if all were.
    """
    if (why := shortage(db)) and not all(_is_stored(db, row) for row in rows):
        return why
    db.executemany(
        "INSERT INTO timers (uid, purpose, due_us, fire_us, attempts, ref) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (uid, purpose) DO UPDATE SET due_us = excluded.due_us, fire_us = excluded.fire_us,"
        " attempts = excluded.attempts, generation = generation + 1, ref = excluded.ref",
        rows,
    )
    return ""


def _is_stored(db: sqlite3.Connection, row: Row) -> bool:
    return db.execute("SELECT 1 FROM timers WHERE uid = ? AND purpose = ?", row[:2]).fetchone() is not None


def delete(db: sqlite3.Connection, delivered: StoredTimer) -> int:
    """Delete a delivered timer, unless it was replaced during the delivery.

    Returns:
        When to read its row again: never, or when its replacement fires.
    """
    forgotten = db.execute(
        "DELETE FROM timers WHERE id = ? AND generation = ?", (delivered.row_id, delivered.generation)
    )
    return FOREVER_US if forgotten.rowcount else _fire_us(db, delivered.row_id)


def postpone(db: sqlite3.Connection, refused: StoredTimer, fire_us: int) -> int:
    """Count a failed attempt and set the next one, unless the timer was replaced during the delivery.

    Returns:
        When to read its row again: at `fire_us`, or when its replacement fires.
    """
    postponed = db.execute(
        "UPDATE timers SET attempts = attempts + 1, fire_us = ? WHERE id = ? AND generation = ?",
        (fire_us, refused.row_id, refused.generation),
    )
    return fire_us if postponed.rowcount else _fire_us(db, refused.row_id)


def _fire_us(db: sqlite3.Connection, row_id: int) -> int:
    row = db.execute("SELECT fire_us FROM timers WHERE id = ?", (row_id,)).fetchone()
    return row[0] if row else FOREVER_US


def retry_now(db: sqlite3.Connection, now_us: int) -> None:
    """Make all waiting retries due now."""
    db.execute("UPDATE timers SET fire_us = due_us WHERE attempts > 0 AND fire_us > ?", (now_us,))


def find_due(
    db: sqlite3.Connection, purpose: str, now_us: int, limit: int, selection: Selection = ALL
) -> tuple[list[StoredTimer], int, bool]:
    """Read the due timers of a purpose.

    Rows of other shares are read and skipped one by one, a few microseconds each.

    Returns:
        The timers, oldest first; when to read more; whether the file has more that are due now.
    """
    clause, names = "", []
    if selection.only is not None:
        clause, names = f" AND {_SHARE} = ?", [" ".join(selection.only)]
    elif selection.without:
        clause = f" AND {_SHARE} NOT IN (SELECT value FROM json_each(?))"  # noqa: S608
        names = [json.dumps([" ".join(share) for share in selection.without])]
    due = db.execute(
        f"SELECT {_COLUMNS} FROM timers WHERE purpose = ? AND fire_us <= ?{clause} ORDER BY fire_us LIMIT ?",  # noqa: S608
        (purpose, now_us, *names, limit),
    )
    found = [StoredTimer(*row) for row in due]
    if len(found) == limit:
        return found, now_us, True
    (later_us,) = db.execute(
        "SELECT min(fire_us) FROM timers WHERE purpose = ? AND fire_us > ?", (purpose, now_us)
    ).fetchone()
    return found, FOREVER_US if later_us is None else later_us, False


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
    firsts = (
        db.execute("SELECT min(fire_us) FROM timers WHERE purpose = ?", (purpose,)).fetchone()[0]
        for purpose in list_purposes(db)
    )
    return min((first for first in firsts if first is not None), default=FOREVER_US)


def list_after(db: sqlite3.Connection, last: StoredTimer | None, limit: int) -> list[StoredTimer]:
    """Return a page of all timers, by purpose and next attempt, after the last timer of the page before."""
    place = (last.purpose, last.fire_us, last.row_id) if last else ("", -FOREVER_US, 0)
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM timers WHERE (purpose, fire_us, id) > (?, ?, ?)"  # noqa: S608
        " ORDER BY purpose, fire_us, id LIMIT ?",
        (*place, limit),
    )
    return [StoredTimer(*row) for row in rows]
