"""Every object of every build, as a real API server with Knative's CRDs takes it: strictly, and without a cluster.

A dry run with `fieldValidation=Strict` is the schema, unknown and doubled fields, defaults, and all that the API server
checks of its own kinds in code. What Knative's webhooks add is in test_webhook.py. CRDs of others are not beside the
test servers, so objects of `monitoring.coreos.com` are left out here.
"""

import json
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.devserver.real_servers import RealServer, find_assets, real_server
from shared.installation.kind_manifests import is_watchable, join
from tests.builders import kind_rules
from tests.kubectl import KUBECTL
from tests.manifests.test_manifests import (
    BUILDS,
    COMPONENTS,
    KNATIVE,
    NAMESPACE,
    build,
    of_kind,
    with_component,
)
from tests.manifests.test_webhook import CONTAINER, POD, changed, good
from tests.manifests.webhook import Object
from tests.required import PLACES, required

__all__ = ["with_component"]  # a fixture

pytestmark = pytest.mark.verify  # they need a kube-apiserver, and Knative's CRDs

TAKEN = [*BUILDS, "overlays/cloud-run", "overlays/cloud-run/cluster"]
FOREIGN = {"monitoring.coreos.com"}
KNATIVE_ONLY = {"containerConcurrency", "responseStartTimeoutSeconds", "timeoutSeconds"}
CRDS = ("knative-eventing-config/**/resources/*.yaml", "knative-serving-crds/*.yaml")

BAD: list[tuple[str, str, Any, str]] = [
    ("Trigger/expire", "spec.subscribers", {}, 'unknown field "spec.subscribers"'),
    ("ApiServerSource/job", "spec.kinds", [], 'unknown field "spec.kinds"'),
    ("Trigger/expire", "spec.delivery.retry", "3", "spec.delivery.retry"),
    ("Trigger/expire", "metadata.label", {}, 'unknown field "metadata.label"'),
    ("PingSource/sweep", "spec.sink.reference", {}, 'unknown field "spec.sink.reference"'),
    ("PingSource/sweep", "spec.cron", "* * * * *", 'unknown field "spec.cron"'),
    ("Service/timers", f"{POD}.terminationGracePeriodSeconds", 9, "terminationGracePeriodSeconds"),
    ("Service/timers", f"{CONTAINER}.resource", {}, f'unknown field "{POD}.containers[0].resource"'),
    ("Service/timers", f"{CONTAINER}.ports.0.containerPort", "http", "containerPort"),
    ("Service/timers", f"{CONTAINER}.resources.limits.memory", "lots", "memory"),
    ("Service/timers", f"{CONTAINER}.securityContext.runAsNonroot", True, "runAsNonroot"),
]


