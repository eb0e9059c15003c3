"""Unused Secrets and ConfigMaps on a real Knative: a Deployment that rotates its ConfigMaps, and the rights of `usage`.

The deployment controller of Kubernetes cuts the history of the Deployment. A PingSource ticks every five seconds. The
cluster has kinds that the components do not let `usage` list: those of Knative. The tests build on each other, in this
order.
"""

import base64
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.safeguards.state_schema import NAME as STATE
from tests.e2e import installation, listener
from tests.e2e.cluster import DOMAIN, create, get, kubectl, pod_spec, wait
from tests.e2e.installation import events, log_of, ttl
from tests.e2e.rights import Right, asked, audit_log, granted
from tests.e2e.ticks import wait_until_delivered, wait_until_ticking

NAMESPACE = "ttl-e2e-unused"
TICK_SECONDS, TTL_SECONDS = 5, 10
ROLLOUTS, HISTORY = 6, 2
CONTENT = "canary-of-a-secret-that-no-process-may-read"

POLICY = f"""
apiVersion: ttlafterfinished.dev/v1
kind: Policy
rules:
  - name: rotated
    match: {{kinds: [configmaps, secrets], namespaces: {{names: [{NAMESPACE}]}}}}
    unused: {{ttl: {TTL_SECONDS}s, neverUsed: true}}
"""

TICK = {
    "target": {"group": "sources.knative.dev", "kind": "PingSource", "name": "usage"},
    "patch": json.dumps([{"op": "replace", "path": "/spec/schedule", "value": f"*/{TICK_SECONDS} * * * * *"}]),
}

Object = dict[str, Any]


# The cluster, and the installation


@pytest.fixture(scope="module", autouse=True)
def objects() -> Iterator[None]:
    """What is used, what is never deleted, and what nothing uses, before the installation."""
    kubectl("create", "namespace", NAMESPACE)
    wait("the ServiceAccount default", lambda: get("serviceaccount", "default", namespace=NAMESPACE))
    for name in ("leftover", "held"):
        config_map(name)
    for name in ("leftover", "tls", "pull"):
        secret(name)
    secret("sh.helm.release.v1.web.v1", type="helm.sh/release.v1")
    token = {"kubernetes.io/service-account.name": "default"}
    make("v1", "Secret", "token", annotations=token, type="kubernetes.io/service-account-token")
    kubectl("-n", NAMESPACE, "annotate", "configmap", "held", f"{DOMAIN}/hold=read by a script")
    make("v1", "ServiceAccount", "builder", imagePullSecrets=[{"name": "pull"}])
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    ingress = {"tls": [{"secretName": "tls"}], "defaultBackend": backend}
    make("networking.k8s.io/v1", "Ingress", "web", spec=ingress)
    yield
    kubectl("delete", "namespace", NAMESPACE, "--timeout=180s")


@pytest.fixture(scope="module", autouse=True)
def installed(objects: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An overlay of a user's own, from its first tick on; in the end it is uninstalled."""
    installation.prepare()
    policy = tmp_path_factory.mktemp("policy") / "policy.yaml"
    policy.write_text(POLICY)
    folder = installation.overlay(
        tmp_path_factory.mktemp("unused"),
        components=["usage", "usage-guard", "policy"],
        settings={"TTL_USAGE_INTERVAL": f"{TICK_SECONDS}s"},
        files={"policy": [policy]},
    )
    tick_fast(folder / "kustomization.yaml")
    installation.apply(folder)
    installation.wait_until_ready()
    listener.listen("dev.ttlafterfinished.object.deleted")
    wait_until_delivered()
    wait_until_ticking("usage", lambda: ended() > 0)
    yield folder
    installation.uninstall(folder)


def tick_fast(file: Path) -> None:
    kustomization = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump(kustomization | {"patches": [TICK]}))


# Objects


def make(api_version: str, kind: str, name: str, *, annotations: Any = None, **fields: Any) -> Object:
    metadata = {"name": name, "namespace": NAMESPACE, "annotations": annotations or {}}
    return create({"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields})


def config_map(name: str) -> Object:
    return make("v1", "ConfigMap", name, data={"key": CONTENT})


def secret(name: str, **fields: Any) -> Object:
    return make("v1", "Secret", name, stringData={"key": CONTENT}, **fields)


def names(kind: str) -> set[str]:
    listed = json.loads(kubectl("-n", NAMESPACE, "get", kind, "-o", "json"))["items"]
    return {one["metadata"]["name"] for one in listed}


def annotations_of(kind: str, name: str) -> dict[str, str]:
    found: dict[str, str] = get(kind, name, namespace=NAMESPACE)["metadata"].get("annotations") or {}
    return found


def template(generation: int) -> Object:
    """Pods that read a generation of the ConfigMap, and a Secret."""
    spec = pod_spec("sleep 3600") | {"restartPolicy": "Always", "terminationGracePeriodSeconds": 0}
    spec["containers"][0]["env"] = [
        {"name": "SETTING", "valueFrom": {"configMapKeyRef": {"name": f"settings-{generation}", "key": "key"}}},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "env", "key": "key"}}},
    ]
    return {"metadata": {"labels": {"app": "web"}}, "spec": spec}


