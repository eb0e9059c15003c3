"""The names of the attributes that several spans have.

Sources: https://opentelemetry.io/docs/specs/semconv/resource/k8s/ and
https://opentelemetry.io/docs/specs/semconv/http/http-spans/.
"""

from http import HTTPStatus

from shared.adapters.tracing.current import Span

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
