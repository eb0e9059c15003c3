"""Prometheus metrics on a port of their own; loaded only where TTL_METRICS_PORT asks for them.

Labels have few values, whoever sends events: a kind is one of the catalogue, with its group where several groups have
one of its name; verdicts, reasons, problems and functions are words of the code. What is none of them is `other`. Never
the name of an object, never free text.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Any

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
from shared.adapters.events.cloudevents import SOURCED, TICK
from shared.adapters.telemetry.scraping import CountsTimers, ask, serve_registry
from shared.core.decide import Reason
from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.rule import KindRule
from shared.core.objects import ObjectRef
from shared.errors import TtlError
from shared.messages import Message, ObjectDeleted, SweepStep, Timer, TimersSet
from shared.ports import Publisher, Telemetry, Verdict

LATENESS_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600, 1_200, 3_600, 14_400)
"""From a deletion on the second to one that waited for a sweep, or two."""

OTHER = "other"
_PROBLEMS_MAX = 50
_TYPES = {TICK, *SOURCED, *(message.type for message in (Timer, TimersSet, ObjectDeleted, SweepStep))}
_STATUSES = frozenset(str(status.value) for status in HTTPStatus)

WAIT_SECONDS = (0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1_200, 3_600)
"""From the next free slot to the end of the line."""


class Metrics:
    """A Telemetry that passes on what it is told, and measures it.

    Args:
        message: Whom it passes it on to.
        kinds: All kinds that are known.
        sweep_interval: Shown, so that alerts need not be told it again.

    Attributes:
        registry: All metrics, and the process's own.
    """

    def __init__(self, told: Telemetry, *, kinds: Catalogue, sweep_interval: timedelta) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # a second series for each, which nothing here needs
        self.registry = CollectorRegistry()
        self._told = told
        self._labels = {(rule.group, rule.kind): kinds.label_of(rule.group, rule.kind) for rule in kinds.rules}
        self._problems_seen: set[str] = set()
        self._is_open = self._is_stopped = False
        ProcessCollector(registry=self.registry)
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)

        Info("ttl_build", "The version that runs.", registry=self.registry).info({"version": __version__})
        gauge("ttl_sweep_interval_seconds", "Between two sweeps.").set(sweep_interval.total_seconds())
        self._objects = counter(
            "ttl_objects_total", "What was done about objects, and why.", ["verdict", "kind", "reason", "by"]
        )
        self._lateness = Histogram(
            "ttl_deletion_lateness_seconds",
            "DELETE accepted - due.",
            ["kind", "by"],
            buckets=LATENESS_SECONDS,
            registry=self.registry,
        )
        self._missed = counter("ttl_missed_by_events_total", "Deletions that only a sweep found.", ["kind"])
        self._problems = counter("ttl_problems_total", "What is about no single object.", ["problem"])
        self._answers = counter("ttl_events_total", "Events answered, by HTTP status.", ["function", "status"])
        self._published = counter("ttl_published_total", "Events published, replies aside.", ["type", "result"])
        self._dead = counter("ttl_dead_letters_total", "Events that nobody would take.", ["type", "code"])
        self._waits = Histogram(
            "ttl_budget_wait_seconds",
            "How far ahead the slot is that an object got when the budget was used up.",
            ["kind"],
            buckets=WAIT_SECONDS,
            registry=self.registry,
        )
        self._breaker = gauge("ttl_breaker_open", "1 while nothing is deleted until somebody releases the breaker.")
        self._stopped = gauge("ttl_stopped", "1 while a person has stopped all deletions: kubectl ttl stop.")
        self._loops = counter(
            "ttl_recreate_loops_total", "Names that are re-created whenever we delete them.", ["kind"]
        )
        self._swept = gauge("ttl_sweep_last_end_timestamp_seconds", "When a sweep last saw all of a kind.", ["kind"])

    def record(  # noqa: PLR0913 - what a log line tells
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
        self._told.record(verdict, ref, reason, detail=detail, by=by, due_at=due_at)
        self._objects.labels(verdict, self._label(ref), reason, by).inc()

    def deleted(self, deleted: ObjectDeleted, *, by: str, missed: bool = False, finalizers: Sequence[str] = ()) -> None:
        """See `shared.ports.Telemetry`."""
        self._told.deleted(deleted, by=by, missed=missed, finalizers=finalizers)
        kind = self._label(deleted.ref)
        self._objects.labels(Verdict.DELETED, kind, Reason.EXPIRED, by).inc()
        self._lateness.labels(kind, by).observe(max(deleted.lateness_seconds, 0.0))  # clocks differ
        if missed:
            self._missed.labels(kind).inc()

    def problem(self, message: str, **fields: object) -> None:
        """See `shared.ports.Telemetry`."""
        self._told.problem(message, **fields)
        if len(self._problems_seen) < _PROBLEMS_MAX:
            self._problems_seen.add(message)
        self._problems.labels(message if message in self._problems_seen else OTHER).inc()

    def dead_letter(self, event_type: str, status: int | str, **fields: object) -> None:
        """See `shared.ports.Telemetry`."""
        self._told.dead_letter(event_type, status, **fields)
        known = event_type if event_type in _TYPES else OTHER
        self._dead.labels(known, status if str(status) in _STATUSES else OTHER).inc()

    def swept(self, rule: KindRule) -> None:
        """See `shared.ports.Telemetry`."""
        self._told.swept(rule)
        self._swept.labels(self._label(rule)).set_to_current_time()

    def sweep_ended(self, sweep_id: str, counts: Mapping[str, int], *, whole: bool) -> None:
        """See `shared.ports.Telemetry`."""
        self._told.sweep_ended(sweep_id, counts, whole=whole)

    def put_off(self, ref: ObjectRef, seconds: float) -> None:
        """See `shared.ports.Telemetry`."""
        self._told.put_off(ref, seconds)
        self._waits.labels(self._label(ref)).observe(seconds)

    def breaker(self, *, is_open: bool) -> None:
        """See `shared.ports.Telemetry`."""
        self._told.breaker(is_open=is_open)
        self._is_open = is_open
        self._breaker.set(is_open)

    def stopped(self, *, is_stopped: bool) -> None:
        """See `shared.ports.Telemetry`."""
        self._told.stopped(is_stopped=is_stopped)
        self._is_stopped = is_stopped
        self._stopped.set(is_stopped)

    def recreate_loop(self, ref: ObjectRef) -> None:
        """See `shared.ports.Telemetry`."""
        self._told.recreate_loop(ref)
        self._loops.labels(self._label(ref)).inc()

    def answered(self, function: str, status: int) -> None:
        """A function answered an event."""
        self._answers.labels(function, status).inc()

    def measuring(self, publisher: Publisher) -> Publisher:
        """The same publisher, measured."""
        return _MeasuredPublisher(publisher, self._published)

    def count_timers(self, timers: Callable[[], object]) -> None:
        """Count the pending timers at each scrape, in the running loop.

        Args:
            timers: The engine of the moment, if there is one.
        """
        self.registry.register(CountsTimers(timers, asyncio.get_running_loop()))

    def watch_shared_state(self, look: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Read the shared state at each scrape, in the running loop; an idle process reads it at no other time.

        Args:
            look: Reads it, and reports to `breaker` and `stopped` what it found.
        """
        loop = asyncio.get_running_loop()

        def is_open() -> float:
            ask(look, loop)
            return self._is_open

        def is_stopped() -> float:  # collected after `ttl_breaker_open`, whose look counts for both
            return self._is_stopped

        self._breaker.set_function(is_open)
        self._stopped.set_function(is_stopped)

    def watch_policy(self, is_good: Callable[[], bool]) -> None:
        """Show, at each scrape, whether the policy file is in force as it is now."""
        about = "Whether the policy file is in force as it is; 0 where the last good one is."
        Gauge("ttl_policy_good", about, registry=self.registry).set_function(is_good)

    def serve(self, port: int, address: str = "0.0.0.0") -> Callable[[], None]:  # noqa: S104 - Prometheus is elsewhere
        """Serve all of it from a thread, so that no event waits for a scrape.

        Returns:
            What ends it.

        Raises:
            TtlError: The port is taken.
        """
        try:
            return serve_registry(self.registry, port, address)
        except OSError as error:
            raise TtlError(f"TTL_METRICS_PORT: expected a free port, got {port}: {error.strerror}") from None

    def _label(self, of: ObjectRef | KindRule) -> str:
        return self._labels.get((of.group, of.kind), OTHER)


class _MeasuredPublisher:
    def __init__(self, publisher: Publisher, published: Counter) -> None:
        self._publisher = publisher
        self._published = published

    async def publish(self, message: Message) -> None:
        """See `shared.ports.Publisher`."""
        result = "failed"  # also where the one who waited gave up
        try:
            await self._publisher.publish(message)
            result = "accepted"
        finally:
            self._published.labels(message.type, result).inc()
