"""The top of the hour at 10^7 timers, in virtual time: `python -m tests.simulation.top_of_hour`.

All CronJobs end at once. Their objects are due at once too, and the API server deletes only so many a second.
The model counts timers by second and share instead of holding each: within a share the engine takes the oldest first,
so a count for each second is all there is to know. No permit is idle while a timer waits, so the length of the queue is
exact. The shares take turns. A test compares the lateness, on few timers, with a model that holds each timer and asks
the real `Permits`.
"""

import heapq
import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from shared.adapters.timers.delivery import LIMITS, Permits, Share

HOUR_SECONDS = 3_600
NAMESPACES = 50
KINDS = {"batch/v1 Job": 0.6, "v1 Pod": 0.3, "tekton.dev/v1 PipelineRun": 0.1}
FINISH_SECONDS = 60.0
"""The mean time in which the Jobs of one schedule finish."""

SPREAD_SECONDS = 900
"""Within this time, all of a schedule have finished."""


@dataclass(frozen=True)
class Load:
    """When the timers are due.

    Attributes:
        timers: How many, over all hours.
        hours: Over how many hours.
        on_the_hour: The part whose schedule is minute 0.
        on_quarters: The part whose schedule is minute 15, 30 or 45; the rest is spread over the hour.
        ttl_spread_seconds: By how much the TTLs of the objects differ: each due time is spread over it.
    """

    timers: int = 10_000_000
    hours: int = 4
    on_the_hour: float = 0.4
    on_quarters: float = 0.2
    ttl_spread_seconds: int = 0

    def weights(self) -> list[float]:
        """The part of an hour's timers in each of its seconds; what the TTLs move past its end is at its start."""
        weights = [(1 - self.on_the_hour - self.on_quarters) / HOUR_SECONDS] * HOUR_SECONDS
        finish = [math.exp(-second / FINISH_SECONDS) for second in range(SPREAD_SECONDS)]
        for minute, part in ((0, self.on_the_hour), *((minute, self.on_quarters / 3) for minute in (15, 30, 45))):
            for second, weight in enumerate(finish):
                weights[60 * minute + second] += part * weight / sum(finish)
        if not self.ttl_spread_seconds:
            return weights
        sums = [0.0, *accumulate(weights + weights)]
        width, end = self.ttl_spread_seconds, 2 * HOUR_SECONDS
        window = range(HOUR_SECONDS + 1, end + 1)
        return [(sums[last] - sums[last - width]) / width for last in window]

    def due(self) -> Iterator[dict[Share, int]]:
        """The timers of each second by share; their sum is `timers`."""
        parts = [
            ((kind, f"ns-{number}"), share / (1 + number) / _harmonic(NAMESPACES))
            for kind, share in KINDS.items()
            for number in range(NAMESPACES)
        ]
        owed = [0.0] * len(parts)
        weights, last = self.weights(), self.hours * HOUR_SECONDS - 1
        for second in range(last + 1):
            expected = self.timers / self.hours * weights[second % HOUR_SECONDS]
            found = {}
            for index, (share, part) in enumerate(parts):
                owed[index] += expected * part
                if whole := int(owed[index] + 1e-6):
                    found[share] = whole
                    owed[index] -= whole
            if second == last:  # what rounding left over
                rest = round(sum(owed))
                for index in sorted(range(len(owed)), key=owed.__getitem__)[len(owed) - rest :]:
                    found[parts[index][0]] = found.get(parts[index][0], 0) + 1
            yield found


def _harmonic(count: int) -> float:
    return sum(1 / number for number in range(1, count + 1))


@dataclass(frozen=True)
class Outcome:
    """What became of the timers.

    Attributes:
        timers: All that were delivered.
        late: How many were late by how many seconds.
        queue_max: The longest queue, and in which second.
        clear: How many seconds after the last hour began the queue was empty.
        peaks: How long after each top of the hour the queue was empty; None if the next hour began before.
    """

    timers: int
    late: Counter[int]
    queue_max: tuple[int, int]
    clear: int
    peaks: tuple[int | None, ...]

    def percentile(self, percent: float) -> int:
        """Seconds of lateness that so many percent do not exceed."""
        wanted, seen = self.timers * percent / 100, 0
        for seconds in sorted(self.late):
            seen += self.late[seconds]
            if seen >= wanted:
                return seconds
        raise ValueError("no timers")


