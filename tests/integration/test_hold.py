"""`hold`, `release` and `set` on a real kube-apiserver, where the real TTL controller acts on Jobs too."""

import json
import os
import re
import shlex
import signal
import subprocess
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.devserver.real_servers import RealServer
from shared.installation.place import HOME, LEASE, RUN
from shared.safeguards.state_schema import NAME
from tests.integration.conftest import Api, run_command
from tests.integration.test_run import Cluster

Ttl = Callable[..., subprocess.CompletedProcess[str]]
HELD_TTL = "ttlafterfinished.dev/held-ttl"
TRIPPED = json.dumps({"at": "2026-01-02T03:04:05Z", "why": "too many", "by": "sweep"})


@pytest.fixture(scope="module")
def controllers() -> list[str]:
    """With Kubernetes' own TTL controller, which knows nothing of our annotations."""
    return ["job-controller", "garbage-collector-controller", "ttl-after-finished-controller"]


@pytest.fixture
def jobs(api: Api, namespace: str) -> Cluster:
    return Cluster(api, namespace)


@pytest.fixture
def ttl(server: RealServer, namespace: str) -> Ttl:
    """`kubectl ttl` in the test's namespace."""

    def run(command: str, *words: str) -> subprocess.CompletedProcess[str]:
        return run_command(server.kubeconfig, command, *words, "-n", namespace)

    return run


def annotations(obj: Any) -> dict[str, str]:
    return obj["metadata"].get("annotations", {})


def test_held_job_is_kept_past_its_ttl_and_deleted_after_the_release(
    jobs: Cluster,
    ttl: Ttl,
    server: RealServer,
) -> None:
    jobs.create_job("report", ttl=2)
    jobs.finish_pods_of("report")
    controllers = server.pid("kube-controller-manager")
    os.kill(controllers, signal.SIGSTOP)  # its timer for the Job is already running
    try:
        held = ttl("hold", "job/report", "--reason", "looking at the numbers")
    finally:
        os.kill(controllers, signal.SIGCONT)

    assert held.returncode == 0, held.stderr
    job = jobs.job("report")
    assert "ttlSecondsAfterFinished" not in job["spec"]
    assert json.loads(annotations(job)[HELD_TTL]) == {"spec.ttlSecondsAfterFinished": 2}

    jobs.create_job("witness", ttl=2)
    jobs.finish_pods_of("witness")
    jobs.api.wait("the end of the witness", lambda: jobs.job("witness") is None)
    assert jobs.job("report") is not None

    released = ttl("release", "job", "report")

    assert released.returncode == 0, released.stderr
    assert "spec.ttlSecondsAfterFinished: 2 is restored" in released.stdout
    jobs.api.wait("the end of the report", lambda: jobs.job("report") is None)


def test_release_keeps_a_ttl_that_was_set_during_the_hold(jobs: Cluster, ttl: Ttl) -> None:
    jobs.create_job("report", ttl=3600)
    ttl("hold", "jobs/report", "--reason", "why")
    path = f"{jobs.jobs}/report"
    jobs.api.call("PATCH", path, {"spec": {"ttlSecondsAfterFinished": 60}})

    released = ttl("release", "job/report")

    assert released.returncode == 0, released.stderr
    assert "spec.ttlSecondsAfterFinished was set to 60 during the hold, and is kept" in released.stdout
    job = jobs.job("report")
    assert job["spec"]["ttlSecondsAfterFinished"] == 60
    assert annotations(job) == {}


def test_explain_reports_unknown_annotations_of_object_and_namespace(jobs: Cluster, ttl: Ttl, namespace: str) -> None:
    jobs.create_job("slip", annotations={"ttlafterfinished.dev/tttl": "1h"})
    slip = {"metadata": {"annotations": {"ttlafterfinished.dev/default-ttll": "1d"}}}
    jobs.api.call("PATCH", f"/api/v1/namespaces/{namespace}", slip)

    shown = ttl("explain", "job/slip", "-o", "json")

    assert shown.returncode == 0, shown.stderr
    of_object, of_namespace = json.loads(shown.stdout)["unknownAnnotations"]
    assert "ttlafterfinished.dev/tttl" in of_object
    assert f"ttlafterfinished.dev/default-ttll of namespace {namespace}" in of_namespace


