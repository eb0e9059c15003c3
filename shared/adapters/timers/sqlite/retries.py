"""Bring the waiting retries of the timer file forward, in slices, so that sets wait for one slice at the most."""

import json
import sqlite3

from shared.adapters.timers.sqlite.store import FOREVER_US, Position

RETRIES_OF_ONE_SLICE = 2_000
"""Retries that one transaction brings forward: some 30 ms, for which `set` waits."""

LAST_RETRY: Position = (FOREVER_US, FOREVER_US)
"""The position after all retries."""


def retry_now(db: sqlite3.Connection, now_us: int, position: Position = LAST_RETRY) -> Position | None:
    """Make a slice of the waiting retries due now: the latest ones before a position.

    From the latest to the earliest, since a delivery that fails meanwhile is planned later than before: in general it
    is behind the position, and not tried again at once.

    Returns:
        The position of the next slice; None after the last one.
    """
    found = db.execute(
        "SELECT fire_us, id FROM timers WHERE attempts > 0 AND fire_us > ? AND (fire_us, id) < (?, ?)"
        " ORDER BY fire_us DESC, id DESC LIMIT ?",
        (now_us, *position, RETRIES_OF_ONE_SLICE),
    ).fetchall()
    db.execute(
        "UPDATE timers SET fire_us = due_us WHERE fire_us > due_us AND id IN (SELECT value FROM json_each(?))",
        (json.dumps([row_id for _, row_id in found]),),
    )
    return found[-1] if len(found) == RETRIES_OF_ONE_SLICE else None
