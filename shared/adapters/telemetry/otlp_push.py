"""Push the metrics of a Prometheus registry by OTLP; only a process that pushes metrics imports it."""

import logging
from datetime import timedelta
from threading import Event, Lock, Thread

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry

from shared.adapters.telemetry.otlp_points import Period, read_registry
from shared.ports import Clock

_log = logging.getLogger("ttl")


class MetricsPush:
    """Pushes all metrics at an interval, from a thread of its own: no event waits for it.

    Args:
        registry: The metrics.
        resource: What sends them.
        clock: The clock.
        interval: The time between two exports.
        exporter: Sends them.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        resource: Resource,
        clock: Clock,
        *,
        interval: timedelta,
        exporter: MetricExporter | None = None,
    ) -> None:
        self._registry, self._resource, self._clock = registry, resource, clock
        self._exporter = exporter or OTLPMetricExporter()
        self._started_ns, self._ended, self._lock = self._now_ns(), Event(), Lock()
        self._thread = Thread(target=self._run, args=(interval.total_seconds(),), name="metrics-push", daemon=True)
        self._thread.start()

    def flush(self) -> None:
        """Push the metrics now; blocks until they are sent or refused. The exporter logs a refusal."""
        with self._lock:
            data = read_registry(self._registry, self._resource, Period(self._started_ns, self._now_ns()))
            self._exporter.export(data)

    def stop(self) -> None:
        """Push no more at the interval."""
        self._ended.set()

    def _run(self, seconds: float) -> None:
        while not self._ended.wait(seconds):
            try:
                self.flush()
            except Exception:  # noqa: BLE001 - a bug must not end the thread
                _log.exception("metrics not pushed")

    def _now_ns(self) -> int:
        return round(self._clock.now().timestamp() * 1e9)
