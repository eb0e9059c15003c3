"""The queue of the due timers of one purpose: in the file, in memory, and in flight; and the reads of the file.

Each read has a bounded number of rows, whatever the file holds. A scan goes through the due rows once, in the order of
their times, up to its cursor. It takes only the id and the share of each row: eight bytes in memory. A row is loaded by
its id when its share has its turn, so no read has to skip the rows of a share that waits. A row that is set to a time
that the scan has passed is looked up by its uid.
"""

import json
import sqlite3
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice

from shared.adapters.timers.delivery import Permits, Share, share_of
from shared.adapters.timers.sqlite.store import COLUMNS, FOREVER_US, StoredTimer
from shared.core.values.jsontext import parse_json
from shared.core.values.objects import ObjectRef

SCANNED_ROWS = 2_048
"""Rows that one read scans or looks up: about 4 ms."""

READY_MAX = 4_096
"""Timers in memory (a few MiB) up to which a share gets many at once; the more there are, the fewer it gets."""

LOADED_ROWS_MIN = 8
"""Timers that are loaded at once in any case."""

SHARES_MAX = 4_096
"""Maximum number of shares, those in the file and those in memory together, before the scan pauses."""

BEHIND_MAX = 10_000
"""Maximum number of timers to look up by their uids; beyond it, the scan begins again."""

Position = tuple[int, int]
"""A position in the order of the timers: fire_us and id."""

START: Position = (-(2**63), 0)
"""The position before all rows."""

