"""The deletion budget of a process: one rate for all its deletions, and one rate for each namespace.

When the budget is exhausted, each object gets a slot in each bucket and a timer for it, so a backlog drains at the
configured rate. If an object asks again before its slot, the answer is the same, so a sweep never moves it to a later
slot. An object without a free slot within the horizon is left to a later sweep.

A bucket has tokens and a calendar of slots. A token is taken when it is used, never when a slot is reserved. So no
token is taken twice, and none is lost if an object never comes back. GCRA, which has one time a bucket instead of a
calendar, lets a crowded namespace delay all others: see docs/decisions/0027-calendar-of-slots.md.

Instants are seconds of any clock that does not jump.
"""

import math
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from dataclasses import dataclass

from shared.core.policy.limits import Rate

WAITING_MAX = 50_000
"""Objects with a slot at a time: about 15 MB."""

BUCKETS_MAX = 10_000
"""Busy namespaces with their own bucket; further namespaces share one bucket, which is only stricter."""

EARLY_SECONDS = 0.1
"""How early an object may come for its slot: clocks differ by this much, and another round trip takes as long."""

SLOT_LATE_SECONDS = 1.0
"""How late an object may come for its slot and still pass: the time that timers and the network take. In any t seconds
a bucket lets at most `burst + rate * (t + SLOT_LATE_SECONDS)` pass, and one more if the rate is below one a second."""

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
        """Check for a token that no waiting object needs within the next interval."""
        self._move(now)
        return self._level >= 1 + self._count_until(now + self.interval) - _EPSILON

    def has_for_waiting(self, now: float) -> bool:
        """Check for a token for an object at its slot; up to SLOT_LATE_SECONDS of tokens, or one, may be missing."""
        self._move(now)
        return self._level >= 1 - max(1.0, SLOT_LATE_SECONDS * self._rate.per_second) - _EPSILON

    def take(self, now: float) -> None:
        """Take one token."""
        self._move(now)
        self._level -= 1

    def give_back(self) -> None:
        """Return a token that was taken and not used."""
        self._level = min(self._burst, self._level + 1)

    def find_slot(self, after: float, now: float) -> int:
        """Return the first free slot that is not before `after` and for which a token will be there."""
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
        """Return the instant of a slot."""
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
        """Check that a new bucket would behave the same."""
        self._move(now)
        return not self._slots and self._level >= self._burst

    def _count_until(self, instant: float) -> int:
        return bisect_left(self._slots, instant * self._rate.per_second)

    def _move(self, now: float) -> None:
        elapsed, self._at = max(0.0, now - self._at), max(self._at, now)
        self._level = min(self._burst, self._level + elapsed * self._rate.per_second)
        del self._slots[: self._count_until(now - HELD_SECONDS)]


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot: its instant, and its number in each bucket."""

    at: float
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Later:
    """No token is left now.

    Attributes:
        at: The slot; None if it is beyond the horizon, or too many objects wait.
    """

    at: float | None


class Budget:
    """Tokens for deletions.

    Args:
        everywhere: The rate of all deletions; None for no limit.
        per_namespace: The rate in each namespace; None for no limit.
        horizon: How many seconds ahead a slot may be.
        waiting_max: Objects that may have a slot.
    """

    def __init__(
        self,
        everywhere: Rate | None,
        per_namespace: Rate | None,
        *,
        horizon: float,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        self._everywhere_rate, self._namespace_rate = everywhere, per_namespace
        self._horizon, self._waiting_max = horizon, waiting_max
        self._everywhere: Bucket | None = None
        self._namespaces: dict[str, Bucket] = {}
        self._waiting: OrderedDict[str, tuple[str, Slot]] = OrderedDict()

    def ask(self, uid: str, namespace: str, now: float) -> Later | None:
        """Take the tokens for one deletion; None if they were taken.

        Args:
            uid: The object's uid, by which its slot is found again.
            namespace: The object's namespace; empty for a cluster-scoped object.
            now: The present, in seconds.
        """
        buckets = self._buckets(namespace, now)
        waited = self._waiting.get(uid)
        if waited is None:
            may_pass = all(bucket.has_for_newcomers(now) for bucket in buckets)
        elif now < waited[1].at - EARLY_SECONDS:
            return Later(waited[1].at)
        else:
            may_pass = all(bucket.has_for_waiting(now) for bucket in buckets)
            self._leave(uid, now)
        if may_pass:
            for bucket in buckets:
                bucket.take(now)
            return None
        return self._wait(uid, namespace, buckets, now)

    def give_back(self, namespace: str, now: float) -> None:
        """Return the tokens of a deletion that did not happen."""
        for bucket in self._buckets(namespace, now):
            bucket.give_back()

    def _wait(self, uid: str, namespace: str, buckets: list[Bucket], now: float) -> Later:
        slot = _find_slot(buckets, now)
        if slot.at >= now + self._horizon or not self._has_place(now):
            return Later(None)
        for bucket, number in zip(buckets, slot.numbers, strict=True):
            bucket.reserve(number)
        self._waiting[uid] = namespace, slot
        return Later(slot.at)

    def _has_place(self, now: float) -> bool:
        """Check for the place of one more object. If the oldest is late by a whole horizon, it loses its slot."""
        if len(self._waiting) >= self._waiting_max:
            first = next(iter(self._waiting))
            if self._waiting[first][1].at + self._horizon < now:
                self._leave(first, now)
        return len(self._waiting) < self._waiting_max

    def _leave(self, uid: str, now: float) -> None:
        namespace, slot = self._waiting.pop(uid)
        for bucket, number in zip(self._buckets(namespace, now), slot.numbers, strict=True):
            bucket.release(number)

    def _buckets(self, namespace: str, now: float) -> list[Bucket]:
        """Return the buckets that an object of this namespace has to pass, the slowest first."""
        buckets = []
        if self._namespace_rate:
            buckets.append(self._bucket_of(namespace, self._namespace_rate, now))
        if self._everywhere_rate:
            self._everywhere = self._everywhere or Bucket(self._everywhere_rate, now)
            buckets.append(self._everywhere)
        return sorted(buckets, key=lambda bucket: -bucket.interval)

    def _bucket_of(self, namespace: str, rate: Rate, now: float) -> Bucket:
        if namespace not in self._namespaces and len(self._namespaces) >= BUCKETS_MAX:
            self._namespaces = {name: one for name, one in self._namespaces.items() if not one.is_idle(now)}
            if len(self._namespaces) >= BUCKETS_MAX:
                namespace = "*"  # no namespace has this name
        if namespace not in self._namespaces:
            self._namespaces[namespace] = Bucket(rate, now)
        return self._namespaces[namespace]


def _find_slot(buckets: list[Bucket], now: float) -> Slot:
    """Return the first slot of the slowest bucket for which the other bucket has a slot at nearly the same time."""
    after = now
    apart_max = max(buckets[-1].interval, SLOT_LATE_SECONDS / 2)
    while True:
        numbers: list[int] = []
        times: list[float] = []
        for bucket in buckets:
            numbers.append(bucket.find_slot(max([after, *times]), now))
            times.append(bucket.time_of(numbers[-1]))
        if max(times) - min(times) <= apart_max:
            return Slot(max(times), tuple(numbers))
        after = max(times)
