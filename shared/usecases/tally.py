"""How many objects of which kind were deleted lately, by all processes of an installation.

They are counted in parts of a window, by the clock on the wall, so that all mean the same by a part. It is a value of
the shared state (see `standing`), compact JSON; parts are counted from 1970 on:

    deletions    {"limits": "1000/0.5/100/600", "kinds": {"Job.batch": {"29445387": 12, "29445388": 7}}}

Whoever counts for other limits begins anew, and so do all with an open breaker: once it is released, what led to it
must not trip it again.
"""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

from shared.core.limits import BreakerLimits
from shared.usecases.standing import AHEAD_MAX, BREAKER, DELETIONS, Data, compact, read_json

PARTS = 60
"""Of a window: a deletion counts for up to one part longer than the window."""

KINDS_MAX = 100
"""That are shared, those with the most deletions: some 100 kB at the very most, of a ConfigMap's MiB."""

COUNT_MAX = 10**9
"""Of a kind in a part; more is no count."""

_Key = tuple[str, int]  # a kind, and a part


class Tally:
    """What is known of all, and what this process alone knows yet.

    Args:
        limits: For which it is counted.
    """

    def __init__(self, limits: BreakerLimits) -> None:
        window = max(1.0, limits.window.total_seconds())
        self._name = f"{limits.count}/{limits.share}/{limits.at_least}/{window:.0f}"
        self._seconds = window / PARTS
        self._known: Counter[_Key] = Counter()
        self._own: Counter[_Key] = Counter()
        self._sent: Counter[_Key] = Counter()
        self._totals: Counter[str] = Counter()
        self._part = 0

    def total(self, now: datetime) -> int:
        """Deletions of all kinds within the window."""
        self._move(now)
        return self._totals.total()

    def of(self, kind: str, now: datetime) -> int:
        """Deletions of a kind within the window."""
        self._move(now)
        return self._totals[kind]

    def count(self, kind: str, now: datetime) -> None:
        """One more deletion."""
        self._move(now)
        self._add((kind, self._part), 1)

    def take_back(self, kind: str, now: datetime) -> None:
        """One fewer, of the last that were counted."""
        self._move(now)
        all_keys = self._known.keys() | self._own.keys()
        counted = [key for key in all_keys if key[0] == kind and self._known[key] + self._own[key] > 0]
        if counted:
            self._add(max(counted), -1)

    @property
    def has_unwritten(self) -> bool:
        """See `shared.usecases.ledger.Shared`."""
        return any(self._own.values())

    def merge(self, data: Data, now: datetime) -> Data:
        """See `shared.usecases.ledger.Shared`."""
        self._move(now)
        self._sent = Counter(self._own)
        if data.get(BREAKER) or not self.has_unwritten:
            return data
        merged = self._parse(data, now)
        merged.update(self._sent)
        return {**data, DELETIONS: compact({"limits": self._name, "kinds": _by_kind(merged)})}

    def learn(self, data: Data, now: datetime, *, is_written: bool) -> None:
        """See `shared.usecases.ledger.Shared`."""
        self._known = self._parse(data, now)
        if data.get(BREAKER):
            self._own = Counter()
        elif is_written:
            self._own.subtract(self._sent)
            self._own = Counter({key: number for key, number in self._own.items() if number})
        self._move(now)
        self._sum()

    def _add(self, key: _Key, number: int) -> None:
        self._own[key] += number
        self._totals[key[0]] += number

    def _part_of(self, now: datetime) -> int:
        return math.floor(now.timestamp() / self._seconds)

    def _move(self, now: datetime) -> None:
        part = self._part_of(now)
        if part != self._part:
            self._part = part
            for counter in (self._known, self._own):
                for key in [key for key in counter if not self._counts(key[1], now)]:
                    del counter[key]
            self._sum()

    def _counts(self, part: int, now: datetime) -> bool:
        return self._part_of(now) - PARTS <= part <= self._part_of(now + AHEAD_MAX)

    def _sum(self) -> None:
        self._totals = Counter()
        for (kind, _), number in (*self._known.items(), *self._own.items()):
            self._totals[kind] += number

    def _parse(self, data: Data, now: datetime) -> Counter[_Key]:
        """What counts; never raises, since anybody may have edited it."""
        told = read_json(data.get(DELETIONS, ""))
        if not isinstance(told, dict) or told.get("limits") != self._name:
            return Counter()
        return Counter({key: number for key, number in _entries(told.get("kinds")) if self._counts(key[1], now)})


def _entries(kinds: Any) -> Iterator[tuple[_Key, int]]:
    for kind, parts in kinds.items() if isinstance(kinds, dict) else ():
        for part, number in parts.items() if isinstance(parts, dict) else ():
            if type(number) is int and 0 < number <= COUNT_MAX:
                with suppress(ValueError):
                    yield (kind, int(part)), number


def _by_kind(counter: Counter[_Key]) -> dict[str, dict[str, int]]:
    totals: Counter[str] = Counter()
    for (kind, _), number in counter.items():
        totals[kind] += number
    kinds: dict[str, dict[str, int]] = {kind: {} for kind, number in totals.most_common(KINDS_MAX) if number > 0}
    for (kind, part), number in sorted(counter.items()):
        if number > 0 and kind in kinds:
            kinds[kind][str(part)] = number
    return kinds
