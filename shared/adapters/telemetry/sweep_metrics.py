"""The metrics about sweeps."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge

from shared.adapters.telemetry.metric_values import FORECAST_WINDOWS, OTHER
from shared.core.forecast import Forecast
from shared.core.kinds.rule import KindRule
from shared.ports import Telemetry


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
