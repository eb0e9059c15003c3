"""Recent deletions by kind, of all processes of an installation.

They are counted in parts of the breaker's window. The wall clock numbers the parts from 1970 on, so a part has the same
number in all processes. Each process writes its own key of the shared state (see `state_schema`), compact JSON:

    deletions.9a31d07e.5f0c91aa    {"until": 1767323645, "kinds": {"Job.batch": {"29445387": 12, "29445388": 7}}}

The name has a checksum of the limits and an id of the process. The value has all deletions of the process within the
window, so a write that is repeated changes nothing. `until` is the Unix time at which no deletion of the value counts
any more. All processes with the same limits count the sum of their keys. A process with other limits starts from zero.

The next process that writes removes each key without a deletion in its window. If more than `KEYS_MAX` keys are left,
it adds the oldest to the key `deletions.9a31d07e.ended` and removes them in the same write, so no deletion is lost or
counted twice. If the keys of other limits exceed `OTHER_LIMITS_LENGTH_MAX`, the oldest of them are dropped. So all keys
have at most 800 kB of a ConfigMap's MiB: both bounds, and 200 kB each for `ended` and for the process that writes.

A trip removes all keys: after the release, the deletions that led to the trip must not trip the breaker again. A
process that did not see the trip finds another `last-trip` and starts from zero, too.

A process always counts its own deletions as well: another process may have other limits or a wrong clock, and a user
may edit or delete the ConfigMap.
"""

import math
import secrets
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import accumulate
from typing import Any

from shared.core.policy.limits import BreakerLimits
from shared.safeguards.state_schema import BREAKER, DELETIONS, LAST_TRIP, PROCESS_AHEAD_MAX, Data, compact, read_json

PARTS = 60
"""Parts of a window: a deletion counts for up to one part longer than the window."""

COUNTED_KINDS_MAX = 100
"""Kinds of a key, those with the most deletions. The deletions of the others are written as those of `OTHER_KINDS`."""

OTHER_KINDS = "*"
"""No kind has this name."""

PART_COUNT_MAX = 10**9
"""Deletions of a kind in a part; a higher number is invalid."""

KEYS_MAX = 100
"""Processes with their own key, among those with the same limits."""

LENGTH_MAX = 100_000
"""Characters of the keys and values with the same limits."""

OTHER_LIMITS_LENGTH_MAX = 300_000
"""Characters of all keys and values of other limits."""

_Part = tuple[str, int]  # a kind, and the number of a part