def test_set_reports_a_ttl_that_the_field_overrides(
    jobs: Cluster,
    ttl: Ttl,
) -> None:
    jobs.create_job("report", ttl=3600)

    asked = ttl("set", "job/report", "2d")

    assert asked.returncode == 1
    assert annotations(jobs.job("report")) == {"ttlafterfinished.dev/ttl": "2d"}
    assert "spec.ttlSecondsAfterFinished: 3600" in asked.stderr
    assert ttl("set", "job/report", "--unset").returncode == 0
    assert annotations(jobs.job("report")) == {}
    assert ttl("set", "job/report", "10m", "--failed").returncode == 0
    assert annotations(jobs.job("report")) == {"ttlafterfinished.dev/ttl-failed": "10m"}


def test_hold_of_a_pod_reports_a_job_that_is_due_and_how_to_hold_it(jobs: Cluster, ttl: Ttl, namespace: str) -> None:
    jobs.create_job("report", annotations={"ttlafterfinished.dev/ttl": "1h"})
    jobs.finish_pods_of("report")
    selector = f"{jobs.pods}?labelSelector=batch.kubernetes.io/job-name%3Dreport"
    pod = jobs.api.call("GET", selector)["items"][0]["metadata"]["name"]

    overridden = ttl("hold", f"pod/{pod}", "--reason", "the logs")

    assert overridden.returncode == 1
    assert f"Job {namespace}/report" in overridden.stderr
    command = re.search(r"`kubectl ttl (hold jobs.batch/report --reason 'the logs')", overridden.stderr)
    assert command, overridden.stderr
    explained = json.loads(ttl("explain", f"pod/{pod}", "-o", "json").stdout)
    assert [one["name"] for one in explained["deletedWith"]] == ["report"]

    assert ttl(*shlex.split(command[1])).returncode == 0
    again = ttl("hold", f"pod/{pod}", "--reason", "the logs")
    assert (again.returncode, again.stderr) == (0, "")

    # See docs/explanation/ttl-precedence.md, "Owners".
    jobs.api.call("DELETE", f"{jobs.jobs}/report", {"propagationPolicy": "Background"})
    jobs.api.wait("the end of the held Pod", lambda: jobs.api.get(f"{jobs.pods}/{pod}") is None)


def test_set_reports_a_maximum_of_the_namespace(jobs: Cluster, ttl: Ttl, namespace: str) -> None:
    jobs.create_job("report")
    maximum = {"metadata": {"annotations": {"ttlafterfinished.dev/max-ttl": "1h"}}}
    jobs.api.call("PATCH", f"/api/v1/namespaces/{namespace}", maximum)

    longer, shorter = ttl("set", "job/report", "2d"), ttl("set", "job/report", "10m")

    assert (longer.returncode, shorter.returncode) == (0, 0), longer.stderr + shorter.stderr
    assert "max-ttl" in longer.stdout
    assert "max-ttl" not in shorter.stdout


def test_release_of_a_breaker_works_once(api: Api, ttl: Ttl, namespace: str) -> None:
    state = {"metadata": {"name": NAME}, "data": {"breaker": TRIPPED}}
    api.call("POST", f"/api/v1/namespaces/{namespace}/configmaps", state)

    first, second = ttl("release", "--breaker"), ttl("release", "--breaker")

    assert (first.returncode, second.returncode) == (0, 1), first.stderr + second.stderr
    assert "is released; nothing was deleted since 2026-01-02T03:04:05Z: too many" in first.stdout
    assert f"no breaker is open in namespace {namespace}; for another namespace, set -n" in second.stderr
    assert "breaker" not in api.get(f"/api/v1/namespaces/{namespace}/configmaps/{NAME}").get("data", {})


