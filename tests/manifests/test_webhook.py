"""The manifests against what only Knative's webhooks check; and for each rule a manifest that breaks it."""

import copy
from typing import Any

import pytest
import yaml

from tests.manifests.test_manifests import BUILDS, COMPONENTS, KNATIVE, build, with_component
from tests.manifests.webhook import Object, problems

__all__ = ["with_component"]  # a fixture

NOT_IN_THE_START = """
apiVersion: sources.knative.dev/v1
kind: ContainerSource
metadata: {name: watch}
spec:
  template: {spec: {containers: [{name: watch, image: example.com/watch}]}}
  sink: {ref: {apiVersion: eventing.knative.dev/v1, kind: Broker, name: default}}
---
apiVersion: eventing.knative.dev/v1alpha1
kind: EventPolicy
metadata: {name: ours}
spec:
  to: [{ref: {apiVersion: eventing.knative.dev/v1, kind: Broker, name: default}}]
  from: [{ref: {apiVersion: v1, kind: ServiceAccount, name: timers}}, {sub: "system:serviceaccount:ours:*"}]
"""
POD = "spec.template.spec"
CONTAINER = f"{POD}.containers.0"
GONE = object()
EXACT = {"exact": {"type": "a"}}
BAD: list[tuple[str, str, Any, str]] = [
    ("Trigger/expire", "spec.broker", "", "broker"),
    ("Trigger/expire", "spec.filter", {"attributes": {"ce-type": "a"}}, "filter.attributes"),
    ("Trigger/expire", "spec.filters.0", {**EXACT, "prefix": {"type": "a"}}, "filters[0]"),
    ("Trigger/expire", "spec.filters.0", {"any": [EXACT, {"exact": {"Type": "a"}}]}, "filters[0]"),
    ("Trigger/expire", "spec.filters.0", {"not": {**EXACT, "any": [EXACT]}}, "filters[0]"),
    ("Trigger/expire", "spec.filters.0", {"exact": {"type": ""}}, "filters[0]"),
    ("Trigger/expire", "spec.filters.0", {"cesql": "type ="}, "filters[0]"),
    ("Trigger/expire", "spec.subscriber", {}, "subscriber"),
    ("Trigger/expire", "spec.subscriber", {"uri": "/expire"}, "subscriber"),
    ("Trigger/expire", "spec.subscriber.uri", "http://example.com/", "subscriber"),
    ("Trigger/expire", "spec.subscriber.ref.apiVersion", "", "subscriber.ref.apiVersion"),
    ("Trigger/expire", "spec.delivery.retry", -1, "delivery"),
    ("Trigger/expire", "spec.delivery.retries", 3, "delivery"),
    ("Trigger/expire", "spec.delivery.timeout", "30s", "delivery"),
    ("Trigger/expire", "spec.delivery.timeout", "PT0S", "delivery"),
    ("Trigger/expire", "spec.delivery.backoffDelay", "soon", "delivery"),
    ("Trigger/expire", "spec.delivery.backoffPolicy", "quadratic", "delivery"),
    ("Trigger/expire", "spec.delivery.format", "xml", "delivery"),
    ("Trigger/expire", "spec.delivery.retryAfterMax", "PT5S", "delivery.retryAfterMax"),
    (
        "Trigger/expire",
        "spec.delivery.deadLetterSink",
        {"ref": {"kind": "Service"}},
        "delivery.deadLetterSink.ref.name",
    ),
    ("Broker/default", "spec", {"delivery": {"backoffDelay": "1s"}}, "delivery"),
    ("EventPolicy/ours", "spec.from.0", {}, "from[0]"),
    ("EventPolicy/ours", "spec.from.0.sub", "someone", "from[0]"),
    ("EventPolicy/ours", "spec.from.0.ref.name", "", "from[0].ref.name"),
    ("EventPolicy/ours", "spec.from.1.sub", "system:*:timers", "from[1].sub"),
    ("EventPolicy/ours", "spec.to.0", {}, "to[0]"),
    (
        "EventPolicy/ours",
        "spec.to.0.selector",
        {"kind": "Broker", "apiVersion": "v1", "matchLabels": {"a": "b"}},
        "to[0]",
    ),
    ("EventPolicy/ours", "spec.filters", [{**EXACT, "suffix": {"type": "a"}}], "filters[0]"),
    ("ApiServerSource/job", "spec.mode", "Everything", "mode"),
    ("ApiServerSource/job", "spec.resources", [], "resources"),
    ("ApiServerSource/job", "spec.resources.0.kind", " ", "resources[0].kind"),
    ("ApiServerSource/job", "spec.resources.0.apiVersion", "a/b/c", "resources[0].apiVersion"),
    ("ApiServerSource/job", "spec.filters", [EXACT], "filters"),
    ("ApiServerSource/job", "spec.sink", {}, "sink"),
    ("ApiServerSource/job", "spec.ceOverrides", {"extensions": {"Our-Team": "a"}}, "ceOverrides.extensions"),
    ("PingSource/sweep", "spec.schedule", "@every 10m", "schedule"),
    ("PingSource/sweep", "spec.schedule", "*/10 * * *", "schedule"),
    ("PingSource/sweep", "spec.schedule", "0 */10 * * * *", "schedule"),
    ("PingSource/sweep", "spec.schedule", "60 * * * *", "schedule"),
    ("PingSource/sweep", "spec.schedule", "*/0 * * * *", "schedule"),
    ("PingSource/sweep", "spec.schedule", "9-5 * * * *", "schedule"),
    ("PingSource/sweep", "spec.data", "tick", "data"),
    ("PingSource/sweep", "spec.dataBase64", "e30=", "data"),
    ("PingSource/sweep", "spec.sink.ref", GONE, "sink"),
    ("ContainerSource/watch", "spec.sink", GONE, "sink"),
    ("ContainerSource/watch", f"{POD}.containers", [], "template.spec.containers"),
    ("ContainerSource/watch", f"{CONTAINER}.image", GONE, "template.spec.containers[0].image"),
    ("ContainerSource/watch", "spec.sink", {"uri": "broker"}, "sink"),
    ("Service/timers", f"{POD}.terminationGracePeriodSeconds", 30, "terminationGracePeriodSeconds"),
    ("Service/timers", f"{POD}.securityContext", {"runAsNonRoot": True}, "securityContext"),
    ("Service/timers", f"{POD}.affinity", {}, "affinity"),
    ("Service/timers", f"{POD}.nodeSelector", {"a": "b"}, "nodeSelector"),
    ("Service/timers", f"{POD}.tolerations", [], "tolerations"),
    ("Service/timers", f"{POD}.topologySpreadConstraints", [], "topologySpreadConstraints"),
    ("Service/timers", f"{POD}.priorityClassName", "high", "priorityClassName"),
    ("Service/timers", f"{POD}.initContainers", [], "initContainers"),
    ("Service/timers", f"{POD}.automountServiceAccountToken", True, "automountServiceAccountToken"),
    ("Service/timers", f"{POD}.volumes.0.persistentVolumeClaim", {"claimName": "a"}, "volumes.persistentVolumeClaim"),
    ("Service/timers", f"{POD}.volumes.0.hostPath", {"path": "/"}, "volumes.hostPath"),
    ("Service/timers", f"{CONTAINER}.ports", [{"containerPort": 1}, {"containerPort": 2}], "containers.ports"),
    ("Service/timers", f"{CONTAINER}.ports.0.name", "metrics", "containers.ports.name"),
    ("Service/timers", f"{CONTAINER}.securityContext.capabilities.add", ["NET_ADMIN"], "capabilities.add"),
    ("Service/timers", f"{CONTAINER}.securityContext.privileged", True, "privileged"),
    (
        "Service/timers",
        f"{CONTAINER}.env.0",
        {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "b"}}},
        "containers.env",
    ),
    ("Service/timers", f"{CONTAINER}.volumeMounts.0.mountPropagation", "None", "mountPropagation"),
]


