"""What is in force on a real kube-apiserver, the obstacles, and the rights to read both: explain, plan, doctor."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.core.values.objects import format_instant
from shared.devserver.real_servers import RealServer
from shared.safeguards.state_schema import NAME as STATE
from tests.integration.conftest import Api, run_command
from tests.integration.test_plan import deployment

HOME = "ttl-after-finished"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
RULES = [{"name": "fleet", "match": {"kinds": ["*"]}, "ttl": "5m"}]
TRIPPED = json.dumps({"at": "2026-01-02T03:04:05Z", "why": "too many", "by": "sweep"})

Ttl = Callable[..., subprocess.CompletedProcess[str]]


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


@pytest.fixture
def job(api: Api, namespace: str) -> Callable[..., str]:
    """Creates a Job that has finished, and answers with its path."""

    def create(name: str, ttl: int | None = None, **annotations: str) -> str:
        path, at = f"/apis/batch/v1/namespaces/{namespace}/jobs", format_instant(now())
        container = {"name": "main", "image": "example.com/x"}
        spec: dict[str, Any] = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
        spec |= {"suspend": True, **({"ttlSecondsAfterFinished": ttl} if ttl else {})}
        ours = {f"ttlafterfinished.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
        api.call("POST", path, {"metadata": {"name": name, "annotations": ours}, "spec": spec})
        types = ("SuccessCriteriaMet", "Complete")
        conditions = [{"type": one, "status": "True", "lastTransitionTime": at} for one in types]
        status = {"startTime": at, "completionTime": at, "succeeded": 1, "conditions": conditions}
        api.call("PATCH", f"{path}/{name}/status", {"status": status})
        return f"{path}/{name}"

    return create


@pytest.fixture
def ttl(server: RealServer, namespace: str) -> Ttl:
    """`kubectl ttl` in the test's namespace, or in none."""

    def run(*words: str, kubeconfig: Path = server.kubeconfig, everywhere: bool = False) -> Any:
        return run_command(kubeconfig, *words, *(() if everywhere else ("-n", namespace)))

    return run


@pytest.fixture
def install(api: Api) -> Iterator[Callable[..., None]]:
    """A Deployment of ours whose policy and settings are ConfigMaps, and its Lease; all is gone after the test."""
    made: list[str] = []

    def create(path: str, obj: Any) -> None:
        api.call("POST", path, obj)
        made.append(f"{path}/{obj['metadata']['name']}")

    def put(rules: Any, *, leads: bool = True, **settings: str) -> None:
        if api.get(f"/api/v1/namespaces/{HOME}") is None:
            api.call("POST", "/api/v1/namespaces", {"metadata": {"name": HOME}})
        policy = yaml.safe_dump({"apiVersion": "ttlafterfinished.dev/v1", "kind": "Policy", "rules": rules})
        maps = f"/api/v1/namespaces/{HOME}/configmaps"
        create(maps, {"metadata": {"name": "policy-x"}, "data": {"policy.yaml": policy}})
        create(maps, {"metadata": {"name": "settings"}, "data": settings})
        workload = deployment()
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        container["envFrom"] = [{"configMapRef": {"name": "settings"}}]
        create(f"/apis/apps/v1/namespaces/{HOME}/deployments", workload)
        if leads:
            create(LEASES.replace("default", HOME), lease(now() + timedelta(hours=1), "standalone-x/1"))

    yield put
    for path in made:
        api.call("DELETE", path)


@pytest.fixture
def keep(api: Api) -> Iterator[Callable[[str, Any], None]]:
    """Creates an object that is gone after the test."""
    made: list[str] = []

    def create(path: str, obj: Any) -> None:
        api.call("POST", path, obj)
        made.append(f"{path}/{obj['metadata']['name']}")

    yield create
    for path in made:
        api.call("DELETE", path)


def lease(renewed_at: datetime, holder: str = "laptop/7") -> Any:
    spec = {"holderIdentity": holder, "renewTime": format_instant(renewed_at.replace(microsecond=1))}
    return {"metadata": {"name": HOME}, "spec": {**spec, "leaseDurationSeconds": 15}}


