"""Pages of the pending timers of a file, in the order of their rows."""

import sqlite3
from collections.abc import Sequence
from contextlib import suppress

from shared.adapters.timers.sqlite.store import COLUMNS, FOREVER_US, StoredTimer
from shared.ports import TimerFilter, TimerPage


def read_page(db: sqlite3.Connection, *, after: int, limit: int) -> list[StoredTimer]:
    """Read the timers after a row."""
    query = f"SELECT {COLUMNS} FROM timers WHERE id > ? ORDER BY id LIMIT ?"  # noqa: S608
    return [StoredTimer(*row) for row in db.execute(query, (after, limit))]


def parse_position(after: str) -> int:
    """Return the row after which a page begins.

    Raises:
        ValueError: The text is no position in a timer file.
    """
    if after and not (after.isascii() and after.isdecimal() and int(after) <= FOREVER_US):
        raise ValueError(f"expected a position in the timer file, got {after!r}")
    return int(after or 0)


def page_of(rows: Sequence[StoredTimer], limit: int, wanted: TimerFilter) -> TimerPage:
    """Return the wanted timers among rows that were read with this limit, and the position of the next page."""
    timers = []
    for row in rows:
        with suppress(ValueError):  # another program wrote the row
            timers.append(row.timer())
    return TimerPage(tuple(filter(wanted.matches, timers)), str(rows[-1].row_id) if len(rows) == limit else "")