# The text of `ref` up to its name, which one share has in common: SQLite needs twice the time to read the JSON itself.
_ROW = "id, fire_us, substr(ref, 1, instr(ref, ',\"name\":'))"


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The result of a read.

    Attributes:
        waiting: The id and the share of the rows that were looked up or scanned, oldest first.
        loaded: The timers that were loaded, and the share of each.
        cursor: The last row of a scan that stopped at its limit; else None.
        next_us: When to scan on; FOREVER_US if there was no scan.
    """

    waiting: Sequence[tuple[int, Share]] = ()
    loaded: Sequence[tuple[StoredTimer, Share]] = ()
    cursor: Position | None = None
    next_us: int = FOREVER_US


@dataclass(frozen=True, slots=True)
class DueRead:
    """A read that the thread of the readers makes.

    Attributes:
        uids: Look up these uids: they were set to a time that the scan had passed.
        after: Scan the next due rows after this position; None for no scan.
        load: Load the rows of these ids, in this order, each with its share. A row that was replaced or delivered
            meanwhile may be absent.
    """

    purpose: str
    now_us: int
    uids: tuple[str, ...] = ()
    after: Position | None = None
    load: Mapping[int, Share] = field(default_factory=dict)

    def run(self, db: sqlite3.Connection) -> ReadResult:
        """Read the file. A column with `+` is not searched in an index: SQLite would take the one of the scan."""
        looked_up = self._look_up(db) if self.uids else []
        scanned = self._scan(db, *self.after) if self.after else []
        cursor, next_us = None, FOREVER_US
        if len(scanned) == SCANNED_ROWS:
            cursor, next_us = (scanned[-1][1], scanned[-1][0]), scanned[-1][1]
        elif self.after:
            later = "SELECT coalesce(min(fire_us), ?) FROM timers WHERE purpose = ? AND fire_us > ?"
            (next_us,) = db.execute(later, (FOREVER_US, self.purpose, self.now_us)).fetchone()
        waiting = [(row_id, _share_in(head)) for row_id, _, head in (*looked_up, *scanned)]
        return ReadResult(waiting, self._load(db) if self.load else [], cursor, next_us)

    def _look_up(self, db: sqlite3.Connection) -> list[tuple[int, int, str]]:
        return db.execute(
            f"SELECT {_ROW} FROM timers WHERE uid IN (SELECT value FROM json_each(?)) AND purpose = ?"  # noqa: S608
            " AND +fire_us <= ? ORDER BY +fire_us, id",
            (json.dumps(self.uids), self.purpose, self.now_us),
        ).fetchall()

    def _load(self, db: sqlite3.Connection) -> list[tuple[StoredTimer, Share]]:
        rows = db.execute(
            f"SELECT {COLUMNS} FROM timers WHERE id IN (SELECT value FROM json_each(?)) AND +purpose = ?"  # noqa: S608
            " AND +fire_us <= ?",
            (json.dumps([*self.load]), self.purpose, self.now_us),
        )
        found = {row[0]: StoredTimer(*row) for row in rows}
        return [(found[row_id], share) for row_id, share in self.load.items() if row_id in found]

    def _scan(self, db: sqlite3.Connection, at_us: int, row_id: int) -> list[tuple[int, int, str]]:
        """Scan by two statements, since SQLite does not seek to a row within equal times by one."""
        rows = db.execute(
            f"SELECT {_ROW} FROM timers WHERE purpose = ? AND fire_us = ? AND id > ? ORDER BY id LIMIT ?",  # noqa: S608
            (self.purpose, at_us, row_id, SCANNED_ROWS),
        ).fetchall()
        rows += db.execute(
            f"SELECT {_ROW} FROM timers WHERE purpose = ? AND fire_us > ? AND fire_us <= ?"  # noqa: S608
            " ORDER BY fire_us, id LIMIT ?",
            (self.purpose, at_us, self.now_us, SCANNED_ROWS - len(rows)),
        ).fetchall()
        return rows


@lru_cache(SHARES_MAX)
def _share_in(head: str) -> Share:
    """Return the share of a stored reference; empty if another program wrote it: then its delivery fails alone."""
    try:
        found = parse_json(f"{head.removesuffix(',')}}}")
        return share_of(ObjectRef(found["api_version"], found["kind"], found["namespace"], "", ""))
    except (ValueError, KeyError, TypeError):
        return "", ""


@dataclass(slots=True)
class _Delivery:
    share: Share
    failed: bool = False
    has_permit: bool = True


class DueQueue:
    """The due timers of one purpose.

    An object has one timer per purpose, so its uid is the key. The shares take turns, and within a share the oldest
    timer is first. Each share has its own timers in memory and its own waiting rows, so no share hides another.

    Each row up to the cursor is in memory, in flight, waiting, or to be looked up.

    Args:
        purpose: The purpose, as stored.
        permits: The maximum number of deliveries in flight.
    """

    def __init__(self, purpose: str, permits: int) -> None:
        self.purpose = purpose
        self._permits = Permits(permits)
        self._ready: dict[Share, dict[str, StoredTimer]] = {}
        self._shares: dict[str, Share] = {}  # of the ready timers
        self._in_flight: dict[str, _Delivery] = {}
        self._skipped: set[str] = set()
        self._waiting: dict[Share, array[int]] = {}
        self._behind: dict[str, None] = {}
        self._cursor = START
        self._scan_us = 0

    def begin_read(self, now_us: int, rows_max: int) -> DueRead | None:
        """Begin a read of the file, if one is due, a permit is free, and no timer in memory can start.

        Timers that are in flight now are ignored in its result. A timer that is set during the read may fire as it was
        before, and then as it is.

        Args:
            now_us: The time. If it is before the cursor, the clock was set back, and the scan begins again.
            rows_max: The maximum number of timers to load.
        """
        if self._permits.free == 0 or self._next_share() is not None:
            return None
        if now_us < self._cursor[0]:
            self.restart()
        if self.next_us() > now_us:
            return None
        self._skipped = set(self._in_flight)
        room = (READY_MAX - len(self._shares)) // LOADED_ROWS_MIN
        load = self._take_waiting(min(max(room, LOADED_ROWS_MIN), rows_max))
        uids = tuple(islice(self._behind, SCANNED_ROWS))
        for uid in uids:
            del self._behind[uid]
        after = None
        if self._scan_us <= now_us and self._may_scan:
            # What is set during the scan, to a time before now, is looked up: the scan may miss it.
            after, self._cursor, self._scan_us = self._cursor, (now_us, FOREVER_US), FOREVER_US
        return DueRead(self.purpose, now_us, uids, after, load)

    def end_read(self, found: ReadResult) -> None:
        """Add what a read found."""
        for stored, share in found.loaded:
            if stored.uid not in self._skipped and stored.uid not in self._shares:
                self._ready.setdefault(share, {})[stored.uid] = stored
                self._shares[stored.uid] = share
        for row_id, share in found.waiting:
            self._waiting.setdefault(share, array("q")).append(row_id)
        if found.cursor and self._cursor != START:  # else the scan was to begin again meanwhile
            self._cursor = found.cursor
        self._scan_us = min(self._scan_us, found.next_us)

    def restart(self, at_us: int = 0) -> None:
        """Scan the file from its beginning, at a time: a read has failed, or many rows have changed."""
        self._waiting.clear()
        self._behind.clear()
        self._cursor, self._scan_us = START, at_us

    def replace(self, uid: str, fire_us: int, *, attempts: int = 0) -> bool:
        """Replace a timer that was set again; return True if its read is the earliest one.

        If the new timer counts attempts and an old one is in flight, the delivery in flight has failed.
        """
        if uid in self._shares:
            self._remove(uid)
        if attempts and uid in self._in_flight:
            self._in_flight[uid].failed = True
        return self._plan(uid, fire_us)

    def take(self, now_us: int) -> StoredTimer | None:
        """Return the next timer to deliver, if one is due and has a permit; its permit is taken until `finish`."""
        share = self._next_share()
        if share is None:
            return None
        stored = next(iter(self._ready[share].values()))
        if stored.fire_us > now_us:  # the clock was set back after the read
            self._ready.clear()
            self._shares.clear()
            self.restart()
            return None
        self._remove(stored.uid)
        if share in self._ready:  # the share goes to the end of the queue
            self._ready[share] = self._ready.pop(share)
        self._in_flight[stored.uid] = _Delivery(share)
        self._permits.take(share)
        return stored

    def free_permit(self, uid: str, *, failed: bool) -> None:
        """Free the permit of a delivery that has ended; its row is ignored until `finish`."""
        delivery = self._in_flight[uid]
        if delivery.has_permit:
            delivery.has_permit = False
            self._permits.give(delivery.share, failed=failed or delivery.failed)

    def finish(self, uid: str, read_us: int, *, failed: bool) -> None:
        """End a delivery whose outcome is written; the file returned when to read its row again."""
        self.free_permit(uid, failed=failed)
        del self._in_flight[uid]
        self._plan(uid, read_us)

    def next_us(self) -> int:
        """Return when to read next, if no timer is set and no delivery ends before."""
        if self._permits.free == 0:
            return FOREVER_US
        if self._behind or any(share not in self._ready for share in self._waiting):
            return 0
        return self._scan_us if self._may_scan else FOREVER_US

    @property
    def _may_scan(self) -> bool:
        return len(self._waiting) + len(self._ready) < SHARES_MAX

    def _next_share(self) -> Share | None:
        return next((share for share in self._ready if self._permits.may_take(share)), None)

    def _plan(self, uid: str, fire_us: int) -> bool:
        """Plan to read a row that was written for a time; return True if this read is the earliest one."""
        if fire_us > self._cursor[0]:
            is_earlier = fire_us < self._scan_us
            self._scan_us = min(self._scan_us, fire_us)
            return is_earlier
        self._behind[uid] = None
        if len(self._behind) > BEHIND_MAX:
            self.restart()
        return True

    def _take_waiting(self, rows_max: int) -> dict[int, Share]:
        """Take row ids of the shares of which no timer is in memory, as many of each."""
        taken: dict[int, Share] = {}
        shares = [share for share in self._waiting if share not in self._ready]
        of_each = max(rows_max // max(len(shares), 1), 1)
        for share in shares[:rows_max]:
            rows = self._waiting.pop(share)
            taken |= dict.fromkeys(rows[:of_each], share)
            del rows[:of_each]
            if rows:  # the share goes to the end
                self._waiting[share] = rows
        return taken

    def _remove(self, uid: str) -> None:
        share = self._shares.pop(uid)
        del self._ready[share][uid]
        if not self._ready[share]:
            del self._ready[share]
