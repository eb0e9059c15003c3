"""A token bucket with a calendar: if no token is left, an object gets the next free slot and is retried then.

A token is taken when it is used, never when a slot is reserved. So no token is taken twice, and none is lost if an
object never comes back. Instants are seconds of any clock that does not jump.
"""

import math
from bisect import bisect_left, bisect_right, insort

from shared.core.policy.limits import Rate

LATE_SECONDS = 1.0
"""How late an object may come for its slot and still pass: the time that timers and the network take. In any t seconds
a bucket lets at most `burst + rate * (t + LATE_SECONDS)` pass, and one more if the rate is below one a second."""

HELD_SECONDS = 60.0
"""How long the slot of an object that does not come back is kept free."""

_EPSILON = 1e-6


class Bucket:
    """Tokens that refill at a rate, and slots in the future, one for each interval.

    Args:
        rate: The tokens a second, and the burst.
        now: The bucket is full at this instant.
    """

    def __init__(self, rate: Rate, now: float) -> None:
        self._rate = rate
        self._burst = max(1.0, rate.burst)
        self._level = self._burst
        self._at = now
        self._slots: list[int] = []  # sorted, each once; slot k is at k / per_second

    @property
    def interval(self) -> float:
        """Seconds between two slots."""
        return 1 / self._rate.per_second

    def has_for_newcomers(self, now: float) -> bool:
        """Whether a token is left that no waiting object needs within the next interval."""
        self._move(now)
        return self._level >= 1 + self._count_until(now + self.interval) - _EPSILON

    def has_for_waiting(self, now: float) -> bool:
        """Whether an object may pass at its slot; up to LATE_SECONDS of tokens may be missing, or one token."""
        self._move(now)
        return self._level >= 1 - max(1.0, LATE_SECONDS * self._rate.per_second) - _EPSILON

    def take(self, now: float) -> None:
        """Take one token."""
        self._move(now)
        self._level -= 1

    def give_back(self) -> None:
        """Return a token that was taken and not used."""
        self._level = min(self._burst, self._level + 1)

    def find_slot(self, after: float, now: float) -> int:
        """The first free slot that is not before `after` and for which a token will be there."""
        self._move(now)
        earliest = max(after, now + (1 - self._level) * self.interval)
        slot = math.ceil(earliest * self._rate.per_second - _EPSILON)
        start = bisect_left(self._slots, slot)
        if start == len(self._slots) or self._slots[start] != slot:
            return slot
        # From a taken slot on, all are taken until the numbers run ahead of their places.
        ahead = self._slots[start] - start
        end = bisect_right(range(len(self._slots)), ahead, lo=start, key=lambda place: self._slots[place] - place)
        return slot + end - start

    def time_of(self, slot: int) -> float:
        """The instant of a slot."""
        return slot * self.interval

    def reserve(self, slot: int) -> None:
        """Reserve a slot: no other object gets it."""
        insort(self._slots, slot)

    def release(self, slot: int) -> None:
        """Free a slot; does nothing if it is not reserved any more."""
        place = bisect_left(self._slots, slot)
        if place < len(self._slots) and self._slots[place] == slot:
            del self._slots[place]

    def is_idle(self, now: float) -> bool:
        """Whether a new bucket would behave the same."""
        self._move(now)
        return not self._slots and self._level >= self._burst

    def _count_until(self, instant: float) -> int:
        return bisect_left(self._slots, instant * self._rate.per_second)

    def _move(self, now: float) -> None:
        elapsed, self._at = max(0.0, now - self._at), max(self._at, now)
        self._level = min(self._burst, self._level + elapsed * self._rate.per_second)
        del self._slots[: self._count_until(now - HELD_SECONDS)]
