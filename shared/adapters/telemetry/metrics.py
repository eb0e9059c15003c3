"""Prometheus metrics, served on a separate port or pushed by OTLP; imported only if one of the two is set.

docs/reference/metrics.md is made from the metrics. A label never has the name of an object or free text, so a sender of
events cannot add values.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)

from shared import __version__
from shared.adapters.telemetry.metric_parts import (
    EVENT_TYPES,
    LATENESS_SECONDS,
    OTHER,
    STATUSES,
    WAIT_SECONDS,
    ArchiveMetrics,
    JournalMetrics,
    PendingTimersCollector,
    SafeguardMetrics,
    SweepMetrics,
    UsageMetrics,
    labels_of_kinds,
    serve_registry,
)
from shared.core.decision.decide import Reason
from shared.core.decision.facts import Audited
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.values.objects import ObjectRef
from shared.errors import TtlError
from shared.messages import Message, ObjectArchived, ObjectDeleted, ObjectStopped
from shared.ports import Publisher, Telemetry, Verdict

_PROBLEMS_MAX = 50


class Metrics(UsageMetrics, SafeguardMetrics, JournalMetrics, SweepMetrics):
    """A Telemetry that measures each call and passes it on.

    Args:
        telemetry: The telemetry that receives each call.
        kinds: All known kinds.
        sweep_interval: Exported as a metric, so that alerts can use it.

    Attributes:
        registry: All metrics of this project, and those of the process.
    """

    def __init__(self, telemetry: Telemetry, *, kinds: Catalogue, sweep_interval: timedelta) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # a second series per metric that nothing here uses
        self.registry = CollectorRegistry()
        UsageMetrics.__init__(self, telemetry, self.registry)
        SafeguardMetrics.__init__(self, telemetry, self.registry)
        JournalMetrics.__init__(self, telemetry, self.registry)
        SweepMetrics.__init__(self, telemetry, self.registry, labels_of_kinds(kinds))
        self._problems_seen: set[str] = set()
        ProcessCollector(registry=self.registry)
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)

        Info("ttl_build", "The version of this process.", registry=self.registry).info({"version": __version__})
        interval = gauge("ttl_sweep_interval_seconds", "The time between two sweeps: TTL_SWEEP_INTERVAL.")
        interval.set(sweep_interval.total_seconds())
        self._objects = counter(
            "ttl_objects_total", "Verdicts about objects, with the reason.", ["verdict", "kind", "reason", "by"]
        )
        self._lateness = histogram(
            "ttl_deletion_lateness_seconds",
            "The time from the instant at which an object was due to its accepted DELETE.",
            ["kind", "by"],
            buckets=LATENESS_SECONDS,
        )
        self._stop_lateness = histogram(
            "ttl_stop_lateness_seconds",
            "The time from the active deadline of an object to its accepted stop.",
            ["kind", "by"],
            buckets=LATENESS_SECONDS,
        )
        missed = "Deletions of objects that a sweep found overdue: no event led to them."
        self._missed = counter("ttl_missed_by_events_total", missed, ["kind"])
        problems = "Problems that concern no single object, by the message of their log line."
        self._problems = counter("ttl_problems_total", problems, ["problem"])
        self._answers = counter(
            "ttl_events_total", "Events that functions answered, by HTTP status.", ["function", "status"]
        )
        self._published = counter(
            "ttl_published_total", "Events that were published to the Broker, without replies.", ["type", "result"]
        )
        self._dead = counter(
            "ttl_dead_letters_total", "Events that the Broker sent to the dead letter sink.", ["type", "code"]
        )
        self._waits = histogram(
            "ttl_budget_wait_seconds",
            "The time to the slot that an object got while the budget was exhausted.",
            ["kind"],
            buckets=WAIT_SECONDS,
        )
        permits = "How many deletions of a kind may be in flight at once; below 100 if the API server is slow or busy."
        self._permits = gauge("ttl_deletion_permits", permits, ["kind"])
        loops = "Recreate loops: names that exist again after each deletion."
        self._loops = counter("ttl_recreate_loops_total", loops, ["kind"])
        self._archives = ArchiveMetrics(self.registry)

    def record(  # noqa: PLR0913 - the fields of a log line
        self,
        verdict: Verdict,
        ref: ObjectRef,
        reason: Reason | str = "",
        *,
        detail: str = "",
        by: str = "",
        due_at: datetime | None = None,
    ) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.record(verdict, ref, reason, detail=detail, by=by, due_at=due_at)
        self._objects.labels(verdict, self._label(ref), reason, by).inc()

    def audited(self, verdict: Verdict, ref: ObjectRef, audited: Audited, *, by: str) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.audited(verdict, ref, audited, by=by)
        self._objects.labels(verdict, self._label(ref), Reason.AUDIT_ONLY, by).inc()

    def deleted(self, deleted: ObjectDeleted, *, by: str, missed: bool = False) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.deleted(deleted, by=by, missed=missed)
        kind = self._label(deleted.ref)
        self._archives.forget(deleted.ref)
        self._objects.labels(Verdict.DELETED, kind, deleted.reason, by).inc()
        if deleted.reason != "unused":  # it waits for a tick
            self._lateness.labels(kind, by).observe(max(deleted.lateness_seconds, 0.0))  # negative if clocks differ
        if missed:
            self._missed.labels(kind).inc()

    def object_stopped(self, stopped: ObjectStopped, *, by: str, detail: str = "") -> None:
        """See `shared.ports.Telemetry`."""
        self._next.object_stopped(stopped, by=by, detail=detail)
        kind = self._label(stopped.ref)
        self._objects.labels(Verdict.STOPPED, kind, Reason.DEADLINE_EXCEEDED, by).inc()
        self._stop_lateness.labels(kind, by).observe(max(stopped.lateness_seconds, 0.0))  # as above

    def archived(self, archived: ObjectArchived, *, size: int, by: str) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.archived(archived, size=size, by=by)
        kind = self._label(archived.ref)
        self._objects.labels(Verdict.ARCHIVED, kind, "", by).inc()
        self._archives.archived(archived, kind, size=size)

    def not_archived(self, ref: ObjectRef, archive: str, finished_at: datetime | None, *, failed: bool = False) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.not_archived(ref, archive, finished_at, failed=failed)
        self._archives.not_archived(ref, archive, finished_at, failed=failed)

    def problem(self, message: str, **fields: object) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.problem(message, **fields)
        if len(self._problems_seen) < _PROBLEMS_MAX:
            self._problems_seen.add(message)
        self._problems.labels(message if message in self._problems_seen else OTHER).inc()

    def dead_letter(self, event_type: str, status: int | str, **fields: object) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.dead_letter(event_type, status, **fields)
        known = event_type if event_type in EVENT_TYPES else OTHER
        self._dead.labels(known, status if str(status) in STATUSES else OTHER).inc()

    def delayed(self, ref: ObjectRef, seconds: float) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.delayed(ref, seconds)
        self._waits.labels(self._label(ref)).observe(seconds)

    def paced(self, rule: KindRule, permits: int, *, before: int, most: int) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.paced(rule, permits, before=before, most=most)
        self._permits.labels(self._label(rule)).set(permits)

    def recreate_loop(self, ref: ObjectRef) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.recreate_loop(ref)
        self._loops.labels(self._label(ref)).inc()

    def answered(self, function: str, status: int) -> None:
        """Count an event that a function answered."""
        self._answers.labels(function, status).inc()

    def measuring(self, publisher: Publisher) -> Publisher:
        """Return a publisher that counts each event and passes it to the given one."""
        return _MeasuredPublisher(publisher, self._published)

    def count_timers(self, timers: Callable[[], object], engine: str) -> None:
        """Count the pending timers at each scrape, in the running loop.

        Args:
            timers: Returns the timer engine, or another value if there is none yet.
            engine: The name of the engine.
        """
        self.registry.register(PendingTimersCollector(timers, asyncio.get_running_loop(), engine))

    def watch_policy(self, is_good: Callable[[], bool]) -> None:
        """Show, at each scrape, whether the policy file is in force as it is now."""
        about = "1 while the policy file is in force; 0 while it is bad and the last good policy is in force."
        Gauge("ttl_policy_good", about, registry=self.registry).set_function(is_good)

    def serve(self, port: int, address: str = "0.0.0.0") -> Callable[[], None]:  # noqa: S104 - for Prometheus in a Pod
        """Serve all metrics from a thread, so that no event waits for a scrape.

        Returns:
            A function that stops the server.

        Raises:
            TtlError: The port is in use.
        """
        try:
            return serve_registry(self.registry, port, address)
        except OSError as error:
            raise TtlError(f"TTL_METRICS_PORT: expected a free port, got {port}: {error.strerror}") from None

    def _label(self, of: ObjectRef | KindRule) -> str:
        return self._labels.get((of.group, of.kind), OTHER)


class _MeasuredPublisher:
    """Counts each event by its type and by whether the Broker accepted it, and passes it on.

    Args:
        publisher: The publisher that receives each event.
        published: The counter, with the labels `type` and `result`.
    """

    def __init__(self, publisher: Publisher, published: Counter) -> None:
        self._publisher = publisher
        self._published = published

    async def publish(self, message: Message) -> None:
        """See `shared.ports.Publisher`."""
        result = "failed"  # also if the caller was cancelled
        try:
            await self._publisher.publish(message)
            result = "accepted"
        finally:
            self._published.labels(message.type, result).inc()
