"""The parts of `Metrics`: those of sweeps, usage, the safeguards, the journal and archives, and the values of labels.

Beside them are the HTTP server, and values that are read from the running loop at each scrape.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from socketserver import ThreadingMixIn
from threading import Lock, Thread
from typing import Any, TypeVar
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from cachetools import TTLCache
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from shared.adapters.clock import SystemClock
from shared.adapters.events.cloudevents import SOURCED, TICK
from shared.core.decision.forecast import FORECAST_HOURS, Forecast
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.policy.usage import USAGE_KINDS
from shared.core.values.objects import ObjectRef
from shared.errors import TtlError
from shared.messages import ObjectArchived, ObjectDeleted, ObjectStopped, ObjectWarned, SweepStep, Timer, TimersSet
from shared.ports import CountedTimers, EventLevel, JournalResult, Refusal, Report, Telemetry

LATENESS_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600, 1_200, 3_600, 14_400)
"""Buckets: from a deletion at its due time to one that waited for one or two sweeps."""

WAIT_SECONDS = (0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1_200, 3_600)
"""Buckets: from the next free slot to the end of a long backlog."""

WINDOW_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Buckets: from the pass of a small namespace to one that lists many cluster-scoped objects."""

FORECAST_WINDOWS = (*(f"{hour:02}" for hour in range(FORECAST_HOURS + 1)), "later")
"""The values of the label `hour`: `00` is now, `01` the first hour. They have two digits, so that they sort as text."""

OTHER = "other"
"""The value of a label if the real value is not known."""

EVENT_TYPES = {
    TICK,
    *SOURCED,
    *(message.type for message in (Timer, TimersSet, ObjectDeleted, ObjectStopped, ObjectWarned, SweepStep)),
}
"""The types of the CloudEvents of this project."""

STATUSES = frozenset(str(status.value) for status in HTTPStatus)
"""All HTTP statuses."""


def labels_of_kinds(kinds: Catalogue) -> Mapping[tuple[str, str], str]:
    """Return the label of each known kind, by group and kind; Secrets and ConfigMaps are always known."""
    every = (*USAGE_KINDS.rules, *kinds.rules)
    return {(rule.group, rule.kind): kinds.label_of(rule.group, rule.kind) for rule in every}


_REMEMBERED_MAX = 10_000
_REMEMBERED_SECONDS = 3_600.0
"""How long an object that is not archived is remembered; a sweep that finds it again extends the time."""


class SweepMetrics:
    """The part of the metrics about sweeps; it passes each call on.

    Args:
        telemetry: The telemetry that receives each call.
        registry: Where the metrics are registered.
        labels: The label of each known kind, by group and kind.
    """

    def __init__(
        self, telemetry: Telemetry, registry: CollectorRegistry, labels: Mapping[tuple[str, str], str]
    ) -> None:
        self._next, self._labels = telemetry, labels
        self._forecast_kinds: set[str] = set()
        about = "When a sweep last listed the last page of a kind."
        self._swept = Gauge("ttl_sweep_last_end_timestamp_seconds", about, ["kind"], registry=registry)
        about = (
            "Objects that wait for their deletion, by the hour in which it is due after the last sweep of all kinds."
        )
        self._forecast = Gauge("ttl_forecast_objects", about, ["kind", "hour"], registry=registry)

    def swept(self, rule: KindRule) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.swept(rule)
        self._swept.labels(self._labels.get((rule.group, rule.kind), OTHER)).set_to_current_time()

    def sweep_ended(self, sweep_id: str, counts: Mapping[str, int], *, whole: bool) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.sweep_ended(sweep_id, counts, whole=whole)

    def forecast(self, forecast: Forecast) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.forecast(forecast)
        by_label = {self._labels.get(kind, OTHER): counts for kind, counts in forecast.counts.items()}
        for label in self._forecast_kinds - by_label.keys():
            for hour in FORECAST_WINDOWS:
                self._forecast.remove(label, hour)
        for label, counts in by_label.items():
            for hour, count in zip(FORECAST_WINDOWS, counts, strict=True):
                self._forecast.labels(label, hour).set(count)
        self._forecast_kinds = set(by_label)