def explain(ttl: Ttl, *words: str, code: int = 0, **options: Any) -> Any:
    done = ttl("explain", *words, "-o", "json", **options)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def reasons(reported: Any) -> list[str]:
    return [one["reason"] for one in reported["obstacles"]]


def test_explain_reports_a_missing_deleter(job: Callable[..., str], ttl: Ttl) -> None:
    job("due", ttl_succeeded="0s")
    job("native", ttl=3600)

    reported = explain(ttl, "job/due")

    assert (reported["decision"], reasons(reported)) == ("expire", ["no-active-deleter"])
    assert "namespace ttl-after-finished" in reported["policy"]["why"]
    assert reasons(explain(ttl, "job/native")) == []  # its own controller deletes it


def test_installed_policy_applies_unless_another_is_named(
    job: Callable[..., str], ttl: Ttl, install: Callable[..., None], tmp_path: Path
) -> None:
    job("build")
    install(RULES)
    other = tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump({"apiVersion": "ttlafterfinished.dev/v1", "kind": "Policy", "rules": []}))

    reported = explain(ttl, "job/build")
    text = ttl("explain", "job/build").stdout.splitlines()
    planned = ttl("plan")

    assert (reported["decision"], reported["policyRule"], reported["ttlSeconds"]) == ("wait", "fleet", 300)
    name = "ConfigMap ttl-after-finished/policy-x"
    assert reported["policy"] == {"name": name, "why": None, "differs": None, "known": True}
    assert text[1].startswith("  decision  due in ")
    assert "  policy    ConfigMap ttl-after-finished/policy-x" in text
    assert explain(ttl, "job/build", "--policy", "none")["reason"] == "no-ttl"
    assert explain(ttl, "job/build", "--policy", str(other))["policy"]["name"] == str(other)
    assert (planned.returncode, planned.stderr) == (0, "")
    assert "\n0 due now, 1 due later, 0 kept, of 1 objects\n" in planned.stdout
    assert planned.stdout.endswith("\npolicy: ConfigMap ttl-after-finished/policy-x\n")
    compared = json.loads(ttl("plan", "--policy", "none", "-o", "json").stdout)
    assert (compared["policy"], compared["inForce"]) == ("no policy", "ConfigMap ttl-after-finished/policy-x")
    assert compared["totals"]["within1h"] == {"inForce": 1, "new": 0}


def test_release_shows_the_decision_under_the_installed_policy(
    job: Callable[..., str], ttl: Ttl, install: Callable[..., None]
) -> None:
    job("build", hold="why")
    install(RULES)

    released = ttl("release", "job/build")

    assert released.returncode == 0, released.stderr
    assert "by policy rule fleet\n  policy: ConfigMap ttl-after-finished/policy-x" in released.stdout
    assert "kept (no-ttl)" in ttl("release", "job/build", "--policy", "none").stdout


def test_explain_reports_a_dry_run_and_a_disabled_kind(
    job: Callable[..., str], ttl: Ttl, install: Callable[..., None]
) -> None:
    job("build")
    install(RULES, TTL_DRY_RUN="true", TTL_KINDS="pods")

    reported = explain(ttl, "job/build")
    planned = ttl("plan")

    assert sorted(reasons(reported)) == ["dry-run", "kind-not-enabled"]
    assert "TTL_KINDS" in str(reported["obstacles"])
    assert "TTL_DRY_RUN" in planned.stderr


def test_explain_reports_an_installation_without_a_leader(
    job: Callable[..., str], ttl: Ttl, install: Callable[..., None]
) -> None:
    job("due", ttl_succeeded="0s")
    install(RULES, leads=False)

    (idle,) = explain(ttl, "job/due")["obstacles"]
    planned = ttl("plan")
    compared = ttl("plan", "--policy", "none")

    assert (idle["reason"], idle["fix"]) == (
        "no-active-deleter",
        "to find out why: `kubectl ttl doctor -n ttl-after-finished`",
    )
    assert (
        "1 due, now or later: no active deleter: no Pod of Deployment ttl-after-finished/standalone" in planned.stderr
    )
    assert "no active deleter" not in compared.stderr


