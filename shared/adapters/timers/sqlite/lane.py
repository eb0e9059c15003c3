"""The timers of one purpose in memory: those that are due, and those whose delivery is in flight."""

from collections.abc import Sequence
from dataclasses import dataclass

from shared.adapters.timers.places import Places, Share
from shared.adapters.timers.sqlite.store import FOREVER_US, Selection, StoredTimer

SHARE_READY_MAX = 32
"""Maximum number of waiting timers per share from a read for all shares: the places that a single share may use."""

READY_MAX = 4_096
"""Maximum number of waiting timers before other shares are not read: those of 128 hanging shares, a few MiB."""


@dataclass(slots=True)
class _Flight:
    share: Share
    failed: bool = False


class Lane:
    """The timers of one purpose between the file and the publisher.

    An object has at most one timer per purpose, so its uid is the key. The shares take turns, and within a share the
    oldest timer is first. If a share has more due timers than places, reads for the other shares leave it out, and it
    is read alone at its turn. So no share hides another.

    Args:
        purpose: The purpose, as stored.
        places: The maximum number of deliveries in flight.

    Attributes:
        read_us: When to read timers from the file; never later than the first timer that is not in memory, except those
            of left-out shares.
    """

    def __init__(self, purpose: str, places: int) -> None:
        self.purpose = purpose
        self.read_us = 0
        self._places = Places(places)
        self._ready: dict[Share, dict[str, StoredTimer]] = {}
        self._shares: dict[str, Share] = {}
        self._in_flight: dict[str, _Flight] = {}
        self._skip: set[str] | None = None
        self._unwritten: set[str] = set()
        self._left_out: dict[Share, None] = {}
        self._refills: dict[Share, None] = {}
        self._selection = Selection()

    def read_by(self, instant_us: int) -> bool:
        """Plan a read of the file for a time; return True if it is the earliest one."""
        is_earlier = instant_us < self.read_us
        self.read_us = min(self.read_us, instant_us)
        return is_earlier

    def needs_read(self, now_us: int) -> bool:
        """Return whether to read the file: a read is due, a place is free, and no timer in memory can start."""
        return self._places.free > 0 and self._next_share() is None and self._next_read_us() <= now_us

    def begin_read(self) -> tuple[int, Selection]:
        """Begin a read of the file.

        During the read, deliveries end and timers are set, so the rows that it returns may be outdated. Timers in
        flight now, and timers set until `end_read`, are ignored in its result; `read_by` plans another read if needed.

        Returns:
            The number of rows that may be known already, and the shares to read.
        """
        self._skip = self._unwritten.union(self._in_flight)
        if self._refills:
            self._selection = Selection(only=next(iter(self._refills)))
        else:
            self.read_us = FOREVER_US
            self._selection = Selection(without=tuple(self._left_out))
        return len(self._skip) + len(self._shares), self._selection

    def end_read(self, found: Sequence[StoredTimer], next_us: int, *, is_full: bool = False) -> None:
        """Add the rows of a read.

        Args:
            found: The rows, oldest first.
            next_us: When to read the rows after them.
            is_full: The file has more rows that are due now.
        """
        skip, self._skip = self._skip or (), None
        only = self._selection.only
        for stored in found:
            if stored.uid not in skip and stored.uid not in self._shares:
                self._add(stored, stored.share(), is_only=only is not None)
        if only is None:
            self.read_by(next_us)
            return
        if not is_full:
            self._left_out.pop(only, None)
        if not is_full or only in self._ready:
            self._refills.pop(only, None)

    def fail_read(self, next_us: int) -> None:
        """Handle a failed read: plan a read of all shares for a time."""
        self._skip = None
        self._left_out.clear()
        self._refills.clear()
        self.read_by(next_us)

    def replace(self, uid: str, due_us: int, *, attempts: int = 0) -> bool:
        """Replace a timer that was set again; return True if its read is the earliest one.

        If the new timer counts attempts and an old one is in flight, the delivery in flight has failed.
        """
        if uid in self._shares:
            self._remove(uid)
        if attempts and uid in self._in_flight:
            self._in_flight[uid].failed = True
        if self._skip is not None:
            self._skip.add(uid)
        return self.read_by(due_us)

    def take(self, now_us: int) -> StoredTimer | None:
        """Return the next timer to deliver, if one is due and has a place; its place is taken until `finish`."""
        share = self._next_share()
        if share is None:
            return None
        stored = next(iter(self._ready[share].values()))
        if stored.fire_us > now_us:  # the clock was set back after the read
            self._ready.clear()
            self._shares.clear()
            self._left_out.clear()
            self._refills.clear()
            self.read_by(0)
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
        self.read_by(read_us)

    def finish_unwritten(self, uid: str, *, failed: bool) -> None:
        """End a delivery whose result is not written yet: free its place, and ignore its row until `written`."""
        self._unwritten.add(uid)
        self.finish(uid, FOREVER_US, failed=failed)

    def written(self, uid: str, read_us: int) -> None:
        """The result of a delivery is written; the file returned when to read its row again."""
        self._unwritten.discard(uid)
        self.read_by(read_us)

    def next_us(self) -> int:
        """Return when to read or deliver next, if no timer is set and no delivery ends before."""
        return self._next_read_us() if self._places.free > 0 else FOREVER_US

    def _next_read_us(self) -> int:
        if self._refills:
            return 0
        return self.read_us if len(self._shares) < READY_MAX else FOREVER_US

    def _next_share(self) -> Share | None:
        return next((share for share in self._ready if self._places.may_take(share)), None)

    def _add(self, stored: StoredTimer, share: Share, *, is_only: bool) -> None:
        """Keep a row; if enough timers of its share wait, leave the share out of the next reads instead."""
        ready = self._ready.setdefault(share, {})
        if len(ready) >= SHARE_READY_MAX and not is_only:
            self._left_out[share] = None
            return
        ready[stored.uid] = stored
        self._shares[stored.uid] = share

    def _remove(self, uid: str) -> None:
        """Remove a timer; if it was the last waiting one of a left-out share, plan a read of the share."""
        share = self._shares.pop(uid)
        del self._ready[share][uid]
        if not self._ready[share]:
            del self._ready[share]
            if share in self._left_out:
                self._refills[share] = None
