"""The due timers of one purpose that wait in the file: eight bytes each in memory, by share; and the reads of them.

A scan of the file goes on from a cursor. Each row up to the cursor is in memory, in flight, listed here, or `behind`:
it was set after the cursor had passed its time. Each read has a bounded number of rows, whatever the file holds.

A scan goes through the due timers in the order of their times, and returns the place of each row: its id and its share.
The rows are loaded by their ids when their share has its turn. So each due row is scanned once, and no read has to skip
the rows of a share that waits. A column with `+` is not searched in an index: SQLite would take the one of the scan.
"""

import json
import sqlite3
from array import array
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Protocol

from shared.adapters.timers.places import Share, share_of
from shared.adapters.timers.sqlite.store import COLUMNS, FOREVER_US, Position, StoredTimer
from shared.core.values.jsontext import parse_json
from shared.core.values.objects import ObjectRef

SCANNED_ROWS = 2_048
"""Rows that one scan or one look-up reads: about 4 ms."""

SHARES_CACHED = 4_096

# The text of `ref` up to its name, which one share has in common: SQLite needs twice the time to read the JSON itself.
_PLACE = "id, fire_us, substr(ref, 1, instr(ref, ',\"name\":'))"

SHARES_MAX = 4_096
"""Maximum number of shares, those in the file and those in memory together, before the scan pauses."""

BEHIND_MAX = 10_000
"""Maximum number of timers to look up by their uids; beyond it, the scan begins again."""

_START: Position = (-(2**63), 0)


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


class Backlog:
    """What is due in the file, and what to read next.

    Args:
        purpose: The purpose, as stored.
    """

    def __init__(self, purpose: str) -> None:
        self._purpose = purpose
        self._rows: dict[Share, array[int]] = {}
        self._wanted: dict[Share, None] = {}
        self._behind: dict[str, None] = {}
        self._cursor = _START
        self._scan_us = 0
        self._turn = 0

    def plan(self, uid: str, fire_us: int) -> bool:
        """Plan to read a row that was written for a time; return True if this read is the earliest one."""
        if fire_us > self._cursor[0]:
            is_earlier = fire_us < self._scan_us
            self._scan_us = min(self._scan_us, fire_us)
            return is_earlier
        self._behind[uid] = None
        if len(self._behind) > BEHIND_MAX:
            self.restart()
        return True

    def restart(self, at_us: int = 0) -> None:
        """Scan the file from its beginning, at a time."""
        self._rows.clear()
        self._wanted.clear()
        self._behind.clear()
        self._cursor, self._scan_us = _START, at_us

    def want(self, share: Share) -> None:
        """Plan to load timers of a share, if some wait: none of it is in memory."""
        if share in self._rows:
            self._wanted[share] = None

    def next_us(self, ready: int) -> int:
        """Return when to read next; `ready` is the number of shares of which timers are in memory."""
        if self._wanted or self._behind:
            return 0
        return self._scan_us if len(self._rows) + ready < SHARES_MAX else FOREVER_US

    def begin(self, now_us: int, *, ready: int, load_rows: int) -> Read | None:
        """Begin the next read; None if none is due.

        Args:
            now_us: The time. If it is before the cursor, the clock was set back, and the scan begins again.
            ready: The number of shares of which timers are in memory.
            load_rows: How many timers to load at once.
        """
        if now_us < self._cursor[0]:
            self.restart()
        if self.next_us(ready) > now_us:
            return None
        for _ in range(3):  # in turn, so that none delays another
            self._turn += 1
            read = (self._look_up, self._load, self._scan)[self._turn % 3](now_us, ready, load_rows)
            if read is not None:
                return read
        return None

    def end(self, found: ReadResult, ready: Container[Share]) -> None:
        """Note the result of a read.

        Args:
            found: The result.
            ready: The shares of which timers are in memory.
        """
        for row_id, share in found.places:
            self._rows.setdefault(share, array("q")).append(row_id)
            self._wanted[share] = None
        for share in [share for share in self._wanted if share in ready or share not in self._rows]:
            del self._wanted[share]
        self._cursor = found.cursor or self._cursor
        self._scan_us = min(self._scan_us, found.next_us)

    def _look_up(self, now_us: int, *_: int) -> Read | None:
        uids = tuple(islice(self._behind, SCANNED_ROWS))
        for uid in uids:
            del self._behind[uid]
        return LookUp(self._purpose, now_us, uids) if uids else None

    def _load(self, now_us: int, _: int, load_rows: int) -> Read | None:
        shares: dict[int, Share] = {}
        for share in islice(self._wanted, load_rows):
            rows = self._rows[share]
            taken = max(load_rows // len(self._wanted), 1)
            shares |= dict.fromkeys(rows[:taken], share)
            del rows[:taken]
            if not rows:
                del self._rows[share]
        return Load(self._purpose, now_us, shares) if shares else None

    def _scan(self, now_us: int, ready: int, _: int) -> Read | None:
        if self._scan_us > now_us or len(self._rows) + ready >= SHARES_MAX:
            return None
        self._scan_us = FOREVER_US
        return Scan(self._purpose, now_us, self._cursor)
