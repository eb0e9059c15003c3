"""The due timers of one purpose that wait in the file: eight bytes each in memory, by share.

A scan of the file goes on from a cursor. Each row up to the cursor is in memory, in flight, listed here, or `behind`:
it was set after the cursor had passed its time.
"""

from array import array
from collections.abc import Container
from itertools import islice

from shared.adapters.timers.places import Share
from shared.adapters.timers.sqlite.due import SCANNED_ROWS, Load, LookUp, Read, ReadResult, Scan
from shared.adapters.timers.sqlite.store import FOREVER_US, Position

SHARES_MAX = 4_096
"""Maximum number of shares, those in the file and those in memory together, before the scan pauses."""

BEHIND_MAX = 10_000
"""Maximum number of timers to look up by their uids; beyond it, the scan begins again."""

_START: Position = (-(2**63), 0)


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
