"""The tracer that sends spans by OTLP over HTTP, and the resource that sends traces and metrics.

Only a process that sends them imports this module. The SDK reads the other OTEL_ variables: sampler, headers, timeouts,
limits and the batch processor.
"""

import uuid

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace import Span as OtelSpan

from shared import __version__
from shared.adapters.tracing.current import Attributes, Kind
from shared.core.values.traceparent import flags_of, span_id_of, trace_id_of


class OtelTracer:
    """Starts spans, and sends those that are sampled.

    Args:
        resource: What sends them.
        exporter: Sends them.
    """

    def __init__(self, resource: Resource, exporter: SpanExporter | None = None) -> None:
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("ttl-after-finished", __version__)

    def start(self, name: str, kind: Kind, attributes: Attributes, *, parent: str, is_linked: bool) -> "_StartedSpan":
        """See `Tracer`."""
        context, links = Context(), []
        if parent:
            remote = SpanContext(
                int(trace_id_of(parent), 16), int(span_id_of(parent), 16), True, TraceFlags(flags_of(parent))
            )
            context = set_span_in_context(NonRecordingSpan(remote), context)
            links = [Link(remote)] if is_linked else []
        return _StartedSpan(
            self._tracer.start_span(name, context, SpanKind[kind.value], attributes=attributes, links=links)
        )

    def flush(self) -> None:
        """Send all spans that have ended; blocks until they are sent or refused."""
        self._provider.force_flush()


class _StartedSpan:
    """A `Span` of OpenTelemetry."""

    def __init__(self, span: OtelSpan) -> None:
        self._span, about = span, span.get_span_context()
        self.traceparent = f"00-{about.trace_id:032x}-{about.span_id:016x}-{about.trace_flags:02x}"

    def set(self, name: str, value: str | int) -> None:
        self._span.set_attribute(name, value)

    def fail(self, error_type: str) -> None:
        self._span.set_attribute("error.type", error_type)
        self._span.set_status(StatusCode.ERROR)

    def end(self) -> None:
        self._span.end()


_NAMESPACE = "ttl-after-finished"


def build_resource(function: str) -> Resource:
    """Make the resource of this process; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.

    Source: https://opentelemetry.io/docs/specs/semconv/resource/service/.

    Args:
        function: The function of this process; empty for a process with several.
    """
    found = Resource.create()
    own = {
        "service.name": function or _NAMESPACE,
        "service.namespace": _NAMESPACE,
        "service.version": __version__,
        "service.instance.id": str(uuid.uuid4()),  # the counters of each instance start at 0
    }
    if str(found.attributes.get("service.name", "")).startswith("unknown_service"):
        found = found.merge(Resource({"service.name": own["service.name"]}))
    return Resource(own).merge(found)
