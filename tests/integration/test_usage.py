"""Unused Secrets and ConfigMaps on a real kube-apiserver with real Deployments, through `run` as a user starts it."""

import base64
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.core.usage.mark import ANNOUNCEMENT_MANAGER, MARK_MANAGER, USE_MANAGER
from shared.devserver.real_servers import RealServer, find_assets
from shared.safeguards.state_schema import NAME as STATE
from tests.integration.conftest import Api, Run, run_command

Start = Callable[..., Run]
DOMAIN = "ttlafterfinished.dev"
RECORD = f"{DOMAIN}/used-at"
TTL_SECONDS = 3
WAIT_SECONDS = 60
CONTENT = "xq7-content-of-a-secret-that-no-process-may-read"
AUDIT_POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: RequestResponse, userGroups: [system:masters], resources: [{resources: [secrets, configmaps]}]}
  - {level: RequestResponse, resources: [{resources: [secrets, configmaps]}]}
"""
POLICY = """
apiVersion: ttlafterfinished.dev/v1
kind: Policy
rules:
  - name: rotated
    match: {kinds: [configmaps, secrets], namespaces: {names: [%s]}}
    unused: {ttl: %s, neverUsed: %s}
"""


@pytest.fixture(scope="module")
def controllers() -> list[str]:
    return [
        "deployment-controller",
        "replicaset-controller",
        "root-ca-certificate-publisher-controller",
        "serviceaccount-controller",
    ]


@pytest.fixture(scope="module")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, controllers: list[str], audit_log: Path) -> Iterator[RealServer]:
    """With an audit log that has the answers to all requests for Secrets and ConfigMaps."""
    assets = find_assets()
    if assets is None or not (assets / "kube-controller-manager").exists():
        pytest.skip("no kube-apiserver, etcd and kube-controller-manager")
    policy = audit_log.with_name("policy.yaml")
    policy.write_text(AUDIT_POLICY)
    arguments = (f"--audit-policy-file={policy}", f"--audit-log-path={audit_log}", "--audit-log-batch-max-wait=1s")
    server = RealServer(assets, tmp_path_factory.mktemp("real"), fsync=False, apiserver_args=arguments)
    try:
        server.start_controllers(controllers, qps=200, burst=400)
        yield server
    finally:
        server.stop()


class Opted:
    """Secrets and ConfigMaps in a namespace that has opted in."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self.path = f"/api/v1/namespaces/{namespace}"
        api.call("PATCH", self.path, {"metadata": {"annotations": {f"{DOMAIN}/unused": "true"}}})

    def post(self, path: str, **obj: Any) -> Any:
        return self.api.call("POST", path, obj)

    def config_map(self, name: str, *, metadata: dict[str, Any] | None = None, **fields: Any) -> Any:
        metadata = {"name": name} | (metadata or {})
        return self.post(f"{self.path}/configmaps", metadata=metadata, data={"key": name}, **fields)

    def secret(self, name: str, *, metadata: dict[str, Any] | None = None, **fields: Any) -> Any:
        metadata = {"name": name} | (metadata or {})
        return self.post(f"{self.path}/secrets", **{"metadata": metadata, "stringData": {"key": CONTENT}} | fields)

    def apps(self, plural: str, name: str, pod: Any, **spec: Any) -> Any:
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": pod}
        body = {"selector": {"matchLabels": labels}, "template": template, "replicas": 0, **spec}
        return self.post(f"/apis/apps/v1/namespaces/{self.namespace}/{plural}", metadata={"name": name}, spec=body)

    def names(self, plural: str) -> set[str]:
        items = self.api.call("GET", f"{self.path}/{plural}")["items"]
        return {one["metadata"]["name"] for one in items} - {"kube-root-ca.crt", STATE}

    def recorded(self) -> set[str]:
        """The ConfigMaps whose use is recorded."""
        items = self.api.call("GET", f"{self.path}/configmaps")["items"]
        return {one["metadata"]["name"] for one in items if RECORD in (one["metadata"].get("annotations") or {})}

    def await_names(self, plural: str, names: set[str]) -> None:
        try:
            self.api.wait(f"{plural} {names}", lambda: self.names(plural) == names, WAIT_SECONDS)
        except AssertionError:
            assert self.names(plural) == names  # pytest says which are missing, and which are too many
            raise

    def ticks(self, run: Run, count: int) -> None:
        """Wait for some more ticks."""
        before = run.text.count("usage ended")
        self.api.wait("ticks", lambda: run.text.count("usage ended") >= before + count, WAIT_SECONDS)


