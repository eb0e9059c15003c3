"""`run` of a person beside an installation applies the installed policy, and no weaker one."""

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.core.values.objects import format_instant
from shared.devserver.real_servers import RealServer
from tests.integration.conftest import Api, Run, limited_kubeconfig, run_command
from tests.integration.test_plan import deployment

HOME = "ttl-after-finished"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{HOME}/deployments"
CONFIG = f"/api/v1/namespaces/{HOME}/configmaps/policy-x"


def app(name: str) -> dict[str, Any]:
    return {"labels": {"matchLabels": {"app": name}}}


PROTECTING: dict[str, Any] = {
    "rules": [
        {"name": "young", "match": {"kinds": ["jobs"], **app("young")}, "minAge": "1h"},
        {"name": "last", "match": {"kinds": ["jobs"], **app("last")}, "keepLast": 1},
        {
            "name": "stored",
            "match": {"kinds": ["jobs"], **app("stored")},
            "archive": {"to": "folder"},
        },
    ],
    "archives": {"folder": {"url": "file:///var/lib/ttl-archive"}},
}
Start = Callable[..., Run]


def policy_text(**policy: Any) -> str:
    return yaml.safe_dump({"apiVersion": "ttlafterfinished.dev/v1", "kind": "Policy", **policy})


@pytest.fixture(scope="module")
def controllers() -> list[str]:
    return ["garbage-collector-controller"]


@pytest.fixture
def installed(api: Api) -> str:
    """An installation with a policy of minAge, keepLast and an archive in a folder of its Pods."""
    if api.get(f"/api/v1/namespaces/{HOME}") is None:
        api.call("POST", "/api/v1/namespaces", {"metadata": {"name": HOME}})
        api.call("POST", CONFIG.rpartition("/")[0], {"metadata": {"name": "policy-x"}, "data": {"policy.yaml": ""}})
        api.call("POST", DEPLOYMENTS, deployment())
    api.call("PATCH", CONFIG, {"data": {"policy.yaml": policy_text(**PROTECTING)}})
    return "policy ConfigMap ttl-after-finished/policy-x: 3 rules"


@pytest.fixture
def jobs(api: Api, namespace: str) -> str:
    """Four Jobs that are due by their annotation; the policy protects all but `free`."""
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    at = format_instant(datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=5))
    conditions = [
        {"type": one, "status": "True", "lastTransitionTime": at} for one in ("SuccessCriteriaMet", "Complete")
    ]
    for name in ("young", "last", "stored", "free"):
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/x"}]}}
        metadata = {"name": name, "labels": {"app": name}, "annotations": {"ttlafterfinished.dev/ttl": "1s"}}
        api.call("POST", path, {"metadata": metadata, "spec": {"suspend": True, "template": template}})
        status = {"startTime": at, "completionTime": at, "succeeded": 1, "conditions": conditions}
        api.call("PATCH", f"{path}/{name}/status", {"status": status})
    return path


def names(api: Api, jobs: str) -> set[str]:
    return {one["metadata"]["name"] for one in api.get(jobs)["items"]}


@pytest.mark.smoke
def test_run_keeps_what_the_installed_policy_protects_and_follows_its_changes(
    api: Api, start_run: Start, installed: str, jobs: str
) -> None:
    run = start_run("-v")
    api.wait("the sweep", lambda: names(api, jobs) == {"young", "last", "stored"})
    api.wait("the archive", lambda: "is a folder of the Pods of the installation" in run.text)
    assert f"\ninstalled {installed}\n" in run.text
    assert names(api, jobs) == {"young", "last", "stored"}

    rest = {**PROTECTING, "rules": PROTECTING["rules"][1:]}
    api.call("PATCH", CONFIG, {"data": {"policy.yaml": "rules: [invalid"}})
    api.wait("the report", lambda: "its last version stays in force" in run.text)
    assert names(api, jobs) == {"young", "last", "stored"}
    api.call("PATCH", CONFIG, {"data": {"policy.yaml": policy_text(**rest)}})
    api.wait("the new policy", lambda: names(api, jobs) == {"last", "stored"})


def test_run_applies_another_policy_only_if_it_is_named(
    server: RealServer, api: Api, start_run: Start, installed: str, jobs: str, tmp_path: Path
) -> None:
    api.call("PATCH", CONFIG, {"data": {"policy.yaml": "rules: [invalid"}})
    for words in ((), ("--dry-run",)):
        refused = subprocess_of(server, *words)
        assert refused.returncode == 1
        assert "the installed policy could not be read" in refused.stderr
        assert "--policy none to delete without a policy" in refused.stderr
    assert len(names(api, jobs)) == 4

    named = tmp_path / "named.yaml"
    named.write_text(policy_text(rules=PROTECTING["rules"][:1]))
    run = start_run("--policy", str(named))
    api.wait("the sweep by the file", lambda: names(api, jobs) == {"young"})
    assert f"\npolicy {named}: 1 rule\n" in run.text
    run.stop()
    run = start_run("--policy", "none")
    api.wait("the sweep without a policy", lambda: not names(api, jobs))
    assert "\nno policy (--policy none)\n" in run.text


def test_run_without_the_right_to_read_the_installation_does_not_start(
    server: RealServer, api: Api, installed: str, namespace: str, tmp_path: Path
) -> None:
    rules = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]}
    limited = limited_kubeconfig(server, api, namespace, tmp_path, rules)
    refused = run_command(limited, "run", "--no-lease", XDG_STATE_HOME=str(tmp_path))
    assert refused.returncode == 1
    assert "could not read the installation in namespace ttl-after-finished" in refused.stderr
    assert "--policy FILE" in refused.stderr


def subprocess_of(server: RealServer, *words: str) -> "subprocess.CompletedProcess[str]":
    return run_command(server.kubeconfig, "run", *words)