def generations() -> set[str]:
    """Those that a ReplicaSet names."""
    sets = json.loads(kubectl("-n", NAMESPACE, "get", "replicasets", "-o", "json"))["items"]
    envs = (one["spec"]["template"]["spec"]["containers"][0]["env"][0] for one in sets)
    return {env["valueFrom"]["configMapKeyRef"]["name"] for env in envs}


def ticks(count: int) -> None:
    """Wait for some more ticks."""
    before = ended()
    wait(f"{count} ticks", lambda: ended() >= before + count, 120)


def ended() -> int:
    return log_of("usage").count('"usage ended"')


def carriers() -> Object | None:
    """What `doctor` says about the rights of `usage` to list what may refer."""
    found = json.loads(ttl("doctor", "-o", "json").stdout)
    return next((one for one in found if one["check"] == "rights of usage on carriers"), None)


# Nothing is deleted while a kind is unknown


def test_nothing_is_marked_while_a_kind_cannot_be_listed() -> None:
    ticks(2)
    assert "pass not complete" in log_of("usage")
    time.sleep(TTL_SECONDS)
    ticks(1)
    assert annotations_of("configmap", "leftover") == annotations_of("secret", "leftover") == {}


@pytest.fixture(scope="module")
def allowed(installed: Path) -> Iterator[int]:
    """The rights that `doctor` prints; how many lines the audit log had when they were in force."""
    assert installed
    assert "pass not complete" in log_of("usage")  # the process says "again" only after that
    said = wait("doctor's finding", carriers)
    assert (said["level"], "may not list" in said["detail"]) == ("fail", True), said
    installation.run(said["fix"])
    wait("a complete pass", lambda: "pass complete again" in log_of("usage"), 120)
    log = audit_log()
    yield len(log.read_text().splitlines()) if log else 0
    for kind, name in re.findall(r"create (clusterrole|clusterrolebinding) (\S+)", said["fix"]):
        kubectl("delete", kind, name)


def test_doctor_reports_all_carriers_after_its_command(allowed: int) -> None:
    assert allowed >= 0
    said = wait("doctor's finding", carriers)
    assert said["level"] == "ok", said


# What goes, and what stays


@pytest.mark.usefixtures("allowed")
@pytest.mark.parametrize("kind", ["configmap", "secret"])
def test_unused_object_is_marked_then_announced_then_deleted(kind: str) -> None:
    def is_gone_or_has(annotation: str) -> bool:
        found = get(kind, "leftover", namespace=NAMESPACE)
        return found is None or f"{DOMAIN}/{annotation}" in (found["metadata"].get("annotations") or {})

    wait("the mark", lambda: is_gone_or_has("unused-since"))
    wait("the announcement", lambda: is_gone_or_has("deleted-after"))
    wait("the deletion", lambda: "leftover" not in names(kind))


