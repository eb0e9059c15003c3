"""The spans of events, by the semantic conventions for CloudEvents and for messages of OpenTelemetry.

An event carries the span that made it in `traceparent`, the distributed tracing extension of CloudEvents.
Its handling is a child of that span, and linked to it: docs/decisions/0038-one-trace.md. `tracestate` is dropped.

Sources: https://opentelemetry.io/docs/specs/semconv/cloudevents/cloudevents-spans/ and
https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from shared.adapters.events.cloudevents import Event
from shared.adapters.tracing.current import (
    NAMESPACE,
    Kind,
    Span,
    current_traceparent,
    get_name_attribute,
    get_tracer,
    within,
    within_span,
)
from shared.core.values.traceparent import TRACEPARENT, find_traceparent

_CHARACTERS_MAX = 500
"""Characters of an attribute of a span, since a sender sets those of its events."""


def is_traced(event: Event) -> bool:
    """Return whether an event has a trace, or starts one."""
    return TRACEPARENT in event.extensions or get_tracer() is not None


@contextmanager
def handling(event: Event, function: str, headers: Mapping[str, str]) -> Iterator[Span | None]:
    """Handle an event within its trace; in a span, if this process sends traces.

    Args:
        event: The event.
        function: The name of the function that handles it.
        headers: Those of the request. A source or a Broker that traces its requests names its span in them.
    """
    tracer = get_tracer()
    parent = find_traceparent(event.extensions.get(TRACEPARENT))
    if tracer is None:
        with within(parent):
            yield None
        return
    parent = parent or find_traceparent(headers.get(TRACEPARENT))
    about = _about(event, "process") | {"code.function.name": f"functions.{function}"}
    name = f"CloudEvents Process {about['cloudevents.event_type']}"
    with within_span(tracer.start(name, Kind.CONSUMER, about, parent=parent, is_linked=bool(parent))) as span:
        yield span


async def send_traced(send: Callable[[Event], Awaitable[object]], event: Event) -> None:
    """Send an event of this process's own; the span of its sending starts its trace, if this process sends traces."""
    tracer = get_tracer()
    if tracer is None:
        await send(event)
        return
    about = _about(event, "send")
    name = f"CloudEvents Create {about['cloudevents.event_type']}"
    parent = current_traceparent()
    with within_span(tracer.start(name, Kind.PRODUCER, about, parent=parent, is_linked=False)) as span:
        await send(replace(event, extensions={**event.extensions, TRACEPARENT: span.traceparent}))


def _about(event: Event, operation: str) -> dict[str, str]:
    values = {
        "cloudevents.event_id": event.id,
        "cloudevents.event_source": event.source,
        "cloudevents.event_spec_version": "1.0",
        "cloudevents.event_type": event.type,
        "cloudevents.event_subject": event.subject,
        "messaging.system": "knative",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.message.id": event.id,
        NAMESPACE: event.extensions.get("namespace", ""),
    }
    group = event.extensions.get("apiversion", "").rpartition("/")[0]
    if attribute := get_name_attribute(group, event.extensions.get("kind", "")):
        values[attribute] = event.extensions.get("name", "")
    return {name: value[:_CHARACTERS_MAX] for name, value in values.items() if value}
