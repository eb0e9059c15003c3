"""The journal in Kubernetes Events, written in the background, so that no deletion waits for it; and who fills it.

`JournaledTelemetry` enters deletions and refusals, and `ReportingTelemetry` the reports of decisions.

An entry gets an Event of its own while the rate allows it. Further entries of a minute are summed up: one Event for
each namespace, kind and source. So each entry is recorded, counted or dropped, and the telemetry counts which.

Each namespace, kind and action has a token bucket, so that one busy namespace leaves room for the others. A bucket of
the process bounds them all, because etcd keeps each Event for an hour. Refusals have a bucket of the process of their
own: they leave room for what was done, even if a missing right refuses all objects of a cluster.

Reports of decisions have other buckets, too: any user who may create objects can cause as many reports. A bucket of
theirs is for one namespace and reason, so that more kinds give no more Events.
"""

import asyncio
import socket
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from shared.adapters.kubernetes.journal_events import (
    OTHER_SOURCES,
    Sum,
    SumKey,
    event_of,
    event_of_sum,
    home_of,
    key_of,
)
from shared.core.policy.limits import Rate
from shared.core.values.timing import backoff_seconds
from shared.errors import TryLaterError, TtlError
from shared.messages import ObjectArchived, ObjectDeleted, ObjectStopped
from shared.ports import (
    Cluster,
    EventLevel,
    Journal,
    JournalAction,
    JournalEntry,
    JournalResult,
    Refusal,
    Report,
    Telemetry,
)
from shared.safeguards.budget import Bucket
from shared.usecases.reports import (
    entry_of_archive,
    entry_of_deletion,
    entry_of_refusal,
    entry_of_report,
    entry_of_stop,
)

JOURNAL_SECONDS_MAX = 3.0
"""How long the end of a process waits for the Events that are not written yet; the rest is dropped."""

_ATTEMPTS_MAX = 5
"""How often an Event is sent, if the API server is busy or away."""

_WRITE_SECONDS_MAX = 5.0
"""Timeout of one attempt."""

_PROBLEM_SECONDS = 60.0
"""The pause between two log lines about dropped entries."""

_AT_ONCE_AT_END = 8
"""Events that are written at the same time when the process ends; before that it is one at a time."""


@dataclass(frozen=True, slots=True)
class JournalLimits:
    """The limits of the Events of one process.

    Attributes:
        of_kind: The rate of Events about single objects for one namespace, kind and action; of reports for one
            namespace and reason.
        of_process: The rate of all Events about single objects, without refusals; reports have a second one.
        of_refusals: The rate of all Events about single refusals.
        sum_seconds: How long entries are summed up.
        sums_max: Maximum number of sums in that time; further entries are dropped.
        sums_of_namespace_max: Sums of a namespace from which on one sum counts all its further sources, since users
            choose the names of some sources.
        waiting_max: Maximum number of Events about single objects that wait to be written.
        buckets_max: Maximum number of buckets, and of those of reports; the least recently used is removed.
        reports_max: Maximum number of reports that are remembered.
        report_seconds: How long a report is not written again: an API server keeps an Event for an hour by default.
    """

    of_kind: Rate = field(default_factory=lambda: Rate(per_second=0.1, burst=20))
    of_process: Rate = field(default_factory=lambda: Rate(per_second=5, burst=200))
    of_refusals: Rate = field(default_factory=lambda: Rate(per_second=1, burst=50))
    sum_seconds: float = 60.0
    sums_max: int = 500
    sums_of_namespace_max: int = 20
    waiting_max: int = 500
    buckets_max: int = 1_000
    reports_max: int = 10_000
    report_seconds: float = 3_600.0


class JournalRate:
    """Says which entries of one sort get an Event of their own.

    Args:
        limits: The limits.
        of_process: The rate of all of them.
        now: The buckets are full at this instant, in seconds of a clock that does not jump.
    """

    def __init__(self, limits: JournalLimits, of_process: Rate, now: float) -> None:
        self._limits = limits
        self._of_process = Bucket(of_process, now)
        self._buckets: OrderedDict[Hashable, Bucket] = OrderedDict()

    def take(self, of: Hashable, now: float) -> bool:
        """Take a token for an entry; False if its bucket, or that of the process, is empty.

        Args:
            of: The namespace, the kind and the action, or what else a bucket is for.
            now: The instant, as in the constructor.
        """
        bucket = self._buckets.get(of) or Bucket(self._limits.of_kind, now)
        self._buckets[of] = bucket
        self._buckets.move_to_end(of)
        if len(self._buckets) > self._limits.buckets_max:
            self._buckets.popitem(last=False)
        if not (bucket.has_for_newcomers(now) and self._of_process.has_for_newcomers(now)):
            return False
        bucket.take(now)
        self._of_process.take(now)
        return True


