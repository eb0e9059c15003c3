"""`plan --policy` as a process, on a real API server: its counts, warnings, and the policy that it compares with."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.core.values.objects import format_instant
from tests.builders import COMMAND
from tests.integration.conftest import Api

RULES = [
    {"name": "newest", "match": {"kinds": ["jobs"]}, "ttl": "0s", "keepLast": 2},
    {"name": "rest", "match": {"kinds": ["*"]}, "ttl": "2h"},
]


@pytest.fixture
def jobs(api: Api, namespace: str) -> str:
    """Four finished Jobs, and one that works; in a namespace of their own."""
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    at = format_instant(datetime.now(UTC).replace(microsecond=0))
    conditions = [
        {"type": one, "status": "True", "lastTransitionTime": at} for one in ("SuccessCriteriaMet", "Complete")
    ]
    for name in ("a", "b", "c", "d", "works"):
        container = {"name": "main", "image": "example.com/x"}
        spec = {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
        api.call("POST", path, {"metadata": {"name": name}, "spec": spec})
        if name != "works":
            status = {"startTime": at, "completionTime": at, "succeeded": 1, "conditions": conditions}
            api.call("PATCH", f"{path}/{name}/status", {"status": status})
    return path


@pytest.fixture
def plan(api: Api, namespace: str, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*words: str, program: str = "plan", **policies: Any) -> subprocess.CompletedProcess[str]:
        for name, rest in policies.items():
            policy = {"apiVersion": "ttlafterfinished.dev/v1", "kind": "Policy", **rest}
            (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(policy))
        started = [*COMMAND, program, "-n", namespace]
        environment = {**os.environ, "KUBECONFIG": str(api.server.kubeconfig), "PYTHONPATH": str(Path.cwd())}
        return subprocess.run(
            [*started, *words], cwd=tmp_path, env=environment, text=True, capture_output=True, check=False
        )

    return run


def test_plan_compares_a_new_policy_with_the_one_in_force(api, jobs, namespace, plan):
    done = plan("--policy", "new.yaml", "-o", "json", new={"rules": RULES})
    assert (done.returncode, done.stderr) == (0, "")
    reported = json.loads(done.stdout)
    assert (reported["policy"], reported["inForce"], reported["objects"]) == ("new.yaml", "no policy", 5)
    assert reported["totals"]["dueNow"] == {"inForce": 0, "new": 2}
    assert [row["namespace"] for row in reported["namespaces"]] == [namespace]
    changed = {one["name"]: (one["inForce"]["reason"], one["new"]["ttlFrom"]) for one in reported["changes"]}
    assert len(changed) == 2
    assert set(changed.values()) == {("no-ttl", "policy rule newest")}
    assert len(api.get(jobs)["items"]) == 5

    idle = {"name": "idle", "match": {"kinds": ["pods"], "namespaces": {"names": ["CI"]}}, "ttl": "1h"}
    done = plan("--policy", "idle.yaml", idle={"rules": [*RULES, idle]})
    assert "\nno finished object gets its TTL from: policy rule rest, policy rule idle\n" in done.stdout

    done = plan("--policy", "new.yaml", "--against", "old.yaml", "-o", "json", old={"rules": RULES[1:]})
    reported = json.loads(done.stdout)
    assert reported["totals"]["from1hTo24h"] == {"inForce": 4, "new": 0}


@pytest.mark.usefixtures("jobs")
def test_plan_exits_with_3_above_the_limit_unless_confirmed(plan):
    done = plan("--policy", "new.yaml", "--limit", "1", new={"rules": RULES})
    assert done.returncode == 3
    assert "WARNING: 2 objects would be deleted at once, more than 1: 2 by policy rule newest" in done.stderr
    assert "2 (+2) due now" in done.stdout
    assert plan("--policy", "new.yaml", "--limit", "1", "--yes").returncode == 0
    broken = {"rules": RULES, "budget": {"breaker": {"count": 1}}}
    done = plan("--policy", "new.yaml", new=broken)
    assert done.returncode == 3
    assert "breaker" in done.stderr
    share = {"rules": RULES, "budget": {"breaker": {"share": "10%", "atLeast": 1}}}
    done = plan("--policy", "new.yaml", new=share)
    assert (done.returncode, "the policy's breaker would trip" in done.stderr) == (3, True)
    assert plan("--policy", "new.yaml", "--yes").returncode == 0


@pytest.fixture
def without_installation(api: Api) -> Iterator[None]:
    """Remove what the test installs: an installed policy counts for every command of the tests after it."""
    yield
    api.call("DELETE", "/apis/apps/v1/namespaces/ttl-after-finished/deployments/standalone")
    api.call("DELETE", "/api/v1/namespaces/ttl-after-finished/configmaps/policy-x")


@pytest.mark.usefixtures("jobs", "without_installation")
def test_plan_compares_with_the_installed_policy(api, plan):
    done = plan("--policy", "new.yaml", "--against", "cluster", new={"rules": RULES})
    assert done.returncode == 1
    assert "namespace ttl-after-finished" in done.stderr
    home = "ttl-after-finished"
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": home}})
    policy = yaml.safe_dump({"apiVersion": "ttlafterfinished.dev/v1", "kind": "Policy", "rules": RULES[1:]})
    config = {"metadata": {"name": "policy-x"}, "data": {"policy.yaml": policy}}
    api.call("POST", f"/api/v1/namespaces/{home}/configmaps", config)
    api.call("POST", f"/apis/apps/v1/namespaces/{home}/deployments", deployment())
    done = plan("--policy", "new.yaml", "--against", "cluster", "-o", "json")
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout)
    assert reported["inForce"] == "ConfigMap ttl-after-finished/policy-x"
    assert reported["totals"]["from1hTo24h"] == {"inForce": 4, "new": 0}


def deployment() -> dict[str, Any]:
    """As the policy component leaves it."""
    labels = {"app.kubernetes.io/name": "ttl-after-finished"}
    container = {
        "name": "main",
        "image": "example.com/x",
        "env": [{"name": "TTL_POLICY", "value": "/etc/ttl-after-finished/policy.yaml"}],
        "volumeMounts": [{"name": "policy", "mountPath": "/etc/ttl-after-finished"}],
    }
    spec = {"containers": [container], "volumes": [{"name": "policy", "configMap": {"name": "policy-x"}}]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    metadata = {"name": "standalone", "labels": labels}
    return {"metadata": metadata, "spec": {"selector": {"matchLabels": labels}, "template": template}}


def test_plan_reads_ttl_kinds_unless_kinds_are_named(jobs, plan, monkeypatch):
    monkeypatch.setenv("TTL_KINDS", "pods")
    limited, every = plan("-o", "json", "--all"), plan("-k", "all", "-o", "json", "--all")
    assert (json.loads(limited.stdout), limited.stderr) == (
        [],
        "only pods, set by TTL_KINDS; for every kind, set --kinds all\n",
    )
    assert {one["kind"] for one in json.loads(every.stdout)} == {"Job"}
    assert "TTL_KINDS" not in every.stderr


@pytest.mark.usefixtures("jobs")
def test_plan_prints_rows_names_and_a_forecast(plan, monkeypatch, tmp_path):
    policy = {"apiVersion": "ttlafterfinished.dev/v1", "kind": "Policy", "rules": RULES}
    (tmp_path / "in-force.yaml").write_text(yaml.safe_dump(policy))
    monkeypatch.setenv("TTL_POLICY", str(tmp_path / "in-force.yaml"))
    done = plan("--by", "rule", "-o", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [(row["ttlFrom"], row["dueNow"]) for row in found["rows"]] == [(None, 0), ("policy rule newest", 2)]
    assert found["keptByReason"] == {"kept-last": 2, "unfinished": 1}

    shown = plan("--names", "--forecast", "--top", "1").stdout
    assert "... and 1 more object\n" in shown
    assert "due 21-24h" in shown


@pytest.mark.usefixtures("jobs")
def test_top_prints_one_table_into_a_pipe(plan, namespace):
    done = plan(program="top")
    assert done.returncode == 0, done.stderr
    row = next(line.split() for line in done.stdout.splitlines() if namespace in line)
    assert row[1:5] == ["Job", "4", "4", "0"]
    found = json.loads(plan("--by", "kind", "-o", "json", program="top").stdout)
    assert [(row["kind"], row["finished"], row["forever"]) for row in found["rows"]] == [("jobs.batch", 4, 4)]


@pytest.mark.usefixtures("jobs")
def test_top_on_a_terminal_goes_on_until_ctrl_c(api, namespace):
    screen, terminal = os.openpty()
    environment = {**os.environ, "KUBECONFIG": str(api.server.kubeconfig), "COLUMNS": "80"}
    command = [*COMMAND, "top", "-n", namespace, "--interval", "1"]
    with subprocess.Popen(command, env=environment, stdout=terminal, stderr=terminal, stdin=terminal) as process:
        os.close(terminal)
        shown = b""
        while shown.count(b"FINISHED") < 4:  # each view has it twice
            shown += os.read(screen, 65_536)
        assert process.poll() is None
        process.terminate()
        assert process.wait(20) == 143
    os.close(screen)
    assert b"+0" in shown