@dataclass
class Server:
    """An API server that is asked what it would say."""

    real: RealServer
    _served: dict[str, dict[str, Object]] = field(default_factory=dict)

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        return self.real.ssl

    def refusals(self, obj: Object) -> list[str]:
        """The errors and warnings of the schema for an object."""
        kind = self._kinds(obj["apiVersion"]).get(obj["kind"])
        if kind is None:
            return [f"no kind {obj['kind']} in {obj['apiVersion']}"]
        within = f"/namespaces/{obj['metadata'].get('namespace', 'default')}" if kind["namespaced"] else ""
        status, said, warnings = self._call(
            f"{_root(obj['apiVersion'])}{within}/{kind['name']}?dryRun=All&fieldValidation=Strict", obj
        )
        # A name that is taken is found last, after everything else was found to be right.
        return [*warnings, *([said["message"]] if status >= 300 and said["reason"] != "AlreadyExists" else [])]

    def _kinds(self, api_version: str) -> dict[str, Object]:
        if api_version not in self._served:
            status, said, _ = self._call(_root(api_version))
            served = [one for one in said["resources"] if "/" not in one["name"]] if status == 200 else []
            self._served[api_version] = {one["kind"]: one for one in served}
        return self._served[api_version]

    def _call(self, path: str, body: Object | None = None) -> tuple[int, Any, list[str]]:
        ask = urllib.request.Request(
            self.real.url + path,
            data=json.dumps(body).encode() if body else None,
            headers={"Authorization": f"Bearer {self.real.token}", "Content-Type": "application/json"},
        )
        try:
            answer = urllib.request.urlopen(ask, context=self._trust, timeout=30)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            return answer.status, json.load(answer), answer.headers.get_all("Warning", [])


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def required_knative() -> tuple[Path, list[Path]]:
    """The servers' binaries, and Knative's CRDs beside them; without both the test is skipped, and in CI it fails."""
    assets = find_assets()
    crds = sorted(path for pattern in CRDS for path in assets.glob(pattern)) if assets else []
    has_knative = any("knative-eventing" in str(path) for path in crds)
    reason = f"no kube-apiserver with Knative's CRDs beside it in {PLACES}"
    return required(assets if has_knative else None, reason), crds


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """With Knative's CRDs, and our namespace with what it demands of Pods."""
    assets, crds = required_knative()
    with real_server(assets, fsync=False) as real:
        _kubectl(real, "create", "--filename=-", given=json.dumps(_strict_crds(crds)))
        _kubectl(real, "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
        (namespace,) = of_kind(build(KNATIVE / "base"), "Namespace").values()
        _kubectl(real, "create", "--filename=-", given=json.dumps(namespace))
        _kubectl(real, "create", "namespace", "knative-eventing")
        yield Server(real)


def _strict_crds(paths: list[Path]) -> Object:
    """Where a schema names fields and would keep others as well, Knative's webhook refuses the others.

    Only for a delivery that tells nothing: its schema leaves out some that are known. They are in test_webhook.py.
    """
    crds = [_without_leniency(crd) for path in paths for crd in yaml.safe_load_all(path.read_text())]
    return {"apiVersion": "v1", "kind": "List", "items": [crd for crd in crds if crd]}


def _without_leniency(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_leniency(one) for one in node]
    if not isinstance(node, dict):
        return node
    is_complete = "properties" in node and "backoffPolicy" not in node["properties"]
    lenient = {"x-kubernetes-preserve-unknown-fields"} if is_complete else set()
    return {name: _without_leniency(value) for name, value in node.items() if name not in lenient}


def _kubectl(real: RealServer, *arguments: str, given: str = "") -> None:
    command = [KUBECTL, f"--kubeconfig={real.kubeconfig}", *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _checked(objects: tuple[Object, ...]) -> list[Object]:
    return [obj for obj in objects if obj["apiVersion"].partition("/")[0] not in FOREIGN]


@pytest.mark.parametrize("folder", TAKEN)
def test_every_object_of_a_build_is_accepted(folder, server):
    found = {
        f"{obj['kind']} {obj['metadata']['name']}": server.refusals(obj) for obj in _checked(build(KNATIVE / folder))
    }
    assert found
    assert not {name: said for name, said in found.items() if said}


@pytest.mark.parametrize("component", [name for name in COMPONENTS if name != "components/standalone"])
def test_every_object_of_the_base_with_a_component_is_accepted(component, server, with_component):
    for obj in _checked(with_component(component)):
        assert not server.refusals(obj), f"{obj['kind']} {obj['metadata']['name']}"


def test_every_object_of_the_kind_command_is_accepted(server):
    finishing = [rule for rule in kind_rules().values() if not rule.never_finishes]
    for rule in finishing:
        for one in join([rule], namespace=NAMESPACE, with_source=is_watchable(rule)):
            assert not server.refusals(one.body), one.body["metadata"]["name"]


@pytest.mark.parametrize("folder", BUILDS)
def test_every_pod_is_admitted_by_its_namespace(folder, server):
    pods = [pod_of(obj) for obj in build(KNATIVE / folder) if "containers" in template_of(obj)]
    assert pods
    for pod in pods:
        assert server.refusals(pod) == [], pod["metadata"]["name"]
        unsafe = changed(pod, "spec.containers.0.securityContext", {})
        assert "violates PodSecurity" in server.refusals(unsafe)[0]


def template_of(obj: Object) -> Object:
    found: Object = obj.get("spec", {}).get("template", {}).get("spec", {})
    return found


def pod_of(obj: Object) -> Object:
    """What an object makes, as the API server's own kind: some schemas leave the template open."""
    spec = {name: value for name, value in template_of(obj).items() if name not in KNATIVE_ONLY}
    claims = [claim["metadata"]["name"] for claim in obj["spec"].get("volumeClaimTemplates", [])]
    claimed = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
    spec["volumes"] = [*spec.get("volumes", []), *claimed]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": obj["metadata"]["name"], "namespace": NAMESPACE},
        "spec": {**spec, "containers": [{"name": "function", **container} for container in spec["containers"]]},
    }


@pytest.mark.parametrize(("name", "path", "value", "said"), BAD, ids=[one[1] for one in BAD])
def test_invalid_manifest_is_rejected(name, path, value, said, server):
    assert server.refusals(good(name)) == []
    found = server.refusals(changed(good(name), path, value))
    assert any(said in message for message in found), found


def test_unknown_kind_is_rejected(server):
    trigger = {**good("Trigger/expire"), "kind": "Misspelled"}
    assert server.refusals(trigger) == ["no kind Misspelled in eventing.knative.dev/v1"]
