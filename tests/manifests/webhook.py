"""The checks of Knative's webhooks beyond its schemas, as far as they concern these manifests.

The schemas are loose; the real checks are in Go, behind webhooks that only a whole Knative serves. So they are said
again here, with all feature flags as they come. Some are ours, where Knative takes what does not work or is not wanted
here: an empty value in a filter, a filter in SQL, a schedule with seconds.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import ValidationError

from shared.standalone.triggers import Delivery, Filter

Object = dict[str, Any]

_ATTRIBUTE = re.compile("[a-z][a-z0-9]*")
_EXTENSION = re.compile("[a-z0-9]+")
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_SERVED = {
    "automountServiceAccountToken",
    "containerConcurrency",
    "containers",
    "enableServiceLinks",
    "idleTimeoutSeconds",
    "imagePullSecrets",
    "responseStartTimeoutSeconds",
    "serviceAccountName",
    "timeoutSeconds",
    "volumes",
}
"""What a Pod of Knative Serving may say; all else is unknown to it, or behind a feature flag that is off."""
_VOLUMES = {"name", "configMap", "emptyDir", "projected", "secret"}
_PORT_NAMES = {"", "h2c", "http1"}


def problems(obj: Object) -> list[str]:
    """The refusals of a webhook for an object: the field and its error. Empty for kinds without a webhook."""
    group = obj["apiVersion"].rpartition("/")[0]
    check = _CHECKS.get((group, obj["kind"]))
    return list(check(obj.get("spec", {}))) if check else []


# Eventing


def _broker(spec: Object) -> Iterator[str]:
    yield from _delivery(spec)


def _trigger(spec: Object) -> Iterator[str]:
    if not spec.get("broker"):
        yield "broker: expected its name"
    for name in spec.get("filter", {}).get("attributes", {}):
        if not _ATTRIBUTE.fullmatch(name):
            yield f"filter.attributes: {name} is no attribute's name"
    yield from _filters(spec)
    yield from _destination("subscriber", spec.get("subscriber"))
    yield from _delivery(spec)


def _filters(spec: Object) -> Iterator[str]:
    for number, one in enumerate(spec.get("filters", [])):
        try:
            Filter.model_validate(one)
        except ValidationError as error:
            yield f"filters[{number}]: {error}"


def _delivery(spec: Object) -> Iterator[str]:
    delivery = spec.get("delivery", {})
    if "retryAfterMax" in delivery:
        yield "delivery.retryAfterMax: behind a feature flag"
    if "deadLetterSink" in delivery:
        yield from _destination("delivery.deadLetterSink", delivery["deadLetterSink"])
    try:
        Delivery.model_validate(delivery)
    except ValidationError as error:
        yield f"delivery: {error}"


def _destination(field: str, destination: Object | None) -> Iterator[str]:
    ref, uri = (destination or {}).get("ref"), (destination or {}).get("uri", "")
    if ref is None and not re.match(r"\w+://[^/]", uri):
        yield f"{field}: expected a ref or an absolute uri"
    if ref is not None:
        if "://" in uri:
            yield f"{field}: expected a ref or an absolute uri, got both"
        for name in ("apiVersion", "kind", "name"):
            if not ref.get(name):
                yield f"{field}.ref.{name}: expected one"


def _event_policy(spec: Object) -> Iterator[str]:
    for side, choices in (("from", ("ref", "sub")), ("to", ("ref", "selector"))):
        for number, one in enumerate(spec.get(side, [])):
            if len(given := [choice for choice in choices if one.get(choice)]) != 1:
                yield f"{side}[{number}]: expected one of {choices}, got {given}"
            if one.get("ref"):
                yield from _destination(f"{side}[{number}]", one)
            if "*" in one.get("sub", "")[:-1]:
                yield f"{side}[{number}].sub: * only at its end"
    yield from _filters(spec)


# Sources


def _source(spec: Object) -> Iterator[str]:
    yield from _destination("sink", spec.get("sink"))
    for name in spec.get("ceOverrides", {}).get("extensions", {}):
        if not _EXTENSION.fullmatch(name):
            yield f"ceOverrides.extensions: {name} is no extension's name"


def _api_server_source(spec: Object) -> Iterator[str]:
    if spec.get("mode", "Reference") not in {"Reference", "Resource"}:
        yield "mode: expected Reference or Resource"
    if not spec.get("resources"):
        yield "resources: expected some"
    for number, one in enumerate(spec.get("resources", [])):
        if not one.get("kind", "").strip():
            yield f"resources[{number}].kind: expected one"
        if one.get("apiVersion", "").count("/") > 1:
            yield f"resources[{number}].apiVersion: expected GROUP/VERSION"
    if spec.get("filters"):
        yield "filters: behind a feature flag"
    yield from _source(spec)


def _ping_source(spec: Object) -> Iterator[str]:
    if not _is_cron(spec.get("schedule", "")):
        yield "schedule: expected the five fields of cron"
    if "data" in spec and "dataBase64" in spec:
        yield "data: expected one of data and dataBase64"
    if spec.get("contentType") == "application/json" and spec.get("data") and not _is_json_object(spec["data"]):
        yield "data: expected a JSON object"
    yield from _source(spec)


def _is_cron(schedule: str) -> bool:
    fields = schedule.split()
    return len(fields) == len(_RANGES) and all(
        _is_cron_part(part, *bounds) for field, bounds in zip(fields, _RANGES, strict=True) for part in field.split(",")
    )


def _is_cron_part(part: str, least: int, most: int) -> bool:
    found = re.fullmatch(r"(?:\*|(\d+)(?:-(\d+))?)(?:/([1-9]\d*))?", part)
    if not found:
        return False
    first, last = (int(found[1]), int(found[2] or found[1])) if found[1] else (least, most)
    return least <= first <= last <= most


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _container_source(spec: Object) -> Iterator[str]:
    containers = spec.get("template", {}).get("spec", {}).get("containers", [])
    if not containers:
        yield "template.spec.containers: expected some"
    for number, container in enumerate(containers):
        if not container.get("image"):
            yield f"template.spec.containers[{number}].image: expected one"
    yield from _source(spec)


# Serving


def _service(spec: Object) -> Iterator[str]:
    pod = spec["template"]["spec"]
    for name in sorted(pod.keys() - _SERVED):
        yield f"template.spec.{name}: not of a Knative Service, or behind a feature flag"
    if pod.get("automountServiceAccountToken"):
        yield "template.spec.automountServiceAccountToken: expected false, or nothing"
    for volume in pod.get("volumes", []):
        for name in sorted(volume.keys() - _VOLUMES):
            yield f"template.spec.volumes.{name}: behind a feature flag"
    yield from _ports([port for container in pod["containers"] for port in container.get("ports", [])])
    for container in pod["containers"]:
        yield from _served_container(container)


def _ports(ports: list[Object]) -> Iterator[str]:
    if len(ports) > 1:
        yield f"template.spec.containers.ports: expected one, got {len(ports)}"
    for port in ports:
        if port.get("name", "") not in _PORT_NAMES:
            yield f"template.spec.containers.ports.name: expected one of {sorted(_PORT_NAMES)}, got {port['name']}"


def _served_container(container: Object) -> Iterator[str]:
    security = container.get("securityContext", {})
    if security.get("capabilities", {}).get("add"):
        yield "template.spec.containers.securityContext.capabilities.add: behind a feature flag"
    if security.get("privileged"):
        yield "template.spec.containers.securityContext.privileged: expected false, or nothing"
    for variable in container.get("env", []):
        if variable.get("valueFrom", {}).keys() & {"fieldRef", "resourceFieldRef"}:
            yield f"template.spec.containers.env: {variable['name']} is behind a feature flag"
    if any("mountPropagation" in mount for mount in container.get("volumeMounts", [])):
        yield "template.spec.containers.volumeMounts.mountPropagation: behind a feature flag"


_CHECKS: dict[tuple[str, str], Callable[[Object], Iterator[str]]] = {
    ("eventing.knative.dev", "Broker"): _broker,
    ("eventing.knative.dev", "EventPolicy"): _event_policy,
    ("eventing.knative.dev", "Trigger"): _trigger,
    ("serving.knative.dev", "Service"): _service,
    ("sources.knative.dev", "ApiServerSource"): _api_server_source,
    ("sources.knative.dev", "ContainerSource"): _container_source,
    ("sources.knative.dev", "PingSource"): _ping_source,
}