def test_explain_reports_an_invalid_installed_policy(
    job: Callable[..., str], ttl: Ttl, install: Callable[..., None]
) -> None:
    job("build")
    install([{"name": "fleet"}])

    reported = explain(ttl, "job/build", code=1)

    assert reported["policy"]["known"] is False
    assert "ConfigMap ttl-after-finished/policy-x, policy.yaml:" in reported["policy"]["why"]
    assert ttl("plan").returncode == 1
    assert ttl("ui", "-o", "json").returncode == 1


def test_explain_reports_an_open_breaker_and_a_loop_with_their_fix(
    job: Callable[..., str],
    ttl: Ttl,
    install: Callable[..., None],
    keep: Callable[[str, Any], None],
    namespace: str,
) -> None:
    job("due", ttl_succeeded="0s")
    job("held", ttl_succeeded="0s", hold="why")
    install(RULES)
    until = format_instant(now() + timedelta(hours=1))
    data = {"breaker": TRIPPED, "recreation": json.dumps({f"Job.batch/{namespace}/due": until})}
    keep(f"/api/v1/namespaces/{HOME}/configmaps", {"metadata": {"name": STATE}, "data": data})

    breaker, loop = explain(ttl, "job/due")["obstacles"]
    planned = ttl("plan")

    assert (breaker["reason"], breaker["since"]) == ("breaker-open", "2026-01-02T03:04:05Z")
    assert "`kubectl ttl release --breaker -n ttl-after-finished`" in breaker["fix"]
    assert (loop["reason"], loop["until"]) == ("recreate-loop", until)
    assert f"kubectl get events -n {namespace} --field-selector reason=RecreateLoop" in loop["fix"]
    assert explain(ttl, "job/held")["obstacles"] == []
    assert "breaker" in planned.stderr
    assert f"Job {namespace}/due" in planned.stderr
    released = ttl("release", "job/held").stdout
    assert "breaker" in released


def test_explain_reports_a_saved_ttl_without_a_hold(
    api: Api, job: Callable[..., str], ttl: Ttl, namespace: str
) -> None:
    path = job("report", ttl=3600)
    assert ttl("hold", "job/report", "--reason", "why").returncode == 0
    api.call("PATCH", path, {"metadata": {"annotations": {"ttlafterfinished.dev/hold": None}}})

    reported, text, planned = explain(ttl, "job/report"), ttl("explain", "job/report").stdout, ttl("plan")

    assert "spec.ttlSecondsAfterFinished: 3600" in reported["savedTtl"]
    assert f"`kubectl ttl release jobs.batch/report -n {namespace}`" in text
    assert f"Job {namespace}/report" in planned.stderr
    assert ttl("release", "job/report").returncode == 0
    assert explain(ttl, "job/report")["savedTtl"] is None
    assert api.get(path)["spec"]["ttlSecondsAfterFinished"] == 3600


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl in PATH")
@pytest.mark.parametrize("hold", [{}, {"ttlafterfinished.dev/hold": "why"}], ids=["saved", "held"])
def test_advised_commands_for_an_unreadable_held_ttl_work(
    api: Api, job: Callable[..., str], ttl: Ttl, server: RealServer, hold: dict[str, str]
) -> None:
    path = job("report")
    api.call("PATCH", path, {"metadata": {"annotations": {"ttlafterfinished.dev/held-ttl": "{", **hold}}})
    assert ttl("release", "job/report").returncode == 1

    (line,) = [one for one in ttl("explain", "job/report").stdout.splitlines() if one.startswith("  do  ")]
    forget, then = re.findall("`kubectl ([^`]+)`", line)
    subprocess.run(["kubectl", f"--kubeconfig={server.kubeconfig}", *shlex.split(forget)], check=True)
    words = shlex.split(then)[1:]
    done = ttl(*words[: words.index("-n")])

    assert done.returncode == 0, done.stderr
    kept = api.get(path)["metadata"].get("annotations", {})
    assert kept == ({} if hold else {"ttlafterfinished.dev/ttl": "1h"})


