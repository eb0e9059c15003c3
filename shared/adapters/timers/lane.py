"""What the engine holds in memory of one purpose's timers: what was read and waits, and what is in flight."""

from collections import OrderedDict
from collections.abc import Sequence

from shared.adapters.timers.sqlite_store import FOREVER_US, StoredTimer


class Lane:
    """The timers of one purpose between the file and the publisher.

    An object has one timer of a purpose, so its uid is the key in here.

    Args:
        purpose: As stored.
        places: Deliveries at once.

    Attributes:
        look_us: When to look into the file for timers that are not in here; never later than the first of them.
        failing: The kind of the last delivery's error; None once one succeeds.
    """

    def __init__(self, purpose: str, places: int) -> None:
        self.purpose = purpose
        self.look_us = 0
        self.failing: type[BaseException] | None = None
        self._places = places
        self._ready: OrderedDict[str, StoredTimer] = OrderedDict()
        self._in_flight: set[str] = set()
        self._skip: set[str] | None = None

    def look_at(self, instant_us: int) -> bool:
        """The file may have something new for this instant; True if it is the earliest now."""
        is_earlier = instant_us < self.look_us
        self.look_us = min(self.look_us, instant_us)
        return is_earlier

    def wants_look(self, now_us: int) -> bool:
        """Whether the file has to be read: it may have something, there is a place for it, and nothing else waits."""
        return self.look_us <= now_us and not self._ready and len(self._in_flight) < self._places

    def begin_look(self) -> int:
        """The file is about to be read; returns how many rows will be passed over at the most.

        Deliveries land and timers are set while it is being read, and what is read may be older than that. So what is
        in flight now, and whatever is set until `end_look`, is passed over; `look_at` brings it back where it matters.
        """
        self.look_us = FOREVER_US
        self._skip = set(self._in_flight)
        return len(self._skip)

    def end_look(self, found: Sequence[StoredTimer], next_us: int) -> None:
        """Take what was read, oldest first, and when to look for what comes after it."""
        skip, self._skip = self._skip or (), None
        self._ready.update((stored.uid, stored) for stored in found if stored.uid not in skip)
        self.look_at(next_us)

    def replace(self, uid: str, due_us: int) -> bool:
        """A timer was set: forget what was read of the one before; True if the new one is the earliest now."""
        self._ready.pop(uid, None)
        if self._skip is not None:
            self._skip.add(uid)
        return self.look_at(due_us)

    def take(self, now_us: int) -> StoredTimer | None:
        """The oldest timer to deliver, if there is one and a place for it; its place is taken until `land`."""
        if not self._ready or len(self._in_flight) >= self._places:
            return None
        stored = next(iter(self._ready.values()))
        if stored.fire_us > now_us:  # the clock was set back since it was read
            self._ready.clear()
            self.look_at(stored.fire_us)
            return None
        del self._ready[stored.uid]
        self._in_flight.add(stored.uid)
        return stored

    def land(self, uid: str, look_us: int) -> None:
        """A delivery ended, and the file says when to look at its row again."""
        self._in_flight.discard(uid)
        self.look_at(look_us)

    def next_us(self) -> int:
        """When there will be something to do here, if nothing is set and nothing lands before."""
        return self.look_us if len(self._in_flight) < self._places else FOREVER_US
