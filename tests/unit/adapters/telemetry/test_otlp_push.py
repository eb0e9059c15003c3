"""The points of OTLP that are made from a Prometheus registry, after they were encoded and decoded."""

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from shared.adapters.telemetry.otlp_push import Period, read_registry

CUMULATIVE = 2


def pushed(registry):
    """The metrics by name, as a receiver decodes them."""
    data = read_registry(registry, Resource({}), Period(1_000, 2_000))
    encoded = encode_metrics(data)
    return {one.name: one for one in encoded.resource_metrics[0].scope_metrics[0].metrics}


@pytest.fixture
def registry():
    return CollectorRegistry()


def labels_of(point):
    return {one.key: one.value.string_value for one in point.attributes}


def test_counter_is_a_cumulative_monotonic_sum_under_its_own_name(registry):
    counter = Counter("ttl_objects_total", "Verdicts.", ["kind"], registry=registry)
    counter.labels("Job").inc(3)
    counter.labels("Pod").inc()
    found = pushed(registry)["ttl_objects_total"]

    assert found.description == "Verdicts."
    assert (found.sum.is_monotonic, found.sum.aggregation_temporality) == (True, CUMULATIVE)
    points = {labels_of(one)["kind"]: one for one in found.sum.data_points}
    assert {kind: one.as_double for kind, one in points.items()} == {"Job": 3.0, "Pod": 1.0}
    assert (points["Job"].start_time_unix_nano, points["Job"].time_unix_nano) == (1_000, 2_000)


def test_gauge_is_a_gauge_and_info_a_sum_that_is_not_monotonic(registry):
    Gauge("ttl_breaker_open", "Open.", registry=registry).set(1)
    Info("ttl_build", "Version.", registry=registry).info({"version": "1"})
    found = pushed(registry)

    assert found["ttl_breaker_open"].gauge.data_points[0].as_double == 1
    assert not found["ttl_build_info"].sum.is_monotonic
    assert labels_of(found["ttl_build_info"].sum.data_points[0]) == {"version": "1"}


def test_buckets_of_a_histogram_count_their_own_values_only(registry):
    histogram = Histogram("ttl_lateness_seconds", "Late.", ["kind"], buckets=(1, 5), registry=registry)
    for value in (0.5, 0.7, 3, 90):
        histogram.labels("Job").observe(value)
    histogram.labels("Pod").observe(2)
    points = {labels_of(one)["kind"]: one for one in pushed(registry)["ttl_lateness_seconds"].histogram.data_points}

    assert list(points["Job"].explicit_bounds) == [1.0, 5.0]
    assert list(points["Job"].bucket_counts) == [2, 1, 1]
    assert (points["Job"].count, points["Job"].sum) == (4, 94.2)
    assert not points["Job"].HasField("min")
    assert list(points["Pod"].bucket_counts) == [0, 1, 0]


def test_metric_without_a_series_is_left_out(registry):
    Counter("ttl_unused_total", "Nothing.", ["kind"], registry=registry)

    assert pushed(registry) == {}