class Queue:
    """The due timers of all shares, counted by second."""

    def __init__(self) -> None:
        self.length = 0
        self._waiting: dict[Share, deque[list[int]]] = {}

    def add(self, second: int, due: dict[Share, int]) -> None:
        for share, count in due.items():
            self._waiting.setdefault(share, deque()).append([second, count])
            self.length += count

    def serve(self, second: int, capacity: int, late: Counter[int]) -> None:
        """Deliver in turns, as many of each share as of the others, until the capacity or the queue is used up."""
        left = min(capacity, self.length)
        self.length -= left
        while left:
            turn = max(1, left // len(self._waiting))
            for share in list(self._waiting):
                taken = self._take(share, min(turn, left), second, late)
                left -= taken
                if not left:
                    break

    def _take(self, share: Share, wanted: int, second: int, late: Counter[int]) -> int:
        """Deliver the oldest of a share, which then goes to the end of the turns."""
        buckets, taken = self._waiting.pop(share), 0
        while buckets and taken < wanted:
            first = buckets[0]
            count = min(first[1], wanted - taken)
            late[second - first[0]] += count
            first[1] -= count
            taken += count
            if not first[1]:
                buckets.popleft()
        if buckets:
            self._waiting[share] = buckets
        return taken


def simulate(due: Iterable[dict[Share, int]], per_second: int) -> Outcome:
    """Deliver so many a second; the queue is empty between hours or it is not."""
    queue, late, timers = Queue(), Counter[int](), 0
    longest, empty_at, second = (0, 0), list[int](), 0
    for second, arrived in enumerate(due):
        timers += sum(arrived.values())
        queue.add(second, arrived)
        longest = max(longest, (queue.length, second))
        queue.serve(second, per_second, late)
        if not queue.length:
            empty_at.append(second)
    last = second
    while queue.length:
        second += 1
        queue.serve(second, per_second, late)
    hours = range(last // HOUR_SECONDS + 1)
    empty_at.append(second)
    peaks = tuple(_first_empty(empty_at, hour * HOUR_SECONDS) for hour in hours)
    return Outcome(timers, late, longest, second - last // HOUR_SECONDS * HOUR_SECONDS, peaks)


def _first_empty(empty_at: Sequence[int], start: int) -> int | None:
    """How long after the start the queue was empty, if that was within the hour; its first minutes fill it."""
    after = start + SPREAD_SECONDS // 3
    found = next((second - start for second in empty_at if second >= after), None)
    return found if found is not None and found < HOUR_SECONDS else None


def simulate_each(due: Iterable[dict[Share, int]], per_second: int) -> Counter[int]:
    """The same with each timer held, the real `Permits`, and an API server that answers one after the other."""
    permits, late = Permits(LIMITS.in_flight), Counter[int]()
    ready: dict[Share, deque[int]] = {}
    ends: list[tuple[float, int, Share]] = []
    server_free, number = 0.0, 0
    seconds = enumerate(due)
    arrival = next(seconds, None)
    while arrival is not None or ends:
        if arrival is not None and (not ends or arrival[0] <= ends[0][0]):
            now, (second, found) = float(arrival[0]), arrival
            for share, count in found.items():
                ready.setdefault(share, deque()).extend([second] * count)
            arrival = next(seconds, None)
        else:
            now, _, share = heapq.heappop(ends)
            permits.give(share, failed=False)
        while (taken := next((one for one in ready if permits.may_take(one)), None)) is not None:
            waiting = ready.pop(taken)
            permits.take(taken)
            server_free, number = max(server_free, now) + 1 / per_second, number + 1
            late[int(server_free - waiting.popleft())] += 1
            heapq.heappush(ends, (server_free, number, taken))
            if waiting:
                ready[taken] = waiting
    return late


ROWS = (
    ("GET and DELETE: 528 a second", 528, Load()),
    ("DELETE only: 850 a second", 850, Load()),
    ("850 a second, due times spread over 45 minutes", 850, Load(ttl_spread_seconds=2_700)),
    ("an API server without a limit, `timers` over HTTP: 2,270 a second", 2_270, Load()),
)
"""What limits the deletions, by the measurements that the page names."""

HEADER = "| limit | longest queue | empty again, first hour | last hour | late p50 | late p99 |"


def table() -> str:
    """The table of the page about scale."""
    lines = [HEADER, "| --- | --- | --- | --- | --- | --- |"]
    for title, per_second, load in ROWS:
        found = simulate(load.due(), per_second)
        first, last = found.peaks[0], found.peaks[-1] or found.clear
        cells = (f"{found.queue_max[0]:,}", "never" if first is None else _minutes(first), _minutes(last))
        late = (_minutes(found.percentile(50)), _minutes(found.percentile(99)))
        lines.append(f"| {' | '.join((title, *cells, *late))} |")
    return "\n".join(lines)


def _minutes(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{seconds / 60:.0f} min"


if __name__ == "__main__":
    print(table())