@pytest.fixture
def developer(api: Api, server: RealServer, namespace: str, tmp_path: Path) -> Path:
    """The kubeconfig of an account that may read only Jobs in the test's namespace and that namespace."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.call("POST", accounts, {"metadata": {"name": "dev"}})
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
    ]
    api.call("POST", f"{rbac}/namespaces/{namespace}/roles", {"metadata": {"name": "dev"}, "rules": rules})
    subjects = [{"kind": "ServiceAccount", "name": "dev", "namespace": namespace}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "dev"}
    binding = {"metadata": {"name": "dev"}, "roleRef": role, "subjects": subjects}
    api.call("POST", f"{rbac}/namespaces/{namespace}/rolebindings", binding)
    token = api.call("POST", f"{accounts}/dev/token", {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    config = yaml.safe_load(server.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def test_explain_works_without_the_right_to_read_the_installation(
    job: Callable[..., str], ttl: Ttl, install: Callable[..., None], developer: Path
) -> None:
    job("plain")
    job("due", ttl_succeeded="0s")
    install(RULES)

    plain = ttl("explain", "job/plain", kubeconfig=developer)
    due = explain(ttl, "job/due", kubeconfig=developer, code=1)

    assert (plain.returncode, plain.stderr) == (1, "")
    first, second, *_ = plain.stdout.splitlines()[1:]
    assert "its policy is unknown" in first
    assert second.split()[:2] == ["policy", "unknown:"]
    assert (due["decision"], due["policy"]["known"], reasons(due)) == ("expire", False, ["stop-unread"])
    named = explain(ttl, "job/plain", "--policy", "none", kubeconfig=developer)
    assert named["policy"]["known"] is True


def test_run_is_found_by_its_lease(job: Callable[..., str], ttl: Ttl, keep: Callable[[str, Any], None]) -> None:
    job("due", ttl_succeeded="0s")
    keep(LEASES, lease(now() + timedelta(hours=1)))

    well = ttl("doctor", everywhere=True)
    reported = explain(ttl, "job/due", code=1)
    planned = ttl("plan")

    assert well.returncode == 0, well.stdout
    assert "ok    run — the leader is laptop/7, by Lease default/ttl-after-finished, renewed " in well.stdout
    assert "ok    breaker — closed" in well.stdout
    assert "ok    installation — none in namespace ttl-after-finished; a run is active" in well.stdout
    assert reasons(reported) == []
    assert reported["policy"]["known"] is False
    assert "laptop/7" in reported["policy"]["why"]
    assert planned.returncode == 1, planned.stderr

    keep("/api/v1/namespaces/default/configmaps", {"metadata": {"name": STATE}, "data": {"breaker": TRIPPED}})

    stopped = ttl("doctor", everywhere=True)

    assert stopped.returncode == 1
    assert "kubectl ttl release --breaker -n default" in stopped.stdout
    assert reasons(explain(ttl, "job/due", code=1)) == ["breaker-open"]


@pytest.mark.parametrize("holder", ["", "laptop/7"])
def test_doctor_reports_a_run_that_no_longer_leads(ttl: Ttl, keep: Callable[[str, Any], None], holder: str) -> None:
    keep(LEASES, lease(now() - timedelta(hours=3, minutes=30), holder))

    gone = ttl("doctor", everywhere=True)

    assert gone.returncode == 1
    last = "the last leader is laptop/7, by Lease" if holder else "the last leader stopped, and released Lease"
    assert f"warn  run — not active, so nothing is deleted; {last} default/ttl-after-finished" in gone.stdout
    assert "renewed 3h" in gone.stdout
    assert "FAIL  installation — none in namespace ttl-after-finished" in gone.stdout
