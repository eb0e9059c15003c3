"""What refers to Secrets and ConfigMaps on a real kube-apiserver: the commands that read it."""

import asyncio
import base64
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.kubernetes.connect import connect
from shared.devserver.real_servers import RealServer
from shared.doctor.findings import Level
from shared.doctor.usage_needs import check_usage
from shared.installation.inventory import OURS, Inventory, Listed
from shared.installation.place import Place
from tests.integration.conftest import Api, run_command
from tests.usage import unused_policy

CONTAINER = {"name": "c", "image": "example.com/x"}
POD_SPEC = {"restartPolicy": "Never", "containers": [CONTAINER]}
CLUSTER_SCOPED = ("PersistentVolume", "ValidatingAdmissionPolicyBinding")
SELECTOR = {"matchLabels": {"app": "web"}}

KUBECTL = shutil.which("kubectl")

Ttl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def controllers() -> list[str]:
    return ["root-ca-certificate-publisher-controller", "clusterrole-aggregation-controller"]


@pytest.fixture
def ttl(server: RealServer, namespace: str, tmp_path: Path) -> Ttl:
    """`kubectl ttl` in the test's namespace, with a policy for it."""
    file = tmp_path / "policy.yaml"
    match = {"kinds": ["configmaps", "secrets"], "namespaces": {"names": [namespace]}}
    unused = {"ttl": "1h", "neverUsed": True}
    file.write_text(json.dumps({"rules": [{"name": "leftovers", "match": match, "unused": unused}]}))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return run_command(server.kubeconfig, *words, "-n", namespace, "--policy", str(file))

    return run