class UsageMetrics:
    """The part of the metrics about `usage`; it passes each call on.

    Args:
        telemetry: The telemetry that receives each call.
        registry: Where the metrics are registered.
    """

    def __init__(self, telemetry: Telemetry, registry: CollectorRegistry) -> None:
        self._next = telemetry
        self._complete = Gauge(
            "ttl_usage_pass_complete",
            "0 if the last pass over what may refer to Secrets and ConfigMaps was not complete, or an object may refer "
            "to all of them; otherwise 1.",
            registry=registry,
        )
        self._complete.set(1)
        self._unknown = Gauge(
            "ttl_usage_unknown_namespaces",
            "Namespaces in which an unreadable object may refer to all Secrets or ConfigMaps; the log names it.",
            registry=registry,
        )
        self._ended_at = Gauge(
            "ttl_usage_last_complete_pass_timestamp_seconds", "When the last complete pass ended.", registry=registry
        )
        self._tick = Gauge(
            "ttl_usage_objects", "Secrets and ConfigMaps by what the last tick did.", ["result"], registry=registry
        )
        self._window = Histogram(
            "ttl_usage_window_seconds",
            "The longest time of a tick from the start of the last pass to an accepted DELETE.",
            buckets=WINDOW_SECONDS,
            registry=registry,
        )

    def usage_pass(self, problem: str, unknown: Mapping[str, str] | None = None) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.usage_pass(problem, unknown)
        if unknown is not None:
            self._unknown.set(len(unknown))
        self._complete.set(not problem)
        if not problem:
            self._ended_at.set_to_current_time()

    def usage_ended(self, counts: Mapping[str, int], *, window_seconds: float) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.usage_ended(counts, window_seconds=window_seconds)
        for result, count in counts.items():
            self._tick.labels(result).set(count)
        if window_seconds:
            self._window.observe(window_seconds)


