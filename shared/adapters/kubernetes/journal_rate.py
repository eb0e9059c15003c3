"""How many Events about single objects the journal writes; what exceeds it is summed up.

Each namespace, kind and action has a token bucket, so that one busy namespace leaves room for the others. A bucket of
the process bounds them all, because etcd keeps each Event for an hour. Refusals have a bucket of the process of their
own: they leave room for what was done, even if a missing right refuses all objects of a cluster.

Reports of decisions have other buckets, too: any user who may create objects can cause as many reports. A bucket of
theirs is for one namespace and reason, so that more kinds give no more Events.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from shared.core.policy.limits import Rate
from shared.safeguards.budget import Bucket


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

    def events_max(self, seconds: float) -> float:
        """Return the maximum number of Events that a process writes in some time, in seconds."""
        of_objects = [self.of_process, self.of_process, self.of_refusals]
        singles = sum(one.burst + one.per_second * seconds for one in of_objects)
        return singles + self.sums_max * (seconds // self.sum_seconds + 1)


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


class ReportMemory:
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
