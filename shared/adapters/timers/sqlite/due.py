"""The reads of due timers, each with a bounded number of rows, whatever the file holds.

A scan goes through the due timers in the order of their times, and returns the place of each row: its id and its share.
The rows are loaded by their ids when their share has its turn. So each due row is scanned once, and no read has to skip
the rows of a share that waits. A column with `+` is not searched in an index: SQLite would take the one of the scan.
"""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from shared.adapters.timers.places import Share, share_of
from shared.adapters.timers.sqlite.store import COLUMNS, FOREVER_US, Position, StoredTimer
from shared.core.jsontext import parse_json
from shared.core.objects import ObjectRef

SCANNED_ROWS = 2_048
"""Rows that one scan or one look-up reads: about 4 ms."""

SHARES_CACHED = 4_096

# The text of `ref` up to its name, which one share has in common: SQLite needs twice the time to read the JSON itself.
_PLACE = "id, fire_us, substr(ref, 1, instr(ref, ',\"name\":'))"


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The result of a read.

    Attributes:
        places: The rows that were scanned or looked up, oldest first: id and share.
        loaded: The timers that were loaded, and the share of each.
        cursor: The last row of a scan; None if the scan found no row, or if the read is no scan.
        next_us: When to scan on; FOREVER_US if the read is no scan.
    """

    places: Sequence[tuple[int, Share]] = ()
    loaded: Sequence[tuple[StoredTimer, Share]] = ()
    cursor: Position | None = None
    next_us: int = FOREVER_US


class Read(Protocol):
    """A read that the thread of the readers makes."""

    def run(self, db: sqlite3.Connection) -> ReadResult:
        """Read the file."""
        ...


@dataclass(frozen=True, slots=True)
class Scan:
    """Read the places of the next due rows after a position."""

    purpose: str
    now_us: int
    after: Position

    def run(self, db: sqlite3.Connection) -> ReadResult:
        """See `Read.run`; two statements, since SQLite does not seek to a row within equal times by one."""
        at_us, row_id = self.after
        rows = db.execute(
            f"SELECT {_PLACE} FROM timers WHERE purpose = ? AND fire_us = ? AND id > ? ORDER BY id LIMIT ?",  # noqa: S608
            (self.purpose, at_us, row_id, SCANNED_ROWS),
        ).fetchall()
        rows += db.execute(
            f"SELECT {_PLACE} FROM timers WHERE purpose = ? AND fire_us > ? AND fire_us <= ?"  # noqa: S608
            " ORDER BY fire_us, id LIMIT ?",
            (self.purpose, at_us, self.now_us, SCANNED_ROWS - len(rows)),
        ).fetchall()
        cursor = (rows[-1][1], rows[-1][0]) if rows else None
        next_us = self.now_us if len(rows) == SCANNED_ROWS else self._next_us(db)
        return ReadResult(places=[_place(row) for row in rows], cursor=cursor, next_us=next_us)

    def _next_us(self, db: sqlite3.Connection) -> int:
        (later_us,) = db.execute(
            "SELECT min(fire_us) FROM timers WHERE purpose = ? AND fire_us > ?", (self.purpose, self.now_us)
        ).fetchone()
        return FOREVER_US if later_us is None else int(later_us)


@dataclass(frozen=True, slots=True)
class LookUp:
    """Read the places of due timers by their uids: of timers that were set behind the scan."""

    purpose: str
    now_us: int
    uids: tuple[str, ...]

    def run(self, db: sqlite3.Connection) -> ReadResult:
        """See `Read.run`."""
        rows = db.execute(
            f"SELECT {_PLACE} FROM timers WHERE uid IN (SELECT value FROM json_each(?)) AND purpose = ?"  # noqa: S608
            " AND +fire_us <= ? ORDER BY +fire_us, id",
            (json.dumps(self.uids), self.purpose, self.now_us),
        )
        return ReadResult(places=[_place(row) for row in rows])


@dataclass(frozen=True, slots=True)
class Load:
    """Read due timers by the ids of their rows; a row that was replaced, delivered or cancelled may be absent.

    Attributes:
        shares: The share of each row id, in the order in which the timers are delivered.
    """

    purpose: str
    now_us: int
    shares: dict[int, Share] = field(default_factory=dict)

    def run(self, db: sqlite3.Connection) -> ReadResult:
        """See `Read.run`."""
        rows = db.execute(
            f"SELECT {COLUMNS} FROM timers WHERE id IN (SELECT value FROM json_each(?)) AND +purpose = ?"  # noqa: S608
            " AND +fire_us <= ?",
            (json.dumps([*self.shares]), self.purpose, self.now_us),
        )
        found = {row[0]: StoredTimer(*row) for row in rows}
        return ReadResult(loaded=[(found[row_id], share) for row_id, share in self.shares.items() if row_id in found])


def _place(row: tuple[int, int, str]) -> tuple[int, Share]:
    return row[0], _share_in(row[2])


@lru_cache(SHARES_CACHED)
def _share_in(head: str) -> Share:
    """Return the share of a stored reference; empty if another program wrote it: then its delivery fails alone."""
    try:
        found = parse_json(f"{head.removesuffix(',')}}}")
        return share_of(ObjectRef(found["api_version"], found["kind"], found["namespace"], "", ""))
    except (ValueError, KeyError, TypeError):
        return "", ""