class SafeguardMetrics:
    """The part of the metrics about the shared state of the safeguards; it passes each call on.

    Args:
        telemetry: The telemetry that receives each call.
        registry: Where the metrics are registered.
    """

    def __init__(self, telemetry: Telemetry, registry: CollectorRegistry) -> None:
        self._next = telemetry
        self._is_open = self._is_stopped = False
        self._breaker = Gauge(
            "ttl_breaker_open", "1 while the breaker is open and nothing is deleted.", registry=registry
        )
        self._stopped = Gauge("ttl_stopped", "1 while deletions are stopped by kubectl ttl stop.", registry=registry)

    def breaker(self, *, is_open: bool) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.breaker(is_open=is_open)
        self._is_open = is_open
        self._breaker.set(is_open)

    def stopped(self, *, is_stopped: bool) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.stopped(is_stopped=is_stopped)
        self._is_stopped = is_stopped
        self._stopped.set(is_stopped)

    def watch_shared_state(self, read: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Read the shared state at each scrape, in the running loop; an idle process reads it at no other time.

        Args:
            read: Reads the shared state, and reports it to `breaker` and `stopped`.
        """
        loop = asyncio.get_running_loop()

        def is_open() -> float:
            run_in_loop(read, loop)
            return self._is_open

        def is_stopped() -> float:  # collected after `ttl_breaker_open`, which has read the state for both
            return self._is_stopped

        self._breaker.set_function(is_open)
        self._stopped.set_function(is_stopped)


class JournalMetrics:
    """The part of the metrics about the journal; it passes each call on.

    Args:
        telemetry: The telemetry that receives each call.
        registry: Where the metrics are registered.
    """

    def __init__(self, telemetry: Telemetry, registry: CollectorRegistry) -> None:
        self._next = telemetry
        self._entries = Counter(
            "ttl_journal_entries_total",
            "Deletions, stops, archives, refusals and reports of decisions by what the journal did: an Event of their "
            "own, a count in the Event of a minute, or dropped.",
            ["result"],
            registry=registry,
        )

    def refused(self, refusal: Refusal, *, by: str) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.refused(refusal, by=by)

    def reported(self, report: Report, *, by: str, level: EventLevel = "Warning") -> None:
        """See `shared.ports.Telemetry`."""
        self._next.reported(report, by=by, level=level)

    def journaled(self, result: JournalResult, count: int = 1) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.journaled(result, count)
        self._entries.labels(result).inc(count)


class ArchiveMetrics:
    """Counts archived objects and failures, and remembers since when the oldest object is not archived."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self._archived = counter("ttl_archived_total", "Objects that an archive has acknowledged.", ["archive", "kind"])
        self._bytes = counter(
            "ttl_archived_bytes_total",
            "Bytes of the documents of archived objects, as compressed; for a webhook, of their JSON. Children, logs "
            "and documents that were stored before do not count.",
            ["archive"],
        )
        self._failures = counter("ttl_archive_failures_total", "Failed attempts to archive an object.", ["archive"])
        self._finished: TTLCache[str, datetime] = TTLCache(_REMEMBERED_MAX, _REMEMBERED_SECONDS)
        Gauge(
            "ttl_archive_oldest_unacknowledged_seconds",
            "The time since the finish of the oldest object that this process found not archived; 0 if there is none.",
            registry=registry,
        ).set_function(self._oldest)

    def archived(self, archived: ObjectArchived, kind: str, *, size: int) -> None:
        """Count an object that an archive has acknowledged."""
        self._archived.labels(archived.archive, kind).inc()
        self._bytes.labels(archived.archive).inc(size)
        self.forget(archived.ref)

    def not_archived(self, ref: ObjectRef, archive: str, finished_at: datetime | None, *, failed: bool) -> None:
        """Remember an object that is not archived, and count a failure."""
        if failed:
            self._failures.labels(archive).inc()
        if finished_at is not None:
            self._finished[ref.uid] = finished_at

    def forget(self, ref: ObjectRef) -> None:
        """Forget an object that is archived or deleted."""
        self._finished.pop(ref.uid, None)

    def _oldest(self) -> float:
        self._finished.expire()
        now, oldest = SystemClock().now(), min(list(self._finished.values()), default=None)
        return 0.0 if oldest is None else max((now - oldest) / timedelta(seconds=1), 0.0)


SCRAPED_VALUE_SECONDS_MAX = 2.0
"""Maximum time that a scrape waits for a value; then it leaves the value out."""

SCRAPES_MAX = 8
"""Maximum number of connections; one more closes the oldest. Each has a thread and up to 7 MB of headers."""

SCRAPE_SECONDS = 10.0
"""Timeout of each read of a request and each write of an answer; Prometheus itself waits 10 s for a scrape."""

_T = TypeVar("_T")


def serve_registry(registry: CollectorRegistry, port: int, address: str) -> Callable[[], None]:
    """Serve metrics from a thread.

    Returns:
        A function that stops the server.

    Raises:
        OSError: The port is in use.
    """
    server = make_server(address, port, make_wsgi_app(registry), _Server, _Handler)
    thread = Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return close


class _Handler(WSGIRequestHandler):
    timeout = SCRAPE_SECONDS

    def log_message(self, format: str, *_: Any) -> None:  # noqa: A002 - the name in the base class
        """Do not log requests."""


class _Server(ThreadingMixIn, WSGIServer):
    """One thread per connection; `SCRAPES_MAX` limits the connections that send nothing."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, *args: Any, **options: Any) -> None:
        self._open: dict[int, socket.socket] = {}
        self._lock = Lock()
        super().__init__(*args, **options)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection; above `SCRAPES_MAX`, close the oldest one first."""
        with self._lock:
            self._open[id(request)] = request
            if len(self._open) > SCRAPES_MAX:
                oldest = self._open.pop(next(iter(self._open)))
                with suppress(OSError):  # its thread then reads the end of the stream and ends
                    oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Stop counting a connection."""
        with self._lock:
            self._open.pop(id(request), None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do not log an error: a client that disconnects is not an error of this process."""


class PendingTimersCollector(Collector):
    """Counts the pending timers at each scrape.

    Args:
        timers: Returns the timer engine, or another value if there is none yet.
        loop: The event loop of the engine.
        engine: The name of the engine.
    """

    def __init__(self, timers: Callable[[], object], loop: asyncio.AbstractEventLoop, engine: str) -> None:
        self._timers, self._loop, self._engine = timers, loop, engine

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the engine, the number of timers and the time of the next one; no number if it does not answer now."""
        timers = self._timers()
        if timers is not None:
            about = "1, with the name of the timer engine."
            info = GaugeMetricFamily("ttl_timer_engine_info", about, labels=["engine"])
            info.add_metric([self._engine], 1)
            yield info
        counted = run_in_loop(partial(_count, timers), self._loop) if isinstance(timers, CountedTimers) else None
        if counted is None:
            return
        pending, next_due = counted
        yield GaugeMetricFamily("ttl_timers_pending", "Timers that are pending.", pending)
        if next_due:
            about = "When the next timer fires or is tried again. In the past, if overdue. On NATS: only if overdue."
            yield GaugeMetricFamily("ttl_timers_next_due_timestamp_seconds", about, next_due.timestamp())


def run_in_loop(query: Callable[[], Coroutine[Any, Any, _T]], loop: asyncio.AbstractEventLoop) -> _T | None:
    """Run a query in the loop of another thread; return None if it fails or exceeds `SCRAPED_VALUE_SECONDS_MAX`."""
    if loop.is_closed():
        return None
    running = asyncio.run_coroutine_threadsafe(query(), loop)
    try:
        return running.result(SCRAPED_VALUE_SECONDS_MAX)
    except (TtlError, RuntimeError, TimeoutError, CancelledError):  # busy, or shutting down
        running.cancel()
        return None


async def _count(timers: CountedTimers) -> tuple[int, datetime | None]:
    return await timers.pending(), await timers.next_due()