class Objects:
    """Creates objects in a namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace = api, namespace

    def create(self, path: str, name: str, **fields: Any) -> None:
        root, _, plural = path.rpartition("/")
        labels: dict[str, Any] = fields.pop("labels", {})
        body: dict[str, Any] = {"metadata": {"name": name, "labels": labels}, **fields}
        self.api.call("POST", f"{root}/namespaces/{self.namespace}/{plural}", body)

    def secret(self, name: str, **fields: Any) -> None:
        data = {"key": base64.b64encode(b"hidden").decode()}
        self.create("/api/v1/secrets", name, data=data, **fields)

    def config_map(self, name: str, **fields: Any) -> None:
        self.create("/api/v1/configmaps", name, data={"key": "value"}, **fields)


@pytest.fixture
def objects(api: Api, namespace: str) -> Objects:
    return Objects(api, namespace)


def document(answer: subprocess.CompletedProcess[str]) -> Any:
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def template(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"labels": SELECTOR["matchLabels"]}, "spec": {**POD_SPEC, **spec}}


def with_secret(name: str, *, optional: bool = False) -> dict[str, Any]:
    source = {"secretKeyRef": {"name": name, "key": "k", **({"optional": True} if optional else {})}}
    return template(containers=[{**CONTAINER, "env": [{"name": "A", "valueFrom": source}]}])


def cron_job(objects: Objects) -> None:
    volumes = [{"name": "v", "projected": {"sources": [{"configMap": {"name": "used"}}]}}]
    job = {"spec": {"template": template(volumes=volumes)}}
    objects.create("/apis/batch/v1/cronjobs", "monthly", spec={"schedule": "0 0 1 * *", "jobTemplate": job})


def stateful_set_at_zero(objects: Objects) -> None:
    spec: dict[str, Any] = {
        "replicas": 0,
        "selector": SELECTOR,
        "serviceName": "x",
        "template": with_secret("used", optional=True),
    }
    spec["template"]["spec"].pop("restartPolicy")
    objects.create("/apis/apps/v1/statefulsets", "zero", spec=spec)


def tls_of_an_ingress(objects: Objects) -> None:
    backend = {"service": {"name": "x", "port": {"number": 80}}}
    objects.create(
        "/apis/networking.k8s.io/v1/ingresses", "web", spec={"defaultBackend": backend, "tls": [{"secretName": "used"}]}
    )


def persistent_volume(objects: Objects) -> None:
    key = {"name": "used", "namespace": objects.namespace}
    csi = {"driver": "d", "volumeHandle": "h", "nodeStageSecretRef": key}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": csi}
    body = {"metadata": {"name": objects.namespace}, "spec": spec}
    objects.api.call("POST", "/api/v1/persistentvolumes", body)


def parameters_of_a_policy(objects: Objects) -> None:
    param = {"selector": {"matchLabels": {"param": objects.namespace}}, "parameterNotFoundAction": "Allow"}
    spec = {"policyName": "absent", "validationActions": ["Deny"], "paramRef": param}
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    objects.api.call("POST", path, {"metadata": {"name": objects.namespace}, "spec": spec})


@pytest.mark.parametrize(
    ("kind", "refer", "source", "path"),
    [
        ("configmap", cron_job, "CronJob", "spec.jobTemplate.spec.template.spec.volumes[0].projected.sources[0]"),
        ("secret", stateful_set_at_zero, "StatefulSet", "spec.template.spec.containers[0].env[0].valueFrom"),
        ("secret", tls_of_an_ingress, "Ingress", "spec.tls[0].secretName"),
        ("secret", persistent_volume, "PersistentVolume", "spec.csi.nodeStageSecretRef.name"),
        ("configmap", parameters_of_a_policy, "ValidatingAdmissionPolicyBinding", "spec.paramRef.selector"),
    ],
)
def test_references_names_the_field_that_refers(objects, ttl, namespace, kind, refer, source, path):
    if kind == "secret":
        objects.secret("used")
    else:
        objects.config_map("used", labels={"param": namespace})
    refer(objects)

    found = document(ttl("references", f"{kind}/used", "-o", "json"))

    assert len(found["references"]) == 1, found["references"]
    (reference,) = found["references"]
    assert (found["used"], found["decision"], found["reason"]) == (True, "keep", "used")
    assert (reference["kind"], reference["path"][: len(path)]) == (source, path)
    assert reference["namespace"] == (None if source in CLUSTER_SCOPED else namespace)
    assert reference.keys() == {"apiVersion", "kind", "namespace", "name", "path"}
    assert (found["unusedSince"], found["dueAt"]) == (None, None)
    text = ttl("references", kind, "used").stdout
    assert f"used by   {source}" in text
    assert ttl("explain", f"{kind}/used").stdout.splitlines()[:2] == text.splitlines()[:2]


def test_unused_lists_only_what_nothing_refers_to(objects, ttl, namespace):
    tls_of_an_ingress(objects)
    objects.secret("used")
    objects.secret("stale")
    objects.config_map("old-1")
    objects.secret("sh.helm.release.v1.web.v1", type="helm.sh/release.v1")
    root = f"/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt"
    objects.api.wait("the ConfigMap of the root CA", lambda: objects.api.get(root))

    listed = document(ttl("unused", "-o", "json"))
    everything = document(ttl("unused", "--all", "-o", "json"))

    names = {(one["kind"], one["name"], one["keys"]) for one in listed}
    assert names == {("Secret", "stale", 1), ("ConfigMap", "old-1", 1)}
    assert {one["reason"] for one in listed} == {"newly-unused"}
    reasons = {one["name"]: one["reason"] for one in everything if one not in listed}
    assert reasons["sh.helm.release.v1.web.v1"] == "helm-release"
    assert reasons["kube-root-ca.crt"] == "cluster-config"
    text = ttl("unused").stdout
    assert "never seen used: 2" in text
    assert "a rule with neverUsed takes 2 of them" in " ".join(text.split())
    assert "its bytes are unknown" in text


def test_plan_counts_what_rules_with_unused_would_delete(objects, ttl):
    objects.config_map("old-1")

    compared = ttl("plan")
    planned = document(ttl("plan", "-o", "json"))

    assert compared.returncode == 0, compared.stderr
    assert "0 due now, 0 due later, 1 not marked yet" in compared.stdout
    assert [(one["name"], one["decision"]) for one in planned["unused"]] == [("old-1", "mark")]


def test_kind_that_cannot_be_listed_makes_the_answer_unknown(objects, server, namespace, tmp_path):
    objects.config_map("old-1")
    kubeconfig = limited(objects, server, tmp_path, ["configmaps", "secrets", "namespaces", "pods"])

    one = run_command(kubeconfig, "references", "cm/old-1", "-n", namespace, "-o", "json")
    listed = run_command(kubeconfig, "unused", "-n", namespace)

    found = json.loads(one.stdout)
    assert (one.returncode, found["used"], found["reason"]) == (1, None, "not-enabled")
    assert "cannot be listed" in found["problem"]
    assert listed.returncode == 1
    assert "it is unknown what is unused" in listed.stderr


def limited(objects: Objects, server: RealServer, folder: Path, resources: list[str]) -> Path:
    """The kubeconfig of a ServiceAccount that may read only these kinds."""
    name, api = objects.namespace, objects.api
    objects.create("/api/v1/serviceaccounts", "limited")
    rules = [{"apiGroups": [""], "resources": resources, "verbs": ["get", "list"]}]
    role = "/apis/rbac.authorization.k8s.io/v1"
    api.call("POST", f"{role}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "limited", "namespace": name}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    body = {"metadata": {"name": name}, "subjects": [subject], "roleRef": ref}
    api.call("POST", f"{role}/clusterrolebindings", body)
    token = api.call("POST", f"/api/v1/namespaces/{name}/serviceaccounts/limited/token", {"spec": {}})
    text = server.kubeconfig.read_text().replace(server.token, token["status"]["token"])
    kubeconfig = folder / "limited"
    kubeconfig.write_text(text)
    return kubeconfig


@pytest.mark.anyio
async def test_doctor_names_the_carriers_that_an_account_may_not_list(objects, server, namespace):
    objects.create("/api/v1/serviceaccounts", "usage")
    workload = {
        "metadata": {"name": "usage", "labels": OURS},
        "spec": {"template": {"spec": {"serviceAccountName": "usage"}}},
    }
    found = Inventory({"Deployment": Listed((workload,))})
    place = Place(namespace, "knative")
    cluster = await connect(kubeconfig=str(server.kubeconfig))
    policy = unused_policy()

    rule, guard, rights = await check_usage(cluster, found, policy, place)
    if KUBECTL is not None:
        environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig)}
        fix = await asyncio.create_subprocess_shell(rights.fix, env=environment)
        assert await asyncio.wait_for(fix.wait(), 60) == 0
        *_, granted = await check_usage(cluster, found, policy, place)
        assert (granted.level, "list on all" in granted.detail) == (Level.OK, True), granted
    await cluster.close()

    assert (rule.level, guard.what, rights.level) == (Level.WARN, "usage guard missing", Level.FAIL)
    assert "no operator has accepted its plan" in rule.detail
    assert "nothing unused is deleted" in rights.detail
    assert "pods" in rights.fix.partition("--resource=")[2]
    assert f"--serviceaccount={namespace}:usage" in rights.fix
