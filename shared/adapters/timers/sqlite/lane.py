"""The timers of one purpose in memory: those that are due, and those whose delivery is in flight."""

from dataclasses import dataclass

from shared.adapters.timers.places import Places, Share
from shared.adapters.timers.sqlite.backlog import Backlog, Read, ReadResult
from shared.adapters.timers.sqlite.store import FOREVER_US, StoredTimer

READY_MAX = 4_096
"""Timers in memory (a few MiB) up to which a share gets many at once; the more there are, the fewer it gets."""

LOADED_ROWS_MIN = 8
"""Timers that are loaded at once in any case."""


@dataclass(slots=True)
class _Flight:
    share: Share
    failed: bool = False


class Lane:
    """The timers of one purpose between the file and the publisher.

    An object has at most one timer per purpose, so its uid is the key. The shares take turns, and within a share the
    oldest timer is first. Each share has its own timers in memory and its own backlog, so no share hides another.

    Args:
        purpose: The purpose, as stored.
        places: The maximum number of deliveries in flight.
    """

    def __init__(self, purpose: str, places: int) -> None:
        self.purpose = purpose
        self._backlog = Backlog(purpose)
        self._places = Places(places)
        self._ready: dict[Share, dict[str, StoredTimer]] = {}
        self._shares: dict[str, Share] = {}
        self._in_flight: dict[str, _Flight] = {}
        self._unwritten: set[str] = set()
        self._skip: set[str] = set()
        self._changed: dict[str, int] | None = None

    def begin_read(self, now_us: int, rows: int) -> Read | None:
        """Begin a read of the file, if one is due, a place is free, and no timer in memory can start.

        During the read, deliveries end and timers are set, so the rows that it returns may be outdated. Timers in
        flight now, and timers set until `end_read`, are ignored in its result, and another read is planned if needed.

        Args:
            now_us: The time.
            rows: The maximum number of timers to load.
        """
        if self._places.free == 0 or self._next_share() is not None:
            return None
        room = (READY_MAX - len(self._shares)) // LOADED_ROWS_MIN
        load_rows = min(max(room, LOADED_ROWS_MIN), rows)
        read = self._backlog.begin(now_us, ready=len(self._ready), load_rows=load_rows)
        if read is not None:
            self._skip = self._unwritten.union(self._in_flight)
            self._changed = {}
        return read

    def end_read(self, found: ReadResult) -> None:
        """Add what a read found."""
        skip = self._skip.union(self._changed or ())
        for stored, share in found.loaded:
            if stored.uid not in skip and stored.uid not in self._shares:
                self._ready.setdefault(share, {})[stored.uid] = stored
                self._shares[stored.uid] = share
        self._backlog.end(found, self._ready)
        self._plan_changed()

    def fail_read(self, next_us: int) -> None:
        """Handle a failed read: read the file from its beginning at a time."""
        self._changed = None
        self._backlog.restart(next_us)

    def read_again(self) -> None:
        """Read the file from its beginning: many rows have changed."""
        self._backlog.restart()

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
        """Return the next timer to deliver, if one is due and has a place; its place is taken until `finish`."""
        share = self._next_share()
        if share is None:
            return None
        stored = next(iter(self._ready[share].values()))
        if stored.fire_us > now_us:  # the clock was set back after the read
            self._ready.clear()
            self._shares.clear()
            self._backlog.restart()
            return None
        self._remove(stored.uid)
        if share in self._ready:  # the share goes to the end of the queue
            self._ready[share] = self._ready.pop(share)
        self._in_flight[stored.uid] = _Flight(share)
        self._places.take(share)
        return stored

    def finish(self, uid: str, read_us: int, *, failed: bool = False) -> None:
        """End a delivery whose result is written; the file returned when to read its row again."""
        flight = self._in_flight.pop(uid)
        self._places.give(flight.share, failed=failed or flight.failed)
        self._plan(uid, read_us)

    def finish_unwritten(self, uid: str, *, failed: bool) -> None:
        """End a delivery whose result is not written yet: free its place, and ignore its row until `written`."""
        self._unwritten.add(uid)
        self.finish(uid, FOREVER_US, failed=failed)

    def written(self, uid: str, read_us: int) -> None:
        """The result of a delivery is written; the file returned when to read its row again."""
        self._unwritten.discard(uid)
        self._plan(uid, read_us)

    def next_us(self) -> int:
        """Return when to read or deliver next, if no timer is set and no delivery ends before."""
        return self._backlog.next_us(len(self._ready)) if self._places.free > 0 else FOREVER_US

    def _next_share(self) -> Share | None:
        return next((share for share in self._ready if self._places.may_take(share)), None)

    def _plan(self, uid: str, fire_us: int) -> bool:
        """Plan to read a row that was written; during a read, once it has ended, since it may have missed the row."""
        if self._changed is not None:
            self._changed[uid] = fire_us
            return True
        return fire_us < FOREVER_US and self._backlog.plan(uid, fire_us)

    def _plan_changed(self) -> None:
        changed, self._changed = self._changed or {}, None
        for uid, fire_us in changed.items():
            self._plan(uid, fire_us)

    def _remove(self, uid: str) -> None:
        """Remove a timer; if it was the last one of its share, plan to load more."""
        share = self._shares.pop(uid)
        del self._ready[share][uid]
        if not self._ready[share]:
            del self._ready[share]
            self._backlog.want(share)