def test_release_finds_the_breaker_of_a_run_and_leaves_the_choice_among_several(
    api: Api, server: RealServer, namespace: str
) -> None:
    def release(*words: str) -> subprocess.CompletedProcess[str]:
        return run_command(server.kubeconfig, "release", "--breaker", *words)

    lease = {"metadata": {"name": LEASE}, "spec": {"holderIdentity": "run", "leaseDurationSeconds": 15}}
    api.call("POST", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases", lease)

    state = {"metadata": {"name": NAME}, "data": {"breaker": TRIPPED}}
    places = [f"/api/v1/namespaces/{one}/configmaps" for one in (RUN, namespace)]
    try:
        for place in places:
            api.call("POST", place, state)

        several, named, rest, none = release(), release("-n", namespace), release(), release()
    finally:
        api.call("DELETE", f"{places[0]}/{NAME}")

    assert (several.returncode, named.returncode, rest.returncode) == (1, 0, 0), rest.stderr
    assert f"breakers are open in the namespaces {RUN}, {namespace}: set -n to one of them" in several.stderr
    assert f"the breaker in namespace {RUN} is released" in rest.stdout
    assert f"no breaker is open in the namespaces {HOME}, {RUN}, {namespace}" in none.stderr
    assert none.returncode == 1


# A kind as there are some: its TTL field cannot be taken away from its objects, each for another reason.
FIELDS: dict[str, tuple[dict[str, Any], list[str], str]] = {
    "defaulted": ({"type": "integer", "default": 0}, [], "the field was removed, and was set again at once"),
    "mandatory": ({"type": "integer"}, ["ttlSecondsAfterFinished"], "rejects the removal of the field"),
}


def install(api: Api, name: str, schema: dict[str, Any], required: list[str], rules: Path) -> str:
    kind, plural, group = name.capitalize(), f"{name}s", "overridden.example.com"
    spec = {"type": "object", "properties": {"ttlSecondsAfterFinished": schema}, "required": required}
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
    }
    names = {"kind": kind, "plural": plural, "singular": name, "listKind": f"{kind}List"}
    api.call(
        "POST",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        {
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
        },
    )
    rule = {
        "apiVersions": [f"{group}/v1"],
        "kind": kind,
        "plural": plural,
        "finished": {"conditions": {"Complete": "succeeded"}},
        "finishedAt": ["finishing-condition"],
        "ttl": {"fields": [{"path": "spec.ttlSecondsAfterFinished"}], "honouredBy": "its operator"},
    }
    (rules / f"{plural}.yaml").write_text(json.dumps(rule))
    return f"/apis/{group}/v1/namespaces/{{}}/{plural}"


def created(api: Api, path: str, obj: Any) -> bool:
    """False while the API server makes room for the kind."""
    try:
        api.call("POST", path, obj)
    except urllib.error.HTTPError as error:
        if error.code not in (404, 429):
            raise
        return False
    return True


@pytest.mark.parametrize("name", FIELDS)
def test_hold_reports_a_field_that_cannot_be_removed(
    name: str, api: Api, ttl: Ttl, namespace: str, tmp_path: Path
) -> None:
    schema, required, why = FIELDS[name]
    path = install(api, name, schema, required, tmp_path).format(namespace)
    kind = name.capitalize()
    obj = {"apiVersion": "overridden.example.com/v1", "kind": kind, "metadata": {"name": "one"}}
    obj["spec"] = {"ttlSecondsAfterFinished": 60}
    api.wait("the kind", lambda: created(api, path, obj))

    held = ttl("hold", f"{name}s/one", "--reason", "why", "--kinds-dir", str(tmp_path))

    assert held.returncode == 1
    assert "the hold is overridden: its operator acts on spec.ttlSecondsAfterFinished" in held.stderr
    assert why in held.stderr
    assert annotations(api.get(f"{path}/one"))["ttlafterfinished.dev/hold"] == "why"
