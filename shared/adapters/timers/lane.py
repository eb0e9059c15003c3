"""What the engine holds in memory of one purpose's timers: what was read and waits, and what is in flight."""

from collections.abc import Sequence
from dataclasses import dataclass

from shared.adapters.timers.places import Places, Share
from shared.adapters.timers.sqlite_store import FOREVER_US, Selection, StoredTimer

SHARE_READY_MAX = 32
"""Timers of one share that are kept of what was read for all: as many as it may have in flight when it is alone."""

READY_MAX = 4_096
"""Timers that wait in memory before no other shares are read: those of 128 shares that hang, a few MiB."""


@dataclass(slots=True)
class _Flight:
    share: Share
    failed: bool = False


class Lane:
    """The timers of one purpose between the file and the publisher.

    An object has one timer of a purpose, so its uid is the key in here. The shares take turns; within a share the
    oldest timer is first. A share with more due timers than it has places is left out when the file is read for the
    others, and is read alone when its turn comes: so it hides no other.

    Args:
        purpose: As stored.
        places: Deliveries at once.

    Attributes:
        look_us: When to look into the file for timers that are not in here; never later than the first of them, shares
            that are left out aside.
        failing: The kind of the last delivery's error; None once one succeeds.
    """

    def __init__(self, purpose: str, places: int) -> None:
        self.purpose = purpose
        self.look_us = 0
        self.failing: type[BaseException] | None = None
        self._places = Places(places)
        self._ready: dict[Share, dict[str, StoredTimer]] = {}
        self._shares: dict[str, Share] = {}
        self._in_flight: dict[str, _Flight] = {}
        self._skip: set[str] | None = None
        self._unnoted: set[str] = set()
        self._left_out: dict[Share, None] = {}
        self._refills: dict[Share, None] = {}
        self._selection = Selection()

    def look_at(self, instant_us: int) -> bool:
        """The file may have something new for this instant; True if it is the earliest now."""
        is_earlier = instant_us < self.look_us
        self.look_us = min(self.look_us, instant_us)
        return is_earlier

    def wants_look(self, now_us: int) -> bool:
        """Whether the file has to be read: it may have something, there is a place for it, and nothing else can go."""
        return self._places.free > 0 and self._next_share() is None and self._next_look_us() <= now_us

    def begin_look(self) -> tuple[int, Selection]:
        """The file is about to be read.

        Deliveries land and timers are set while it is being read, and what is read may be older than that. So what is
        in flight now, and whatever is set until `end_look`, is passed over; `look_at` brings it back where it matters.

        Returns:
            How many rows may be known already, and which shares to read.
        """
        self._skip = self._unnoted.union(self._in_flight)
        if self._refills:
            self._selection = Selection(only=next(iter(self._refills)))
        else:
            self.look_us = FOREVER_US
            self._selection = Selection(without=tuple(self._left_out))
        return len(self._skip) + len(self._shares), self._selection

    def end_look(self, found: Sequence[StoredTimer], next_us: int, *, is_full: bool = False) -> None:
        """Take what was read.

        Args:
            found: The rows, oldest first.
            next_us: When to look for what comes after them.
            is_full: There are more that are due now.
        """
        skip, self._skip = self._skip or (), None
        only = self._selection.only
        for stored in found:
            if stored.uid not in skip and stored.uid not in self._shares:
                self._add(stored, stored.share(), everything=only is not None)
        if only is None:
            self.look_at(next_us)
            return
        if not is_full:
            self._left_out.pop(only, None)
        if not is_full or only in self._ready:
            self._refills.pop(only, None)

    def fail_look(self, next_us: int) -> None:
        """The file could not be read: read all of it at that instant."""
        self._skip = None
        self._left_out.clear()
        self._refills.clear()
        self.look_at(next_us)

    def replace(self, uid: str, due_us: int, *, attempts: int = 0) -> bool:
        """A timer was set: forget what was read of the one before; True if the new one is the earliest now.

        One that counts attempts and is set during its own delivery says that the delivery came to nothing.
        """
        if uid in self._shares:
            self._remove(uid)
        if attempts and uid in self._in_flight:
            self._in_flight[uid].failed = True
        if self._skip is not None:
            self._skip.add(uid)
        return self.look_at(due_us)

    def take(self, now_us: int) -> StoredTimer | None:
        """The next timer to deliver, if there is one and a place for it; its place is taken until `land`."""
        share = self._next_share()
        if share is None:
            return None
        stored = next(iter(self._ready[share].values()))
        if stored.fire_us > now_us:  # the clock was set back since it was read
            self._ready.clear()
            self._shares.clear()
            self._left_out.clear()
            self._refills.clear()
            self.look_at(0)
            return None
        self._remove(stored.uid)
        if share in self._ready:  # the others first
            self._ready[share] = self._ready.pop(share)
        self._in_flight[stored.uid] = _Flight(share)
        self._places.take(share)
        return stored

    def land(self, uid: str, look_us: int, *, failed: bool = False) -> None:
        """A delivery ended, and the file says when to look at its row again."""
        flight = self._in_flight.pop(uid)
        self._places.give(flight.share, failed=failed or flight.failed)
        self.look_at(look_us)

    def land_unnoted(self, uid: str, *, failed: bool) -> None:
        """A delivery ended, and the file does not know yet: its place is free, its row is passed over until `noted`."""
        self._unnoted.add(uid)
        self.land(uid, FOREVER_US, failed=failed)

    def noted(self, uid: str, look_us: int) -> None:
        """The file knows now, and says when to look at the row again."""
        self._unnoted.discard(uid)
        self.look_at(look_us)

    def next_us(self) -> int:
        """When there will be something to do here, if nothing is set and nothing lands before."""
        return self._next_look_us() if self._places.free > 0 else FOREVER_US

    def _next_look_us(self) -> int:
        if self._refills:
            return 0
        return self.look_us if len(self._shares) < READY_MAX else FOREVER_US

    def _next_share(self) -> Share | None:
        return next((share for share in self._ready if self._places.may_take(share)), None)

    def _add(self, stored: StoredTimer, share: Share, *, everything: bool) -> None:
        """Keep what was read, or leave the share out of the next reads where enough of it waits."""
        ready = self._ready.setdefault(share, {})
        if len(ready) >= SHARE_READY_MAX and not everything:
            self._left_out[share] = None
            return
        ready[stored.uid] = stored
        self._shares[stored.uid] = share

    def _remove(self, uid: str) -> None:
        """Forget what was read of a timer; where it was the last of a share that is left out, read the share."""
        share = self._shares.pop(uid)
        del self._ready[share][uid]
        if not self._ready[share]:
            del self._ready[share]
            if share in self._left_out:
                self._refills[share] = None
