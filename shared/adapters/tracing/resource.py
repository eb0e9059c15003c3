"""What sends traces and metrics, in the attributes of OpenTelemetry; only a process that sends them imports it.

Source: https://opentelemetry.io/docs/specs/semconv/resource/service/.
"""

import uuid

from opentelemetry.sdk.resources import Resource

from shared import __version__

_NAMESPACE = "ttl-after-finished"


def build_resource(function: str) -> Resource:
    """Make the resource of this process; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.

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
