"""The settings of OpenTelemetry that this project reads itself; the SDK reads all others, if it is imported.

A value that the SDK would not know is no error here, since these variables may be meant for other programs too.
"""

from pydantic import BaseModel, ConfigDict, Field


class OtelSettings(BaseModel):
    """The settings of traces and pushed metrics, one field for each variable."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    otlp: str = Field(default="", alias="OTEL_EXPORTER_OTLP_ENDPOINT")
    """The URL of a receiver of OTLP over HTTP, such as `http://collector:4318`, for traces and metrics. It needs the
    extra `otel`, which the image has. The SDK reads the other variables of OpenTelemetry too.

    Read by: functions, run, watch.
    """
    otlp_traces: str = Field(default="", alias="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    """The full URL for traces, with its path. It takes precedence.

    Read by: functions, run, watch.
    """
    otlp_metrics: str = Field(default="", alias="OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
    """The full URL for metrics, with its path. It takes precedence.

    Read by: functions, run, watch.
    """
    otlp_protocol: str = Field(default="", alias="OTEL_EXPORTER_OTLP_PROTOCOL")
    """The protocol. Only `http/protobuf`, the default, is supported.

    Read by: functions, run, watch.
    """
    traces_exporter: str = Field(default="otlp", alias="OTEL_TRACES_EXPORTER")
    """If it does not contain `otlp`, no traces are sent.

    Read by: functions, run, watch.
    """
    metrics_exporter: str = Field(default="otlp", alias="OTEL_METRICS_EXPORTER")
    """If it does not contain `otlp`, no metrics are sent.

    Read by: functions, run, watch.
    """
    metrics_interval_ms: int = Field(default=60_000, alias="OTEL_METRIC_EXPORT_INTERVAL", ge=1)
    """The milliseconds between two exports of metrics.

    Read by: functions, run, watch.
    """
    sdk_disabled: str = Field(default="", alias="OTEL_SDK_DISABLED")
    """If `true`, no traces and no metrics are sent.

    Read by: functions, run, watch.
    """
    function: str = Field(default="", alias="FUNCTION_TARGET")
    """The function of this process. It is the default of `OTEL_SERVICE_NAME`.

    Read by: functions.
    """

    @property
    def sends_traces(self) -> bool:
        """Whether traces are sent."""
        return self._sends(self.otlp_traces, self.traces_exporter)

    @property
    def sends_metrics(self) -> bool:
        """Whether metrics are sent."""
        return self._sends(self.otlp_metrics, self.metrics_exporter)

    def _sends(self, endpoint: str, exporter: str) -> bool:
        is_disabled = self.sdk_disabled.lower() == "true"
        return bool(self.otlp or endpoint) and not is_disabled and "otlp" in exporter.replace(" ", "").split(",")
