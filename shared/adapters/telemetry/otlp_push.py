"""Push the metrics of a Prometheus registry by OTLP; only a process that pushes metrics imports it.

The names stay as they are, so that dashboards and alerts fit both ways. Source:
https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/#prometheus-metric-points-to-otlp.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event, Lock, Thread
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry
from prometheus_client import Metric as Family
from prometheus_client.samples import Sample

from shared import __version__
from shared.ports import Clock

_log = logging.getLogger("ttl")

_CUMULATIVE = AggregationTemporality.CUMULATIVE


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


@dataclass(frozen=True, slots=True)
class Period:
    """The time that the points of one export are about, in nanoseconds since 1970.

    Attributes:
        started_ns: When the counters were 0.
        read_ns: When they were read.
    """

    started_ns: int
    read_ns: int


@dataclass(slots=True)
class _Buckets:
    """The samples of one histogram with one set of labels; the counts of the buckets include those of lower ones."""

    bounds: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    sum: float = 0.0
    count: int = 0


def read_registry(registry: CollectorRegistry, resource: Resource, period: Period) -> MetricsData:
    """Read all metrics of a registry, as at a scrape."""
    metrics = [metric for family in registry.collect() for metric in _metrics_of(family, period)]
    scope = ScopeMetrics(InstrumentationScope("ttl-after-finished", __version__), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _metrics_of(family: Family, period: Period) -> Iterator[Metric]:
    if not family.samples:
        return
    if family.type == "histogram":
        histogram = Histogram(_histogram_points(family.samples, period), _CUMULATIVE)
        yield Metric(family.name, family.documentation, family.unit, histogram)
        return
    by_name: dict[str, list[Sample]] = defaultdict(list)
    for sample in family.samples:
        by_name[sample.name].append(sample)
    for name, samples in by_name.items():
        points = [_point(sample, period) for sample in samples]
        yield Metric(name, family.documentation, family.unit, _data_of(family.type, points))


def _data_of(kind: str, points: list[NumberDataPoint]) -> Sum | Gauge:
    if kind in ("counter", "info"):
        return Sum(points, _CUMULATIVE, is_monotonic=kind == "counter")
    return Gauge(points)


def _point(sample: Sample, period: Period) -> NumberDataPoint:
    return NumberDataPoint(dict(sample.labels), period.started_ns, period.read_ns, sample.value)


def _histogram_points(samples: Iterable[Sample], period: Period) -> list[HistogramDataPoint]:
    found: dict[tuple[tuple[str, str], ...], _Buckets] = defaultdict(_Buckets)
    for sample in samples:
        labels = {name: value for name, value in sample.labels.items() if name != "le"}
        buckets = found[tuple(labels.items())]
        if sample.name.endswith("_bucket"):
            buckets.bounds.append(float(sample.labels["le"]))
            buckets.counts.append(int(sample.value))
        elif sample.name.endswith("_sum"):
            buckets.sum = sample.value
        elif sample.name.endswith("_count"):
            buckets.count = int(sample.value)
    return [_histogram_point(dict(labels), buckets, period) for labels, buckets in found.items()]


def _histogram_point(labels: dict[str, str], buckets: _Buckets, period: Period) -> HistogramDataPoint:
    unknown: Any = None  # a registry knows no least and no greatest value; both are optional in OTLP
    return HistogramDataPoint(
        attributes=labels,
        start_time_unix_nano=period.started_ns,
        time_unix_nano=period.read_ns,
        count=buckets.count,
        sum=buckets.sum,
        bucket_counts=[count - before for before, count in zip([0, *buckets.counts], buckets.counts, strict=False)],
        explicit_bounds=buckets.bounds[:-1],  # the last one is infinite
        min=unknown,
        max=unknown,
    )
