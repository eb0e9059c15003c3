"""The span in which the running task works, the tracer of this process, and attributes that several spans have.

Sources: https://opentelemetry.io/docs/specs/semconv/resource/k8s/ and
https://opentelemetry.io/docs/specs/semconv/http/http-spans/.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from http import HTTPStatus
from typing import Protocol

Attributes = Mapping[str, str | int]

_current: ContextVar[str] = ContextVar("traceparent", default="")


class Kind(Enum):
    """The role of a span: https://opentelemetry.io/docs/specs/otel/trace/api/#spankind."""

    PRODUCER = "PRODUCER"
    CONSUMER = "CONSUMER"
    CLIENT = "CLIENT"


class Span(Protocol):
    """A span that has started.

    Attributes:
        traceparent: Its identity. Its flag says whether it is sampled.
    """

    traceparent: str

    def set(self, name: str, value: str | int) -> None:
        """Set an attribute."""
        ...

    def fail(self, error_type: str) -> None:
        """Mark it as failed; `error_type` is the name of an exception or an HTTP status."""
        ...

    def end(self) -> None:
        """End it."""
        ...


class Tracer(Protocol):
    """Starts spans."""

    def start(self, name: str, kind: Kind, attributes: Attributes, *, parent: str, is_linked: bool) -> Span:
        """Start a span.

        Args:
            name: Its name.
            kind: Its role.
            attributes: Its attributes.
            parent: The traceparent of its parent; empty for a new trace.
            is_linked: Whether it has a link to its parent too.
        """
        ...


class _Installed:
    tracer: Tracer | None = None


def install(tracer: Tracer | None) -> None:
    """Start spans with this tracer from now on; None for no spans."""
    _Installed.tracer = tracer


def get_tracer() -> Tracer | None:
    """Return the tracer; None if this process sends no traces."""
    return _Installed.tracer


def current_traceparent() -> str:
    """Return the traceparent of the event that the running task handles; empty if it has none."""
    return _current.get()


@contextmanager
def within(traceparent: str) -> Iterator[None]:
    """Let the running task work within a span of another process."""
    token = _current.set(traceparent)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def within_span(span: Span) -> Iterator[Span]:
    """Let the running task work within a span; end it afterwards. If the block raises, it has failed."""
    token = _current.set(span.traceparent)
    try:
        yield span
    except BaseException as error:
        span.fail(type(error).__name__)
        raise
    finally:
        _current.reset(token)
        span.end()


NAMESPACE = "k8s.namespace.name"

_NAMED = {
    "": ("pod", "replicationcontroller"),
    "apps": ("daemonset", "deployment", "replicaset", "statefulset"),
    "batch": ("cronjob", "job"),
}
"""The kinds by API group for which OpenTelemetry defines an attribute of their name."""


def get_name_attribute(group: str, kind: str) -> str | None:
    """Return the attribute of an object's name, such as `k8s.job.name`; None if OpenTelemetry defines none.

    Args:
        group: The API group; empty for the core group.
        kind: The kind, or its plural in lower case.
    """
    name = kind.lower().removesuffix("s")
    return f"k8s.{name}.name" if name in _NAMED.get(group, ()) else None


def note_status(span: Span | None, status: int) -> None:
    """Set the HTTP status of an answer; 4xx and 5xx are failures."""
    if span is not None:
        span.set("http.response.status_code", status)
        if status >= HTTPStatus.BAD_REQUEST:
            span.fail(str(status))
