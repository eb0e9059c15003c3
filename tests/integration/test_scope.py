"""The scope of a `run`, which its Lease on a real kube-apiserver records, and how commands use it."""

import json
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from shared.core.values.objects import format_instant
from shared.core.values.scope import parse_scope
from shared.devserver.real_servers import RealServer
from shared.installation.place import LEASE
from tests.integration.conftest import Api, Run, limited_kubeconfig, run_command
from tests.integration.test_restraints import Pods

POLICY = "apiVersion: ttlafterfinished.dev/v1\nkind: Policy\nrules: [{name: ci, match: {kinds: [pods]}, ttl: 1d}]\n"
Ttl = Callable[..., Any]


@pytest.fixture(scope="module")
def controllers() -> list[str]:
    return ["garbage-collector-controller"]


@pytest.fixture
def pods(api: Api, namespace: str) -> Pods:
    return Pods(api, namespace)


@pytest.fixture
def ttl(server: RealServer, namespace: str) -> Ttl:
    """`kubectl ttl` of an operator who names the namespace of the Lease."""

    def run(*words: str) -> Any:
        answer = run_command(server.kubeconfig, *words, TTL_NAMESPACE=namespace)
        return json.loads(answer.stdout) if "json" in words else answer.stdout + answer.stderr

    return run


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]


def reasons(explained: Any) -> list[str]:
    return [one["reason"] for one in explained["obstacles"]]


def test_leader_of_one_namespace_and_kind_is_an_obstacle_elsewhere(
    pods: Pods, api: Api, start_run: Callable[..., Run], ttl: Ttl
) -> None:
    run = start_run("--kinds", "jobs.batch")
    api.wait("the leader", lambda: "sweep at start" in run.text)
    pods.finish("due")

    explained = ttl("explain", "pod/due", "-n", pods.namespace, "-o", "json")
    assert reasons(explained) == ["kind-not-enabled"]
    assert explained["policy"]["known"] is True
    assert "handles only jobs.batch, not pods" in ttl("plan", "-n", pods.namespace)
    reported = ttl("doctor", "-n", pods.namespace)
    assert f"it handles namespace {pods.namespace}, jobs.batch, no policy, version " in reported

    elsewhere = f"{pods.namespace[:50]}-x"
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": elsewhere}})
    run.stop()
    run = start_run("--kinds", "pods")
    api.wait("the leader", lambda: run.text.count("sweep at start") == 2)
    Pods(api, elsewhere).finish("due")
    assert reasons(ttl("explain", "pod/due", "-n", elsewhere, "-o", "json")) == ["namespace-not-enabled"]
    run.stop()
    assert reasons(ttl("explain", "pod/due", "-n", elsewhere, "-o", "json")) == ["no-active-deleter"]


def test_leader_with_another_policy_is_named_also_after_a_reload(
    server: RealServer, pods: Pods, api: Api, start_run: Callable[..., Run], ttl: Ttl, tmp_path: Path
) -> None:
    theirs, mine = tmp_path / "theirs.yaml", tmp_path / "mine.yaml"
    theirs.write_text(POLICY)
    mine.write_text(POLICY.replace("1d", "2d"))
    run = start_run("--kinds", "jobs.batch", "--policy", str(theirs))  # it leaves the Pod
    api.wait("the leader", lambda: "sweep at start" in run.text)
    pods.finish("due")

    def policy(*words: str) -> Any:
        return ttl("explain", "pod/due", "-n", pods.namespace, "-o", "json", *words)["policy"]

    def plan(*words: str) -> subprocess.CompletedProcess[str]:
        return run_command(server.kubeconfig, "plan", "-n", pods.namespace, *words, TTL_NAMESPACE=pods.namespace)

    leads = f"leads with this policy (sha256:{digest(POLICY)})"
    by_leader, by_other = plan("--policy", str(theirs)), plan("--policy", str(mine))
    assert (by_leader.returncode, leads in by_leader.stderr) == (0, True)
    assert (by_other.returncode, leads in by_other.stderr) == (1, False)
    assert plan().returncode == 1

    unknown = policy()
    assert unknown["known"] is False
    assert f"sha256:{digest(POLICY)}" in unknown["why"]
    assert policy("--policy", str(theirs))["differs"] is None
    differs = policy("--policy", str(mine))["differs"]
    assert f"sha256:{digest(POLICY)}" in differs
    assert f"sha256:{digest(mine.read_text())}" in differs

    theirs.write_text(mine.read_text())
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{pods.namespace}/leases/{LEASE}"

    def is_seen() -> bool:
        scope = parse_scope(api.get(lease))
        return scope is not None and scope.policy == digest(mine.read_text())

    api.wait("the new policy on the Lease", is_seen)
    assert policy("--policy", str(mine))["differs"] is None


