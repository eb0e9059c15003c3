"""The rows of the timer file, and the SQL on them; synchronous, in the thread that uses the connection.

Times are integer microseconds since 1970 in UTC, the resolution of `datetime`, so no time is rounded.
"""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import cast

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from shared.adapters.timers.stored_extras import find_extras, with_extras
from shared.core.values.objects import ObjectRef
from shared.core.values.timing import backoff_seconds
from shared.errors import EventError
from shared.messages import ATTEMPTS_COUNTED_MAX, Purpose, Timer

FOREVER_US = 2**63 - 1
"""A time that never comes: the largest integer of SQLite."""

SECOND_US = 1_000_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_REF = TypeAdapter(ObjectRef)
_PURPOSES = {purpose.value: purpose for purpose in Purpose}

Row = tuple[str, str, int, int, int, str]
"""uid, purpose, due_us, fire_us, attempts, ref."""


def to_us(instant: datetime) -> int:
    """Convert an aware time to microseconds since 1970, without rounding."""
    return (instant - _EPOCH) // _MICROSECOND


def from_us(instant_us: int) -> datetime:
    """Convert microseconds since 1970 to a time; the inverse of `to_us`."""
    return _EPOCH + instant_us * _MICROSECOND


def row_of(timer: Timer, now_us: int) -> Row:
    """Convert a timer to a row.

    A timer with failed attempts is not tried before its back-off ends by the engine's own clock: the clock of the
    process that set it may be behind.

    Raises:
        EventError: The reference is text that cannot be stored (half of a surrogate pair).
    """
    due_us = to_us(timer.due_at)
    try:
        ref = with_extras(_REF.dump_json(timer.ref).decode(), timer)
    except PydanticSerializationError as error:
        raise EventError(f"ref: expected Unicode text, got {timer.ref!r}") from error
    fire_us = due_us
    if timer.attempts:
        fire_us = max(due_us, now_us + round(backoff_seconds(timer.attempts - 1, jitter=1.0) * SECOND_US))
    return timer.ref.uid, str(timer.purpose), due_us, fire_us, timer.attempts, ref


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
        # An unknown purpose is from a later version that used the file: the timer is delivered as it was set.
        purpose = cast(Purpose, _PURPOSES.get(self.purpose, self.purpose))
        proof, traceparent = find_extras(self.ref)
        return Timer.model_construct(
            ref=_REF.validate_json(self.ref),
            purpose=purpose,
            due_at=from_us(self.due_us),
            attempts=min(self.attempts, ATTEMPTS_COUNTED_MAX),
            proof=proof,
            traceparent=traceparent,
        )


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
