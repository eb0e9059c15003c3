"""Give unused pages of the timer file back to the volume, in small steps."""

import sqlite3

STEP_PAGES = 32
"""Pages per step: a step takes about a millisecond, and `set` waits for one step at the most."""

SHRINK_PAGES_MIN = 1_024
"""Unused pages (4 MiB) from which the file shrinks, if they are also a quarter of the file."""

KEPT_PAGES = 256
"""Unused pages (1 MiB) that stay in the file for the next timers."""

_INCREMENTAL = 2


class Shrinking:
    """Shrinks the file if a quarter of it is unused; a file of version 1 keeps its size."""

    def __init__(self) -> None:
        self._shrinks = False

    def step(self, db: sqlite3.Connection) -> bool:
        """Free some pages; return whether to call this again.

        Args:
            db: A connection without a transaction.

        Raises:
            sqlite3.Error: The disk accepts no write.
        """
        unused = _pragma(db, "freelist_count")
        self._shrinks = self._shrinks and unused > KEPT_PAGES
        if not self._shrinks:
            self._shrinks = unused >= max(SHRINK_PAGES_MIN, _pragma(db, "page_count") // 4)
            if not self._shrinks or _pragma(db, "auto_vacuum") != _INCREMENTAL:
                self._shrinks = False
                return False
        # `execute` would end the statement after its first page.
        db.executescript(f"PRAGMA incremental_vacuum({min(STEP_PAGES, unused - KEPT_PAGES)})")
        if unused <= KEPT_PAGES + STEP_PAGES:
            self._shrinks = False
            db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()  # the file itself shrinks at a checkpoint
        return True


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])
