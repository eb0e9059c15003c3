"""The rows of the timer file and all SQL about them; synchronous, in whatever thread the connection belongs to.

Instants are integer microseconds since 1970 in UTC: what `datetime` counts in, so that nothing is ever rounded.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import cast

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from shared.core.objects import ObjectRef
from shared.errors import EventError
from shared.messages import Purpose, Timer

FOREVER_US = 2**63 - 1
"""An instant that never comes; the largest integer of SQLite."""

SECOND_US = 1_000_000

LISTED_AT_ONCE = 500
"""Timers read at once for a list; between two reads others get their turn."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_REF = TypeAdapter(ObjectRef)
_PURPOSES = {purpose.value: purpose for purpose in Purpose}

Row = tuple[str, str, int, int, str]


def to_us(instant: datetime) -> int:
    """An aware instant in microseconds since 1970; exact."""
    return (instant - _EPOCH) // _MICROSECOND


def from_us(instant_us: int) -> datetime:
    """The inverse of `to_us`."""
    return _EPOCH + instant_us * _MICROSECOND


def row_of(timer: Timer) -> Row:
    """A timer as `put` takes it.

    Raises:
        EventError: The reference is not text that can be stored (half of a surrogate pair).
    """
    due_us = to_us(timer.due_at)
    try:
        ref = _REF.dump_json(timer.ref).decode()
    except PydanticSerializationError as error:
        raise EventError(f"ref: expected Unicode text, got {timer.ref!r}") from error
    return timer.ref.uid, str(timer.purpose), due_us, due_us, ref


@dataclass(frozen=True, slots=True)
class StoredTimer:
    """A row.

    Attributes:
        generation: Counts the times it was set; a delivery may end only the generation it delivered.
        attempts: Deliveries that failed since it was set.
        ref: JSON, decoded only for a delivery.
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
        """The timer as it was set.

        Raises:
            ValueError: Somebody else wrote the row.
        """
        # An unknown purpose is a later version's, in a file that outlived it: delivered as it was set.
        purpose = cast(Purpose, _PURPOSES.get(self.purpose, self.purpose))
        return Timer.model_construct(ref=_REF.validate_json(self.ref), purpose=purpose, due_at=from_us(self.due_us))


_COLUMNS = "id, uid, purpose, due_us, fire_us, attempts, generation, ref"


def put(db: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Store timers, each in place of the one of its uid and purpose."""
    db.executemany(
        "INSERT INTO timers (uid, purpose, due_us, fire_us, ref) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (uid, purpose) DO UPDATE SET due_us = excluded.due_us, fire_us = excluded.fire_us,"
        " attempts = 0, generation = generation + 1, ref = excluded.ref",
        rows,
    )


def delete(db: sqlite3.Connection, delivered: StoredTimer) -> int:
    """Forget a delivered timer, unless it was replaced meanwhile.

    Returns:
        When to look for its row again: never, or at once where there is a replacement.
    """
    forgotten = db.execute(
        "DELETE FROM timers WHERE id = ? AND generation = ?", (delivered.row_id, delivered.generation)
    )
    return FOREVER_US if forgotten.rowcount else 0


def postpone(db: sqlite3.Connection, refused: StoredTimer, fire_us: int) -> int:
    """Note a failed attempt and when the next is made, unless the timer was replaced meanwhile.

    Returns:
        When to look for its row again: at `fire_us`, or at once where there is a replacement.
    """
    postponed = db.execute(
        "UPDATE timers SET attempts = attempts + 1, fire_us = ? WHERE id = ? AND generation = ?",
        (fire_us, refused.row_id, refused.generation),
    )
    return fire_us if postponed.rowcount else 0


def hasten(db: sqlite3.Connection, now_us: int) -> None:
    """Make all retries that still wait due at once."""
    db.execute("UPDATE timers SET fire_us = due_us WHERE attempts > 0 AND fire_us > ?", (now_us,))


def find_due(db: sqlite3.Connection, purpose: str, now_us: int, limit: int) -> tuple[list[StoredTimer], int]:
    """The timers of a purpose to fire now, oldest first, and the instant to look for more."""
    due = db.execute(
        f"SELECT {_COLUMNS} FROM timers WHERE purpose = ? AND fire_us <= ? ORDER BY fire_us LIMIT ?",  # noqa: S608
        (purpose, now_us, limit),
    )
    found = [StoredTimer(*row) for row in due]
    if len(found) == limit:
        return found, now_us
    (later_us,) = db.execute(
        "SELECT min(fire_us) FROM timers WHERE purpose = ? AND fire_us > ?", (purpose, now_us)
    ).fetchone()
    return found, FOREVER_US if later_us is None else later_us


def count(db: sqlite3.Connection) -> int:
    """How many timers there are."""
    return int(db.execute("SELECT count(*) FROM timers").fetchone()[0])


def list_purposes(db: sqlite3.Connection) -> list[str]:
    """The purposes there are timers for: one step in the index for each, not one for each timer."""
    rows = db.execute(
        "WITH RECURSIVE found (purpose) AS (SELECT min(purpose) FROM timers UNION ALL SELECT"
        " (SELECT min(purpose) FROM timers AS more WHERE more.purpose > found.purpose) FROM found"
        " WHERE found.purpose IS NOT NULL) SELECT purpose FROM found WHERE purpose IS NOT NULL"
    )
    return [purpose for (purpose,) in rows]


def first_us(db: sqlite3.Connection) -> int:
    """The instant of the first attempt of all; FOREVER_US where there is none."""
    firsts = (
        db.execute("SELECT min(fire_us) FROM timers WHERE purpose = ?", (purpose,)).fetchone()[0]
        for purpose in list_purposes(db)
    )
    return min((first for first in firsts if first is not None), default=FOREVER_US)


def list_after(db: sqlite3.Connection, last: StoredTimer | None, limit: int) -> list[StoredTimer]:
    """A page of all timers, by purpose and next attempt, behind the last of the page before."""
    place = (last.purpose, last.fire_us, last.row_id) if last else ("", -FOREVER_US, 0)
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM timers WHERE (purpose, fire_us, id) > (?, ?, ?)"  # noqa: S608
        " ORDER BY purpose, fire_us, id LIMIT ?",
        (*place, limit),
    )
    return [StoredTimer(*row) for row in rows]
