"""How many objects of which kind were deleted lately, by all processes of an installation.

They are counted in parts of a window, by the clock on the wall, so that all mean the same by a part. It is a value of
the shared state (see `contents`), compact JSON; parts are counted from 1970 on:

    deletions    {"limits": "1000/0.5/100/600", "after": "2026-01-02T03:04:05Z", "writes": ["5f0c91aa"],
                  "kinds": {"Job.batch": {"29445387": 12, "29445388": 7}}}

Whoever counts for other limits begins anew, and so do all after a trip, the last of which was at `after`: once it is
released, what led to it must not trip it again. `writes` are marks of the last ones: who never heard what became of a
write finds it there, and does not count twice.

What a process deleted itself it knows, whatever stands there: others may count for other limits or by a wrong clock,
and anybody may take the ConfigMap away.
"""

import math
import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

from shared.core.objects import get_text
from shared.core.policy.limits import BreakerLimits
from shared.safeguards.state_schema import AFTER, AHEAD_MAX, BREAKER, DELETIONS, Data, compact, read_json

PARTS = 60
"""Of a window: a deletion counts for up to one part longer than the window."""

KINDS_MAX = 100
"""That are shared, those with the most deletions: some 100 kB at the very most, of a ConfigMap's MiB."""

COUNT_MAX = 10**9
"""Of a kind in a part; more is no count."""

WRITES_MAX = 10
"""By all processes, of which there is a mark: a write of unknown outcome is repeated after a second."""

AFTER_MAX = 40
"""Characters of an instant, whatever somebody wrote there."""

_Key = tuple[str, int]  # a kind, and a part


class DeletionCounts:
    """What is known of all, and what this process alone knows yet.

    Args:
        limits: For which it is counted.
    """

    def __init__(self, limits: BreakerLimits) -> None:
        window = limits.window.total_seconds()
        self._name = f"{limits.count}/{limits.share}/{limits.at_least}/{window:.0f}"
        self._seconds = window / PARTS
        self._known: Counter[_Key] = Counter()
        self._mine: Counter[_Key] = Counter()  # by this process
        self._unwritten: Counter[_Key] = Counter()  # of these, what the others cannot know
        self._sent: Counter[_Key] = Counter()
        self._write = ""
        self._after: str | None = None
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
        """One fewer, of the last that were counted here."""
        self._move(now)
        counted = [key for key, number in self._mine.items() if key[0] == kind and number > 0]
        if counted:
            self._add(max(counted), -1)

    @property
    def has_unwritten(self) -> bool:
        """See `shared.safeguards.shared_state.Shared`."""
        return any(self._unwritten.values())

    def merge(self, data: Data, now: datetime) -> Data:
        """See `shared.safeguards.shared_state.Shared`."""
        self._move(now)
        told = self._catch_up(data)
        if data.get(BREAKER) or not self.has_unwritten:
            return data
        self._sent, self._write = Counter(self._unwritten), secrets.token_hex(4)
        merged = self._parse(told, now)
        merged.update(self._sent)
        writes = [*_writes(told)[1 - WRITES_MAX :], self._write]
        value = {"limits": self._name, AFTER: self._after, "writes": writes, "kinds": _by_kind(merged)}
        return {**data, DELETIONS: compact(value)}

    def learn(self, data: Data, now: datetime, *, is_written: bool) -> None:  # noqa: ARG002 - the data say it
        """See `shared.safeguards.shared_state.Shared`."""
        self._move(now)
        self._known = self._parse(self._catch_up(data), now)
        if data.get(BREAKER):
            self._begin_anew()
        self._sum()

    def _catch_up(self, data: Data) -> dict[str, Any]:
        """What was written for the same limits; what became of our last write, and whether it tripped since."""
        value = read_json(data.get(DELETIONS, ""))
        told = value if isinstance(value, dict) and value.get("limits") == self._name else {}
        if self._write in _writes(told):
            for key in self._unwritten:  # some may have been dropped since
                self._unwritten[key] -= self._sent[key]
            self._write = ""
        after = get_text(value, AFTER)[:AFTER_MAX]
        if after != self._after and self._after is not None:
            self._begin_anew()
        self._after = after
        return told

    def _begin_anew(self) -> None:
        self._mine.clear()
        self._unwritten.clear()

    def _add(self, key: _Key, number: int) -> None:
        self._unwritten[key] += number
        self._mine[key] += number
        self._totals[key[0]] += number

    def _part_of(self, now: datetime) -> int:
        return math.floor(now.timestamp() / self._seconds)

    def _move(self, now: datetime) -> None:
        part = self._part_of(now)
        if part != self._part:
            self._part = part
            for counter in (self._known, self._mine, self._unwritten):
                for key in [key for key in counter if not self._counts(key[1], now)]:
                    del counter[key]
            self._sum()

    def _counts(self, part: int, now: datetime) -> bool:
        return self._part_of(now) - PARTS <= part <= self._part_of(now + AHEAD_MAX)

    def _sum(self) -> None:
        of_all, mine = _totals(self._known), _totals(self._mine)
        of_all.update(_totals(self._unwritten))
        self._totals = of_all | mine

    def _parse(self, told: dict[str, Any], now: datetime) -> Counter[_Key]:
        """What counts; never raises, since anybody may have edited it."""
        return Counter({key: number for key, number in _entries(told.get("kinds")) if self._counts(key[1], now)})


def _writes(told: dict[str, Any]) -> list[str]:
    writes = told.get("writes")
    return [mark for mark in writes if isinstance(mark, str)] if isinstance(writes, list) else []


def _entries(kinds: Any) -> Iterator[tuple[_Key, int]]:
    for kind, parts in kinds.items() if isinstance(kinds, dict) else ():
        for part, number in parts.items() if isinstance(parts, dict) else ():
            if type(number) is int and 0 < number <= COUNT_MAX:
                with suppress(ValueError):
                    yield (kind, int(part)), number


def _totals(counter: Counter[_Key]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for (kind, _), number in counter.items():
        totals[kind] += number
    return totals


def _by_kind(counter: Counter[_Key]) -> dict[str, dict[str, int]]:
    kinds: dict[str, dict[str, int]] = {
        kind: {} for kind, number in _totals(counter).most_common(KINDS_MAX) if number > 0
    }
    for (kind, part), number in sorted(counter.items()):
        if number > 0 and kind in kinds:
            kinds[kind][str(part)] = number
    return kinds
