"""Recent deletions by kind, of all processes of an installation.

They are counted in parts of the breaker's window. The wall clock numbers the parts from 1970 on, so a part has the same
number in all processes. The counts are a value of the shared state (see `state_schema`), compact JSON:

    deletions    {"limits": "1000/0.5/100/600", "after": "2026-01-02T03:04:05Z", "writes": ["5f0c91aa"],
                  "kinds": {"Job.batch": {"29445387": 12, "29445388": 7}}}

A process with other limits starts from zero. All processes start from zero after a trip: after the release, the
deletions that led to the trip must not trip the breaker again. `after` is the instant of the last trip. `writes` marks
the last writes: if a process got no answer to a write, it finds its mark there and does not count twice.

A process always counts its own deletions as well: another process may have other limits or a wrong clock, and a user
may delete the ConfigMap.
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
"""Parts of a window: a deletion counts for up to one part longer than the window."""

KINDS_MAX = 100
"""Kinds in the shared state, those with the most deletions: at most about 100 kB of a ConfigMap's MiB."""

COUNT_MAX = 10**9
"""Deletions of a kind in a part; a higher number is invalid."""

WRITES_MAX = 10
"""Marks of writes, of all processes: a write of unknown outcome is repeated after a second."""

AFTER_MAX = 40
"""Characters that are read of the instant, since a user may have edited it."""

_Key = tuple[str, int]  # a kind, and a part


class DeletionCounts:
    """The deletions of all processes, and those that only this process knows yet.

    Args:
        limits: The limits for which the deletions are counted.
    """

    def __init__(self, limits: BreakerLimits) -> None:
        window = limits.window.total_seconds()
        self._name = f"{limits.count}/{limits.share}/{limits.at_least}/{window:.0f}"
        self._seconds = window / PARTS
        self._known: Counter[_Key] = Counter()
        self._own: Counter[_Key] = Counter()  # by this process
        self._unwritten: Counter[_Key] = Counter()  # of these, those that the others cannot know
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
        """Count one more deletion."""
        self._move(now)
        self._add((kind, self._part), 1)

    def take_back(self, kind: str, now: datetime) -> None:
        """Take back the last deletion of a kind that was counted here."""
        self._move(now)
        counted = [key for key, number in self._own.items() if key[0] == kind and number > 0]
        if counted:
            self._add(max(counted), -1)

    @property
    def has_unwritten(self) -> bool:
        """See `shared.safeguards.shared_part.SharedPart`."""
        return any(self._unwritten.values())

    def merge(self, data: Data, now: datetime) -> Data:
        """See `shared.safeguards.shared_part.SharedPart`."""
        self._move(now)
        value = self._catch_up(data)
        if data.get(BREAKER) or not self.has_unwritten:
            return data
        self._sent, self._write = Counter(self._unwritten), secrets.token_hex(4)
        merged = self._parse(value, now)
        merged.update(self._sent)
        writes = [*_writes(value)[1 - WRITES_MAX :], self._write]
        written = {"limits": self._name, AFTER: self._after, "writes": writes, "kinds": _by_kind(merged)}
        return {**data, DELETIONS: compact(written)}

    def learn(self, data: Data, now: datetime, *, is_written: bool) -> None:  # noqa: ARG002 - `writes` shows it
        """See `shared.safeguards.shared_part.SharedPart`."""
        self._move(now)
        self._known = self._parse(self._catch_up(data), now)
        if data.get(BREAKER):
            self._reset()
        self._sum()

    def _catch_up(self, data: Data) -> dict[str, Any]:
        """Return the counts for the same limits; settle this process's last write, and start from zero after a trip."""
        value = read_json(data.get(DELETIONS, ""))
        counts = value if isinstance(value, dict) and value.get("limits") == self._name else {}
        if self._write in _writes(counts):
            for key in self._unwritten:  # some may have been dropped since
                self._unwritten[key] -= self._sent[key]
            self._write = ""
        after = get_text(value, AFTER)[:AFTER_MAX]
        if after != self._after and self._after is not None:
            self._reset()
        self._after = after
        return counts

    def _reset(self) -> None:
        self._own.clear()
        self._unwritten.clear()

    def _add(self, key: _Key, number: int) -> None:
        self._unwritten[key] += number
        self._own[key] += number
        self._totals[key[0]] += number

    def _part_of(self, now: datetime) -> int:
        return math.floor(now.timestamp() / self._seconds)

    def _move(self, now: datetime) -> None:
        part = self._part_of(now)
        if part != self._part:
            self._part = part
            for counter in (self._known, self._own, self._unwritten):
                for key in [key for key in counter if not self._counts(key[1], now)]:
                    del counter[key]
            self._sum()

    def _counts(self, part: int, now: datetime) -> bool:
        return self._part_of(now) - PARTS <= part <= self._part_of(now + AHEAD_MAX)

    def _sum(self) -> None:
        of_all, own = _totals(self._known), _totals(self._own)
        of_all.update(_totals(self._unwritten))
        self._totals = of_all | own

    def _parse(self, counts: dict[str, Any], now: datetime) -> Counter[_Key]:
        """The valid counts of the window; never raises, since a user may have edited the state."""
        return Counter({key: number for key, number in _entries(counts.get("kinds")) if self._counts(key[1], now)})


def _writes(counts: dict[str, Any]) -> list[str]:
    writes = counts.get("writes")
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