def pod_with(volume: Any = None, env: Any = None) -> Any:
    container = {"name": "main", "image": "nginx", "env": env or []}
    return {"containers": [container], "volumes": [volume] if volume else []}


def of_config_map(name: str) -> Any:
    return pod_with({"name": "settings", "configMap": {"name": name}})


@pytest.fixture
def opted(api: Api, namespace: str) -> Opted:
    return Opted(api, namespace)


@pytest.fixture
def start(start_run: Start, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    monkeypatch.setenv("TTL_USAGE_INTERVAL", "2s")

    def start(ttl: str = f"{TTL_SECONDS}s", *, never_used: bool = True, **options: Any) -> Run:
        policy = tmp_path / "policy.yaml"
        policy.write_text(POLICY % (namespace, ttl, json.dumps(never_used)))
        return start_run("--policy", str(policy), "--verbose", **options)

    return start


def test_ten_rollouts_leave_exactly_the_generations_that_a_replicaset_names(opted: Opted, start: Start) -> None:
    run = start(never_used=False)
    opted.config_map("settings-1")
    opted.apps("deployments", "web", of_config_map("settings-1"), revisionHistoryLimit=3)
    path = f"/apis/apps/v1/namespaces/{opted.namespace}"
    for generation in range(1, 11):
        name = f"settings-{generation}"
        if generation > 1:
            opted.config_map(name)
            change = {"spec": {"template": {"spec": of_config_map(name)}}}
            opted.api.call("PATCH", f"{path}/deployments/web", change)
        opted.api.wait(f"the rollout {generation}", lambda n=name: n in named_by_replica_sets(opted), WAIT_SECONDS)
        opted.api.wait(f"the record of {name}", lambda n=name: n in opted.recorded(), WAIT_SECONDS)
    opted.api.wait("the history to be cut", lambda: len(named_by_replica_sets(opted)) == 4, WAIT_SECONDS)
    assert named_by_replica_sets(opted) == {f"settings-{generation}" for generation in (7, 8, 9, 10)}

    opted.await_names("configmaps", named_by_replica_sets(opted))
    opted.ticks(run, 3)
    assert opted.names("configmaps") == {f"settings-{generation}" for generation in (7, 8, 9, 10)}
    events = opted.api.call("GET", f"{opted.path}/events")["items"]
    deleted = [one["involvedObject"]["name"] for one in events if one["reason"] == "UnusedDeleted"]
    assert sorted(deleted) == [f"settings-{generation}" for generation in range(1, 7)]


def named_by_replica_sets(opted: Opted) -> set[str]:
    sets = opted.api.call("GET", f"/apis/apps/v1/namespaces/{opted.namespace}/replicasets")["items"]
    return {one["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] for one in sets}


def test_everything_that_is_used_or_read_elsewhere_stays(opted: Opted, start: Start) -> None:
    stay = use_in_every_way(opted)
    opted.config_map("gone")
    opted.secret("gone")

    run = start()

    opted.await_names("secrets", stay["secrets"])
    opted.await_names("configmaps", stay["configmaps"])
    opted.ticks(run, 3)
    assert opted.names("secrets") == stay["secrets"]
    assert opted.names("configmaps") == stay["configmaps"]
    assert opted.api.get(f"{opted.path}/configmaps/kube-root-ca.crt")


def use_in_every_way(opted: Opted) -> dict[str, set[str]]:
    """Secrets and ConfigMaps that have to stay."""
    opted.secret("pull")
    opted.post(f"{opted.path}/serviceaccounts", metadata={"name": "builder"}, imagePullSecrets=[{"name": "pull"}])
    # Not of `default`: until its controller has made that one, Kubernetes deletes the Secret of its token at once.
    token = {"annotations": {"kubernetes.io/service-account.name": "builder"}}
    opted.secret("helm", type="helm.sh/release.v1")
    opted.secret("token", type="kubernetes.io/service-account-token", metadata=token)
    opted.secret("tls")
    ingress = {"tls": [{"secretName": "tls"}], "defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}
    opted.post(
        f"/apis/networking.k8s.io/v1/namespaces/{opted.namespace}/ingresses", metadata={"name": "web"}, spec=ingress
    )
    opted.config_map("monthly")
    job = {"template": {"spec": of_config_map("monthly") | {"restartPolicy": "Never"}}}
    cron = {"schedule": "0 0 1 * *", "jobTemplate": {"spec": job}}
    opted.post(f"/apis/batch/v1/namespaces/{opted.namespace}/cronjobs", metadata={"name": "monthly"}, spec=cron)
    opted.config_map("at-zero")
    opted.apps("statefulsets", "db", of_config_map("at-zero"), serviceName="db")
    opted.config_map("optional")
    ref = {"name": "optional", "key": "key", "optional": True}
    env = [{"name": "A", "valueFrom": {"configMapKeyRef": ref}}]
    opted.apps("deployments", "optional", pod_with(env=env))
    opted.secret("projected")
    projected = {"name": "all", "projected": {"sources": [{"secret": {"name": "projected"}}]}}
    opted.apps("deployments", "projected", pod_with(projected))
    opted.secret("csi")
    csi = {"driver": "x", "volumeHandle": "1", "nodeStageSecretRef": {"name": "csi", "namespace": opted.namespace}}
    volume = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": csi}
    opted.post("/api/v1/persistentvolumes", metadata={"name": f"pv-{opted.namespace[-8:]}"}, spec=volume)
    opted.config_map("param", metadata={"labels": {"policy": opted.namespace[-8:]}})
    bind_params(opted)
    opted.config_map("held", metadata={"annotations": {f"{DOMAIN}/hold": "audit"}})
    opted.config_map("immutable", immutable=True)
    owner = {"apiVersion": "v1", "kind": "ServiceAccount", "name": "builder", "uid": uid_of(opted, "builder")}
    opted.config_map("owned", metadata={"ownerReferences": [owner]})
    return {
        "secrets": {"helm", "token", "tls", "projected", "pull", "csi"},
        "configmaps": {"monthly", "at-zero", "optional", "param", "held", "immutable", "owned"},
    }


def uid_of(opted: Opted, name: str) -> str:
    return str(opted.api.call("GET", f"{opted.path}/serviceaccounts/{name}")["metadata"]["uid"])


def bind_params(opted: Opted) -> None:
    """An admission policy whose parameters are ConfigMaps with a label."""
    name, root = f"limits-{opted.namespace[-8:]}", "/apis/admissionregistration.k8s.io/v1"
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["bindings"]}]
    policy = {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": "true"}],
    }
    selector = {"matchLabels": {"policy": opted.namespace[-8:]}}
    param = {"selector": selector, "parameterNotFoundAction": "Allow"}
    binding = {"policyName": name, "paramRef": param, "validationActions": ["Audit"]}
    opted.post(f"{root}/validatingadmissionpolicies", metadata={"name": name}, spec=policy)
    opted.post(f"{root}/validatingadmissionpolicybindings", metadata={"name": name}, spec=binding)


def test_object_that_is_used_again_loses_its_mark_and_stays(opted: Opted, start: Start) -> None:
    opted.config_map("again")
    run = start("10s")
    mark = f"{DOMAIN}/unused-since"

    def annotations() -> Any:
        return opted.api.call("GET", f"{opted.path}/configmaps/again")["metadata"].get("annotations") or {}

    opted.api.wait("the mark", lambda: mark in annotations(), WAIT_SECONDS)
    opted.post(f"{opted.path}/pods", metadata={"name": "web"}, spec=of_config_map("again"))
    opted.api.wait("the mark to be removed", lambda: annotations().keys() == {RECORD}, WAIT_SECONDS)
    opted.ticks(run, 6)
    assert opted.names("configmaps") == {"again"}
    opted.api.call("DELETE", f"{opted.path}/pods/web?gracePeriodSeconds=0")
    opted.await_names("configmaps", set())


def test_object_that_was_seen_used_is_deleted_after_its_last_reference_and_no_other(opted: Opted, start: Start) -> None:
    for name in ("used", "read-by-name", "tenant-1"):
        opted.config_map(name)
    path = f"{opted.path}/pods"
    opted.post(path, metadata={"name": "web"}, spec=of_config_map("used"))
    run = start(never_used=False)
    opted.api.wait("the record of use", lambda: opted.recorded() == {"used"}, WAIT_SECONDS)
    version = opted.api.call("GET", f"{opted.path}/configmaps/used")["metadata"]["resourceVersion"]
    opted.ticks(run, 2)
    assert opted.api.call("GET", f"{opted.path}/configmaps/used")["metadata"]["resourceVersion"] == version
    opted.api.call("DELETE", f"{path}/web?gracePeriodSeconds=0")
    opted.await_names("configmaps", {"read-by-name", "tenant-1"})
    opted.ticks(run, 3)
    assert opted.names("configmaps") == {"read-by-name", "tenant-1"}


def test_no_content_of_a_secret_is_sent_or_held(opted: Opted, start: Start, audit_log: Path) -> None:
    opted.secret("gone")
    opted.secret("stays", metadata={"annotations": {f"{DOMAIN}/hold": "audit"}})
    run = start()

    opted.await_names("secrets", {"stays"})
    memory = memory_of(run.process.pid)
    assert opted.namespace.encode() in memory
    assert not [one for one in (CONTENT, encoded()) if one.encode() in memory]
    requests = [one for one in map(json.loads, audit_log.read_text().splitlines()) if is_ours(one)]
    verbs = {one["verb"] for one in requests}
    assert {"list", "patch", "delete"} <= verbs <= {"list", "get", "patch", "delete"}
    assert not [one for one in requests if encoded() in json.dumps(one.get("responseObject"))]
    managers = {one["requestURI"].partition("fieldManager=")[2] for one in requests if one["verb"] == "patch"}
    assert managers - {USE_MANAGER} == {MARK_MANAGER, ANNOUNCEMENT_MANAGER}


def encoded() -> str:
    return base64.b64encode(CONTENT.encode()).decode()


def is_ours(request: Any) -> bool:
    """Whether `run` has sent a request for Secrets: the test and the controllers have other user agents."""
    is_secret = request.get("objectRef", {}).get("resource") == "secrets"
    return is_secret and "python" in request["userAgent"].lower() and "urllib" not in request["userAgent"].lower()


def memory_of(pid: int) -> bytes:
    """The readable and writable memory of a process."""
    found = bytearray()
    with Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            start, end, rights = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+)", line).groups()  # type: ignore[union-attr]
            if rights.startswith("rw"):
                memory.seek(int(start, 16))
                found += memory.read(int(end, 16) - int(start, 16))
    return bytes(found)


def test_config_map_is_stored_before_it_is_deleted_and_can_be_restored(
    opted: Opted, start_run: Start, server: RealServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTL_USAGE_INTERVAL", "2s")
    match = {"kinds": ["configmaps"], "namespaces": {"names": [opted.namespace]}}
    unused = {"ttl": "3s", "neverUsed": True}
    rule = {"name": "rotated", "match": match, "unused": unused, "archive": {"to": "main"}}
    policy = tmp_path / "policy.yaml"
    policy.write_text(json.dumps({"archives": {"main": {"url": f"file://{tmp_path}/archive"}}, "rules": [rule]}))
    opted.config_map("gone")
    run = start_run("--policy", str(policy), "--verbose")

    path = f"{opted.path}/configmaps/gone"
    opted.api.wait("the deletion", lambda: opted.api.get(path) is None, WAIT_SECONDS)
    run.stop()
    words = ("configmap/gone", "-n", opted.namespace, "--policy", str(policy))
    restored = run_command(server.kubeconfig, "archive", "restore", *words)

    assert restored.returncode == 0, restored.stderr
    assert opted.api.get(path)["data"] == {"key": "gone"}
