"""The deletion budget of a process: one rate for all it deletes, and one for each namespace.

Whoever finds the budget used up neither waits nor fails: it is told when to come back, at a slot that is its own in
each bucket. A backlog after an outage is thereby spread at the allowed rate. Asked again before that, the answer is the
same, so that a sweep pushes nothing ever later. What has no place within the horizon is left to a later sweep.
"""

from collections import OrderedDict
from dataclasses import dataclass

from shared.core.policy.limits import Rate
from shared.safeguards.bucket import LATE_SECONDS, Bucket

WAITING_MAX = 50_000
"""Objects with a slot at a time: some 15 MB."""

NAMESPACES_MAX = 10_000
"""Namespaces with a bucket of their own while they are busy; further ones share one, which is only stricter."""

EARLY_SECONDS = 0.1
"""How early one may come for a slot: clocks differ by so little, and another round trip would take as long."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in the line: when it is, and its number in each bucket."""

    at: float
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Later:
    """There is no token now.

    Attributes:
        at: When there is; None where that is beyond the horizon, or too many wait.
    """

    at: float | None


class Budget:
    """Tokens for deletions.

    Args:
        everywhere: The rate of all; None for no limit.
        per_namespace: The rate in each namespace; None for no limit.
        horizon: Seconds ahead within which slots are given.
        waiting_max: Objects that may have one.
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
        """Pay for one deletion; None once it is paid.

        Args:
            uid: Of the object: it is known again when it comes back.
            namespace: Of the object; empty for what is in none.
            now: Seconds.
        """
        buckets = self._buckets(namespace, now)
        waited = self._waiting.get(uid)
        if waited is None:
            is_let_through = all(bucket.has_for_newcomers(now) for bucket in buckets)
        elif now < waited[1].at - EARLY_SECONDS:
            return Later(waited[1].at)
        else:
            is_let_through = all(bucket.has_for_waiting(now) for bucket in buckets)
            self._leave(uid, now)
        if is_let_through:
            for bucket in buckets:
                bucket.take(now)
            return None
        return self._wait(uid, namespace, buckets, now)

    def give_back(self, namespace: str, now: float) -> None:
        """A deletion that was paid for did not happen."""
        for bucket in self._buckets(namespace, now):
            bucket.give_back()

    def count_waiting(self) -> int:
        """How many have a slot."""
        return len(self._waiting)

    def _wait(self, uid: str, namespace: str, buckets: list[Bucket], now: float) -> Later:
        slot = _find_slot(buckets, now)
        if slot.at >= now + self._horizon or not self._has_place(now):
            return Later(None)
        for bucket, number in zip(buckets, slot.numbers, strict=True):
            bucket.reserve(number)
        self._waiting[uid] = namespace, slot
        return Later(slot.at)

    def _has_place(self, now: float) -> bool:
        """Whether one more may wait. The longest in the line, and not come for a whole horizon, is forgotten."""
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
        """Those that have to let an object of this namespace through, the slowest first."""
        buckets = []
        if self._namespace_rate:
            buckets.append(self._bucket_of(namespace, self._namespace_rate, now))
        if self._everywhere_rate:
            self._everywhere = self._everywhere or Bucket(self._everywhere_rate, now)
            buckets.append(self._everywhere)
        return sorted(buckets, key=lambda bucket: -bucket.interval)

    def _bucket_of(self, namespace: str, rate: Rate, now: float) -> Bucket:
        if namespace not in self._namespaces and len(self._namespaces) >= NAMESPACES_MAX:
            self._namespaces = {name: one for name, one in self._namespaces.items() if not one.is_idle(now)}
            if len(self._namespaces) >= NAMESPACES_MAX:
                namespace = "*"  # no namespace has this name
        if namespace not in self._namespaces:
            self._namespaces[namespace] = Bucket(rate, now)
        return self._namespaces[namespace]


def _find_slot(buckets: list[Bucket], now: float) -> Slot:
    """The first slot of the slowest bucket for which the other has one at nearly the same time."""
    after = now
    apart_max = max(buckets[-1].interval, LATE_SECONDS / 2)
    while True:
        numbers: list[int] = []
        times: list[float] = []
        for bucket in buckets:
            numbers.append(bucket.find_slot(max([after, *times]), now))
            times.append(bucket.time_of(numbers[-1]))
        if max(times) - min(times) <= apart_max:
            return Slot(max(times), tuple(numbers))
        after = max(times)