class _ReportMemory:
    """The reports that have an Event: each sweep finds the same again, and no Event is written twice.

    A dict, not a cache of `cachetools`: `schedule` and `timers` make a journal too, and start without that library.

    Args:
        limits: The limits.
    """

    def __init__(self, limits: JournalLimits) -> None:
        self._limits = limits
        self._until: dict[str, float] = {}

    def has(self, report_id: str, now: float) -> bool:
        """Return whether a report has an Event that the API server still keeps."""
        return now < self._until.get(report_id, float("-inf"))

    def add(self, report_id: str, now: float) -> None:
        """Remember a report; the oldest is forgotten if there are too many."""
        self._until.pop(report_id, None)
        self._until[report_id] = now + self._limits.report_seconds
        if len(self._until) > self._limits.reports_max:
            del self._until[next(iter(self._until))]

    def forget(self, report_id: str) -> None:
        """Forget a report whose Event could not be written, so that the next sweep tries it again."""
        self._until.pop(report_id, None)


@dataclass(slots=True)
class _Waiting:
    """An Event that is not written yet.

    Attributes:
        event: The Event.
        count: How many entries it is about.
        result: What becomes of them when it is written.
        report_id: The report that it is about; empty for another entry, and for a sum.
    """

    event: dict[str, Any]
    count: int
    result: JournalResult
    report_id: str = ""


class EventJournal:
    """`shared.ports.Journal` in Kubernetes Events.

    Args:
        connected: Returns the cluster.
        telemetry: Counts what becomes of the entries, and reports why entries are dropped.
        limits: How many Events are written.
        monotonic: A clock that does not jump, in seconds.
        instance: The name of this process.
    """

    def __init__(
        self,
        connected: Callable[[], Awaitable[Cluster]],
        telemetry: Telemetry,
        limits: JournalLimits | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        instance: str = "",
    ) -> None:
        self._connected, self._telemetry, self._monotonic = connected, telemetry, monotonic
        self._limits = limits = limits or JournalLimits()
        now = monotonic()
        self._rate = JournalRate(limits, limits.of_process, now)
        self._refusal_rate = JournalRate(limits, limits.of_refusals, now)
        self._report_rate = JournalRate(limits, limits.of_process, now)
        self._reports = _ReportMemory(limits)
        self._instance = instance or socket.gethostname()
        self._waiting: deque[_Waiting] = deque()
        self._sums: dict[SumKey, Sum] = {}
        self._sums_of: Counter[str] = Counter()
        self._number = 0
        self._sum_at = self._reported_at = float("-inf")
        self._wake, self._ending = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def note(self, entry: JournalEntry) -> None:
        """See `shared.ports.Journal`."""
        now = self._monotonic()
        if entry.action is JournalAction.REPORT and self._reports.has(entry.message.id, now):
            return
        if len(self._waiting) < self._limits.waiting_max and self._take(entry, now):
            self._queue(entry, now)
        else:
            self._add(entry, now)
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work(), name="journal")

    def _take(self, entry: JournalEntry, now: float) -> bool:
        """Take a token for an entry."""
        ref = entry.ref
        if entry.action is JournalAction.REPORT:
            return self._report_rate.take((home_of(ref), entry.reason), now)
        rate = self._refusal_rate if entry.action is JournalAction.REFUSE else self._rate
        return rate.take((ref.namespace, ref.group, ref.kind, entry.action), now)

    def _queue(self, entry: JournalEntry, now: float) -> None:
        try:
            event = event_of(entry, self._instance)
        except ValueError as error:  # text that JSON cannot have
            self._drop(1, str(error))
            return
        report_id = entry.message.id if entry.action is JournalAction.REPORT else ""
        if report_id:
            self._reports.add(report_id, now)
        self._waiting.append(_Waiting(event, 1, JournalResult.RECORDED, report_id))

    def _add(self, entry: JournalEntry, now: float) -> None:
        """Count an entry in its sum; drop it if there are too many sums."""
        if not self._sums:
            self._sum_at = now + self._limits.sum_seconds
            self._sums_of.clear()
        key = key_of(entry)
        if key not in self._sums and self._sums_of[key.namespace] >= self._limits.sums_of_namespace_max:
            key = key._replace(source=OTHER_SOURCES)
        if key in self._sums:
            self._sums[key].add(entry)
        elif len(self._sums) < self._limits.sums_max:
            self._sums[key] = Sum(1, entry.at, entry.at, entry.message.id)
            self._sums_of[key.namespace] += 1
        else:
            self._drop(1, "too many sums in one minute")

    async def flush(self, seconds: float = JOURNAL_SECONDS_MAX) -> None:
        """Write all that waits, and the sums of the minute that is not over; call it when the process ends.

        Args:
            seconds: What is not written after this time is dropped.
        """
        self._ending.set()
        self._wake.set()
        if self._task is not None and not self._task.done():
            await asyncio.wait({self._task}, timeout=seconds)
            self._task.cancel()
        left = sum(one.count for one in self._waiting) + sum(one.count for one in self._sums.values())
        self._waiting.clear()
        self._sums.clear()
        if left:
            self._drop(left, "the process ended")

    async def _work(self) -> None:
        """Write until nothing waits any more."""
        while self._waiting or self._sums:
            self._wake.clear()
            if self._sums and (self._ending.is_set() or self._monotonic() >= self._sum_at):
                self._sum_up()
            elif self._waiting:
                await self._write_next()
            else:
                await _pause(self._sum_at - self._monotonic(), self._wake)

    def _sum_up(self) -> None:
        """Make an Event of each sum; if the API server has been away for long, too many Events wait already."""
        room = self._limits.waiting_max + self._limits.sums_max - len(self._waiting)
        for number, (key, total) in enumerate(self._sums.items()):
            if number < room:
                self._number += 1
                event = event_of_sum(key, total, self._instance, number=self._number)
                self._waiting.append(_Waiting(event, total.count, JournalResult.COUNTED))
            else:
                self._drop(total.count, "too many Events wait to be written")
        self._sums.clear()

    async def _write_next(self) -> None:
        """Write the next Events, and take them from the queue; only then do they count."""
        at_once = _AT_ONCE_AT_END if self._ending.is_set() else 1
        batch = [self._waiting[index] for index in range(min(at_once, len(self._waiting)))]
        problems = await asyncio.gather(*map(self._write, batch))
        for one, problem in zip(batch, problems, strict=True):
            self._waiting.popleft()
            if problem:
                self._reports.forget(one.report_id)
                self._drop(one.count, problem)
            else:
                self._telemetry.journaled(one.result, one.count)

    async def _write(self, one: _Waiting) -> str:
        """Write one Event; return why it could not be written."""
        problem = ""
        for attempt in range(_ATTEMPTS_MAX):
            try:
                async with asyncio.timeout(_WRITE_SECONDS_MAX):
                    await (await self._connected()).create_event(one.event)
            except TryLaterError as error:
                problem, pause = str(error), backoff_seconds(attempt, least=error.retry_after_seconds)
            except TimeoutError:
                problem, pause = f"no answer within {_WRITE_SECONDS_MAX:g} s", backoff_seconds(attempt)
            except TtlError as error:
                return str(error)
            else:
                return ""
            if self._ending.is_set():
                return problem
            await _pause(pause, self._ending)
        return problem

    def _drop(self, count: int, problem: str) -> None:
        """Count dropped entries, and report why: at most once a minute, since a log line a deletion says it too."""
        self._telemetry.journaled(JournalResult.DROPPED, count)
        now = self._monotonic()
        if now - self._reported_at >= _PROBLEM_SECONDS:
            self._reported_at = now
            self._telemetry.problem("entries of the journal are dropped", entries=count, error=problem)


