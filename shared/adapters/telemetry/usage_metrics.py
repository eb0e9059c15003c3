"""The metrics about unused Secrets and ConfigMaps."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge, Histogram

from shared.adapters.telemetry.metric_values import WINDOW_SECONDS
from shared.ports import Telemetry


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