def test_leader_in_another_namespace_makes_its_policy_unknown(
    server: RealServer, pods: Pods, api: Api, start_run: Callable[..., Run], tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs.yaml"
    theirs.write_text(POLICY)
    run = start_run("--kinds", "jobs.batch", "--policy", str(theirs))
    api.wait("the leader", lambda: "sweep at start" in run.text)
    pods.finish("due")

    def command(*words: str, place: str = pods.namespace) -> subprocess.CompletedProcess[str]:
        return run_command(server.kubeconfig, *words, "-n", place)

    for words in (("explain", "pod/due"), ("plan",), ("run", "--kinds", "pods")):
        done = command(*words)
        assert done.returncode == 1, done.stdout
        assert f"leads with policy sha256:{digest(POLICY)}" in done.stdout + done.stderr
    named = command("explain", "pod/due", "--policy", str(theirs), "-o", "json")
    assert named.returncode == 0
    assert reasons(json.loads(named.stdout)) == ["kind-not-enabled"]
    assert command("plan", place="default").returncode == 0  # that `run` does not handle it


def test_policy_is_unknown_to_a_user_who_may_not_read_leases(
    server: RealServer, api: Api, pods: Pods, namespace: str, tmp_path: Path
) -> None:
    pods.finish("due")
    kubeconfig = limited_kubeconfig(
        server,
        api,
        namespace,
        tmp_path,
        {"apiGroups": ["", "apps", "batch"], "resources": ["*"], "verbs": ["get", "list"]},
    )
    for words in (("explain", "pod/due"), ("plan",)):
        done = run_command(kubeconfig, *words, "-n", namespace, TTL_NAMESPACE=namespace)
        assert done.returncode == 1, done.stdout
        assert "whether a `run` leads could not be read" in done.stdout + done.stderr


@pytest.mark.parametrize("without", ["jobs", "resourcequotas", "namespaces"])
def test_fact_that_may_not_be_read_is_unknown_and_the_exit_code_is_1(
    server: RealServer, api: Api, namespace: str, tmp_path: Path, without: str
) -> None:
    path, at = f"/apis/batch/v1/namespaces/{namespace}/jobs", format_instant(datetime.now(UTC).replace(microsecond=0))
    container = {"name": "main", "image": "example.com/x"}
    spec = {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    api.call("POST", path, {"metadata": {"name": "done"}, "spec": spec})
    conditions = [
        {"type": one, "status": "True", "lastTransitionTime": at} for one in ("SuccessCriteriaMet", "Complete")
    ]
    status = {"startTime": at, "completionTime": at, "succeeded": 1, "conditions": conditions}
    api.call("PATCH", f"{path}/done/status", {"status": status})
    policy = tmp_path / "policy.yaml"
    rule = "{name: ci, match: {kinds: [jobs]}, ttl: 6d, maxCount: 1, whenQuotaAbove: 90%}"
    policy.write_text(f"apiVersion: ttlafterfinished.dev/v1\nkind: Policy\nrules: [{rule}]\n")
    rest = ["configmaps", "leases", "deployments", "statefulsets", "services", "apiservices", "events"]
    listed = sorted({"jobs", "resourcequotas", "namespaces"} - {without})
    rules = [{"apiGroups": ["*"], "resources": [*rest, *listed], "verbs": ["get", "list"]}]
    if without == "jobs":
        rules.append({"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get"]})
    limited = limited_kubeconfig(server, api, namespace, tmp_path, *rules)

    explained = run_command(limited, "explain", "job/done", "-n", namespace, "--policy", str(policy))
    planned, piled = (
        run_command(limited, one, "-n", namespace, "--kinds", "jobs", "-o", "json", "--policy", str(policy))
        for one in ("plan", "top")
    )

    assert explained.returncode == 1, explained.stdout
    assert "unknown: " in explained.stdout.splitlines()[1]
    assert f"on {without}" in explained.stdout
    assert (planned.returncode, piled.returncode) == (1, 1), planned.stderr + piled.stderr
    assert without in piled.stderr