async def _pause(seconds: float, unless: asyncio.Event) -> None:
    """Wait, or until an event is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(max(seconds, 0.0)):
            await unless.wait()


class ReportingTelemetry:
    """Passes each call on, and gives the reports of decisions to a journal.

    Args:
        telemetry: The telemetry that receives each call.
        journal: The journal.
    """

    def __init__(self, telemetry: Telemetry, journal: Journal) -> None:
        self._next, self._journal = telemetry, journal

    def __getattr__(self, name: str) -> Any:
        """Pass on everything that the journal does not record."""
        return getattr(self._next, name)

    def reported(self, report: Report, *, by: str, level: EventLevel = "Warning") -> None:
        """See `shared.ports.Telemetry`."""
        self._next.reported(report, by=by, level=level)
        self._journal.note(entry_of_report(report, by=by, level=level))


class JournaledTelemetry(ReportingTelemetry):
    """Passes each call on, and gives the reports, and what was done to an object or refused, to a journal."""

    def deleted(self, deleted: ObjectDeleted, *, by: str, missed: bool = False) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.deleted(deleted, by=by, missed=missed)
        self._journal.note(entry_of_deletion(deleted, by=by))

    def object_stopped(self, stopped: ObjectStopped, *, by: str, detail: str = "") -> None:
        """See `shared.ports.Telemetry`."""
        self._next.object_stopped(stopped, by=by, detail=detail)
        self._journal.note(entry_of_stop(stopped, detail, by=by))

    def archived(self, archived: ObjectArchived, *, size: int, by: str) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.archived(archived, size=size, by=by)
        self._journal.note(entry_of_archive(archived, by=by))

    def refused(self, refusal: Refusal, *, by: str) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.refused(refusal, by=by)
        self._journal.note(entry_of_refusal(refusal, by=by))