class DeletionCounts:
    """The deletions of all processes, of which this process writes its own.

    Args:
        limits: The limits for which the deletions are counted.
    """

    def __init__(self, limits: BreakerLimits) -> None:
        window = limits.window.total_seconds()
        name = f"{limits.count}/{limits.share}/{limits.at_least}/{window}"
        self._prefix = f"{DELETIONS}{zlib.crc32(name.encode()):08x}."
        self._key, self._ended_key = f"{self._prefix}{secrets.token_hex(4)}", f"{self._prefix}ended"
        self._seconds = window / PARTS
        self._own: Counter[_Part] = Counter()  # the value of this process's key
        self._written: Counter[_Part] = Counter()  # the same, as it was last read
        self._moved: Counter[_Part] = Counter()  # deletions of this process that another process moved to `ended`
        self._others: Counter[_Part] = Counter()
        self._last_trip: str | None = None
        self._totals: Counter[str] = Counter()
        self._part = 0

    def total(self, now: datetime) -> int:
        """Return the deletions of all kinds within the window."""
        self._expire(now)
        return self._totals.total()

    def of(self, kind: str, now: datetime) -> int:
        """Return the deletions of a kind within the window."""
        self._expire(now)
        return self._totals[kind]

    def count(self, kind: str, now: datetime) -> None:
        """Count one more deletion."""
        self._expire(now)
        self._add((kind, self._part), 1)

    def take_back(self, kind: str, now: datetime) -> None:
        """Take back the last deletion of a kind that was counted here."""
        self._expire(now)
        counted = [part for part, number in self._own.items() if part[0] == kind and number > 0]
        if counted:
            self._add(max(counted), -1)

    @property
    def has_unwritten(self) -> bool:
        """See `shared.safeguards.state_schema.StatePart`."""
        return self._own != self._written

    def merge(self, data: Data, now: datetime) -> Data:
        """See `shared.safeguards.state_schema.StatePart`."""
        self._catch_up(data, now)
        if data.get(BREAKER) or not self.has_unwritten:
            return data
        others = self._read_others(data, now)
        ended = others.pop(self._ended_key, Counter())
        newest_first = sorted(others, key=lambda name: max(part for _, part in others[name]), reverse=True)
        kept = _fit(newest_first[:KEYS_MAX], data, LENGTH_MAX)
        for name in newest_first[len(kept) :]:
            ended.update(others[name])
        kept += _fit(self._list_other_limits(data, now), data, OTHER_LIMITS_LENGTH_MAX)
        kept += [name for name in data if not name.startswith(DELETIONS)]
        if not self._own.total():  # all were taken back: this write removes the key, and no other process moved it
            self._written.clear()
        written = {self._key: self._own, self._ended_key: ended}
        values = {name: self._format(+counts) for name, counts in written.items() if counts.total()}
        return {name: data[name] for name in kept} | values

    def learn(self, data: Data, now: datetime, *, is_written: bool) -> None:  # noqa: ARG002 - the key shows it
        """See `shared.safeguards.state_schema.StatePart`."""
        self._catch_up(data, now)
        if data.get(BREAKER):
            self._reset()
        self._others = Counter()
        for counts in self._read_others(data, now).values():
            self._others.update(counts)
        self._sum()

    def _catch_up(self, data: Data, now: datetime) -> None:
        """Start from zero after a trip, and find out what the data have of this process."""
        self._expire(now)
        last_trip = data.get(LAST_TRIP, "")
        if self._last_trip is None:
            self._last_trip = last_trip
        elif last_trip and last_trip != self._last_trip:
            self._last_trip = last_trip
            self._reset()
        if self._key not in data and self._ended_key in data:
            self._moved.update(self._written)
            self._own -= self._written
        self._written = self._parse(data.get(self._key, ""), now)

    def _reset(self) -> None:
        for counter in (self._own, self._written, self._moved):
            counter.clear()

    def _add(self, part: _Part, number: int) -> None:
        self._own[part] += number
        self._totals[part[0]] += number

    def _part_of(self, now: datetime) -> int:
        return math.floor(now.timestamp() / self._seconds)

    def _expire(self, now: datetime) -> None:
        """Forget the deletions before the window."""
        part = self._part_of(now)
        if part != self._part:
            self._part = part
            for counter in (self._own, self._written, self._moved, self._others):
                for key in [key for key in counter if not self._is_counted(key[1], now)]:
                    del counter[key]
            self._sum()

    def _is_counted(self, part: int, now: datetime) -> bool:
        return self._part_of(now) - PARTS <= part <= self._part_of(now + PROCESS_AHEAD_MAX)

    def _sum(self) -> None:
        self._totals = (_by_kind(self._others) | _by_kind(self._moved)) + _by_kind(self._own)

    def _read_others(self, data: Data, now: datetime) -> dict[str, Counter[_Part]]:
        """Return the counts of the other processes with the same limits, by key; those within the window."""
        names = [name for name in data if name.startswith(self._prefix) and name != self._key]
        parsed = {name: self._parse(data[name], now) for name in names}
        return {name: counts for name, counts in parsed.items() if counts}

    def _list_other_limits(self, data: Data, now: datetime) -> list[str]:
        """Return the keys of processes with other limits that are still counted, the newest first."""
        names = [name for name in data if name.startswith(DELETIONS) and not name.startswith(self._prefix)]
        ends = {name: _get(data[name], "until") for name in names}
        counted = {name: end for name, end in ends.items() if isinstance(end, int) and end > now.timestamp()}
        return sorted(counted, key=counted.__getitem__, reverse=True)

    def _parse(self, text: str, now: datetime) -> Counter[_Part]:
        """Return the valid counts within the window; never raise, since a user may have edited the state."""
        return Counter(
            {part: number for part, number in _entries(_get(text, "kinds")) if self._is_counted(part[1], now)}
        )

    def _format(self, counts: Counter[_Part]) -> str:
        newest = max(part for _, part in counts)
        most = {kind for kind, _ in _by_kind(counts).most_common(COUNTED_KINDS_MAX)}
        kinds: dict[str, Counter[str]] = {}
        for (kind, part), number in sorted(counts.items()):
            parts = kinds.setdefault(kind if kind in most else OTHER_KINDS, Counter())
            parts[str(part)] = min(parts[str(part)] + number, PART_COUNT_MAX)
        return compact({"until": math.ceil((newest + PARTS + 1) * self._seconds), "kinds": kinds})


def _fit(names: list[str], data: Data, length_max: int) -> list[str]:
    """Return the first of the keys, as many as fit."""
    lengths = accumulate(len(name) + len(data[name]) for name in names)
    return [name for name, length in zip(names, lengths, strict=True) if length <= length_max]


def _get(text: str, field: str) -> Any:
    value = read_json(text)
    return value.get(field) if isinstance(value, dict) else None


def _items(value: Any) -> Iterable[tuple[str, Any]]:
    return value.items() if isinstance(value, dict) else ()


def _entries(kinds: Any) -> Iterator[tuple[_Part, int]]:
    for kind, parts in _items(kinds):
        for part, number in _items(parts):
            if type(number) is int and 0 < number <= PART_COUNT_MAX:
                with suppress(ValueError):
                    yield (kind, int(part)), number


def _by_kind(counts: Mapping[_Part, int]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for (kind, _), number in counts.items():
        totals[kind] += number
    return totals