@pytest.fixture(
    params=[
        *BUILDS,
        "overlays/cloud-run/cluster",
        *(name for name in COMPONENTS if name.rpartition("/")[2] not in {"release", "standalone"}),
    ]
)
def objects(request, with_component) -> tuple[Object, ...]:
    is_component = request.param.startswith("components/")
    return with_component(request.param) if is_component else build(KNATIVE / request.param)


def test_webhooks_admit_every_manifest(objects):
    found = {f"{obj['kind']} {obj['metadata']['name']}": problems(obj) for obj in objects}
    assert not {name: said for name, said in found.items() if said}


def good(name: str) -> Object:
    """One of ours, that a bad one is made of."""
    objects = [*build(KNATIVE / "overlays/knative"), *yaml.safe_load_all(NOT_IN_THE_START)]
    (found,) = [
        obj
        for obj in objects
        if f"{obj['kind']}/{obj['metadata']['name']}" == name and "knative.dev/" in obj["apiVersion"]
    ]
    return copy.deepcopy(found)


def changed(obj: Object, path: str, value: Any) -> Object:
    *parents, last = path.split(".")
    target: Any = obj
    for part in parents:
        target = target[int(part) if isinstance(target, list) else part]
    key = int(last) if isinstance(target, list) else last
    if value is GONE:
        del target[key]
    else:
        target[key] = value
    return obj


@pytest.mark.parametrize(
    ("name", "path", "value", "said"), BAD, ids=[f"{one[1]}={'' if one[2] is GONE else one[2]}"[:60] for one in BAD]
)
def test_webhooks_reject_an_invalid_manifest(name, path, value, said):
    assert problems(good(name)) == []
    found = problems(changed(good(name), path, value))
    assert any(said in problem for problem in found), found