@pytest.mark.usefixtures("allowed")
def test_exactly_the_generations_that_no_replicaset_names_go() -> None:
    config_map("settings-1")
    secret("env")
    spec = {"replicas": 1, "revisionHistoryLimit": HISTORY, "selector": {"matchLabels": {"app": "web"}}}
    make("apps/v1", "Deployment", "web", spec={**spec, "template": template(1)})
    for generation in range(2, ROLLOUTS + 1):
        config_map(f"settings-{generation}")
        change = json.dumps({"spec": {"template": template(generation)}})
        kubectl("-n", NAMESPACE, "patch", "deployment", "web", "--type=merge", "-p", change)
        kubectl("-n", NAMESPACE, "rollout", "status", "deployment/web", "--timeout=2m")
    kept = {f"settings-{generation}" for generation in range(ROLLOUTS - HISTORY, ROLLOUTS + 1)}
    wait("the history to be cut", lambda: generations() == kept)
    wait("the deletion of the others", lambda: names("configmaps") == kept | {"held", "kube-root-ca.crt"}, 120)
    ticks(TTL_SECONDS // TICK_SECONDS + 2)
    assert generations() == kept
    assert names("configmaps") == kept | {"held", "kube-root-ca.crt"}


@pytest.mark.usefixtures("allowed")
def test_everything_that_is_used_or_protected_stays() -> None:
    assert names("secrets") == {"tls", "pull", "env", "token", "sh.helm.release.v1.web.v1"}
    for kind in ("configmap", "secret"):
        marked = {name for name in names(kind) if f"{DOMAIN}/unused-since" in annotations_of(kind, name)}
        assert marked == set(), kind


@pytest.mark.usefixtures("allowed")
def test_each_deletion_arrives_at_the_broker() -> None:
    settings = {("ConfigMap", f"settings-{generation}") for generation in range(1, ROLLOUTS - HISTORY)}
    gone = settings | {("ConfigMap", "leftover"), ("Secret", "leftover")}
    wait(f"the events about {gone}", lambda: set(heard()) == gone)
    written = json.loads(kubectl("-n", NAMESPACE, "get", "events", "-o", "json"))["items"]
    about = (one["involvedObject"] for one in written if one["reason"] == "UnusedDeleted")
    assert {(one["kind"], one["name"]) for one in about} == gone
    assert events("BreakerOpen") == []


def heard() -> Iterator[tuple[str, str]]:
    """Kind and name of the objects of this test about which the listener heard."""
    for line in listener.heard().splitlines():
        if "{" in line:
            body, _ = json.JSONDecoder().raw_decode(line[line.index("{") :])
            if body["ref"]["namespace"] == NAMESPACE:
                yield body["ref"]["kind"], body["ref"]["name"]


# Rights, and what is read with them


IDLE = {
    ("create", "", "events"): "an Event of core/v1 is written only when the breaker opens",
    ("update", "", "configmaps"): "a deletion is written with a later read of the shared state, for the next deletion",
    ("get", "", "namespaces"): "a tick lists all namespaces, and gets one only if the LIST is old or lacks it",
    ("get", "", "secrets"): "a Secret is read whole only if a policy rule archives it",
    ("list", "coordination.k8s.io", "*"): "Leases refer to nothing; a later Kubernetes may have further kinds there",
    ("list", "discovery.k8s.io", "*"): "EndpointSlices refer to nothing; likewise",
    ("list", "events.k8s.io", "*"): "Events refer to nothing; likewise",
    ("list", "rbac.authorization.k8s.io", "*"): "a Role that names a Secret does not use it; likewise",
}
"""Rights that may stay unused here, and why they are granted."""


def test_rights_of_usage_are_sufficient_and_all_used(allowed: int) -> None:
    log = audit_log()
    if log is None:
        pytest.skip("needs the API server's audit log: see audit-policy.yaml")
    calls = asked(log, installation=installation.NAMESPACE, since=allowed)["usage"]
    assert [right for right, statuses in calls.items() if 403 in statuses] == []
    may = granted("usage", installation=installation.NAMESPACE, namespace=installation.NAMESPACE)
    assert [right for right in calls if not may & {right, (*right[:2], "*")}] == []
    served = listable()
    due = {right for right in may if right[0] != "list" or right[1:] in served}
    assert set(IDLE) <= due
    assert {right for right in due if not is_used(right, set(calls))} <= set(IDLE)


def listable() -> set[tuple[str, str]]:
    """The API group and the resource of each kind that the cluster can list, and `*` for each group with one."""
    lines = kubectl("api-resources", "--verbs=list", "-o", "name").split()
    kinds = {(group, plural) for plural, _, group in (line.partition(".") for line in lines)}
    return kinds | {(group, "*") for group, _ in kinds}


def is_used(right: Right, used: set[Right]) -> bool:
    verb, group, resource = right
    return right in used or (resource == "*" and any(one[:2] == (verb, group) for one in used))


@pytest.mark.usefixtures("allowed")
def test_no_answer_to_usage_has_data_of_a_secret_or_a_config_map() -> None:
    log = audit_log()
    if log is None:
        pytest.skip("needs the API server's audit log: see audit-policy.yaml")
    calls = [call for call in map(json.loads, log.read_text().splitlines()) if is_about_data(call)]
    assert {call["verb"] for call in calls} == {"list", "patch", "delete"}
    for call in calls:
        assert call["level"] == "RequestResponse", call["requestURI"]
        answer = call["responseObject"]
        assert answer["kind"] in {"Table", "PartialObjectMetadata", "Status"}, call["requestURI"]
        for row in answer.get("rows") or ():  # the answer to a write has rows without objects
            assert set(row["object"] or {}) <= {"kind", "apiVersion", "metadata"}, call["requestURI"]
        text = json.dumps(call)
        assert CONTENT not in text
        assert base64.b64encode(CONTENT.encode()).decode() not in text


def is_about_data(call: Object) -> bool:
    """Whether `usage` asked for Secrets or ConfigMaps, except for the shared state, which is ours."""
    ref = call.get("objectRef", {})
    is_ours = call["user"]["username"] == f"system:serviceaccount:{installation.NAMESPACE}:usage"
    return is_ours and ref.get("resource") in {"secrets", "configmaps"} and ref.get("name") != STATE
