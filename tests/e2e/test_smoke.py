"""`make e2e-smoke`: overlays/production on a real Knative, from its installation to its end, once.

It is part of the gate of each change. So it has no bound on lateness: it waits until something happened, as long as a
busy machine may take for it. No sweep runs, which could delete an object before `expire` does.

The tests build on each other, in this order.
"""

import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders import not_none
from tests.e2e import installation
from tests.e2e.cluster import create, get, job, pod, wait
from tests.e2e.installation import FUNCTIONS, broker_url, ttl
from tests.e2e.post import wait_until_answering
from tests.e2e.rights import asked, audit_log, deletes, refused
from tests.e2e.witness import Deletion, Witness, finish_of, stop_of

NAMESPACE = "ttl-e2e-smoke"
PATHS = {"Job": "/apis/batch/v1/namespaces/{}/jobs", "Pod": "/api/v1/namespaces/{}/pods"}
SECONDS_MAX = 120
"""Of each wait, also on a busy machine; a quiet one needs less than ten seconds."""

DEADLINE = timedelta(seconds=3)

POLICY = """
apiVersion: ttlafterfinished.dev/v1
kind: Policy
archives:
  main: {{url: "file://{archive}"}}
rules:
  - name: copied
    match: {{kinds: [pods], labels: {{matchLabels: {{copy: "true"}}}}}}
    archive: {{to: main, grace: 1s}}
"""

NEVER = {
    "target": {"group": "sources.knative.dev", "kind": "PingSource", "name": "sweep"},
    "patch": json.dumps([{"op": "replace", "path": "/spec/schedule", "value": "0 0 29 2 *"}]),
}
"""A tick that comes before all functions are ready would become a dead letter, which `doctor` reports."""

Object = dict[str, Any]


# The installation


@pytest.fixture(scope="module")
def since(witness: Witness) -> int:
    """How many lines the audit log had before the installation."""
    assert witness
    return len(not_none(audit_log()).read_text().splitlines())


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    archive = not_none(installation.shared_folder("e2e-smoke-archive"))
    file = tmp_path_factory.mktemp("policy") / "policy.yaml"
    file.write_text(POLICY.format(archive=archive))
    return file


@pytest.fixture(scope="module", autouse=True)
def overlay(since: int, policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An overlay of a user's own on overlays/production, installed and ready; in the end it is uninstalled."""
    assert since >= 0
    folder = installation.overlay(
        tmp_path_factory.mktemp("smoke"),
        components=["policy"],
        settings=installation.durable_folder(),
        files={"policy": [policy]},
        on="production",
    )
    kustomization = folder / "kustomization.yaml"
    kustomization.write_text(yaml.safe_dump(yaml.safe_load(kustomization.read_text()) | {"patches": [NEVER]}))
    with installation.tokens():
        installation.apply_rights(folder)
        installation.apply(folder)
        installation.wait_until_ready()
        wait("the end of replaced Pods", lambda: not installation.ending_pods(), SECONDS_MAX)
        functions = (
            f"http://{name}.{installation.NAMESPACE}.svc.cluster.local/" for name in (*FUNCTIONS, "deadletter")
        )
        wait_until_answering(broker_url(), *functions)
        yield folder
        if installation.remains():
            installation.uninstall(folder)


# What it does


def test_finished_job_is_deleted_by_expire_in_the_version_that_it_read(witness: Witness) -> None:
    thing = create(job("goes", "true", namespace=NAMESPACE, ttl="3s"))
    until_gone(witness, thing)
    assert delete_of(thing) == ("expire", in_version(thing, witness.last_version(thing["metadata"]["uid"])))


def test_running_job_is_stopped_by_enforce_at_its_active_deadline(witness: Witness) -> None:
    thing = create(job("overdue", "sleep 600", namespace=NAMESPACE, active_deadline=f"{DEADLINE.seconds}s"))
    stopped = wait("the stop of the Job", lambda: stop_of(fresh(thing)) and fresh(thing), SECONDS_MAX)
    assert stopped["spec"]["activeDeadlineSeconds"] == 1
    created_at = datetime.fromisoformat(thing["metadata"]["creationTimestamp"])
    assert not_none(stop_of(stopped)) >= created_at + DEADLINE
    wait("its end", lambda: finish_of(fresh(thing)), SECONDS_MAX)


def test_pod_is_archived_before_it_is_deleted(witness: Witness, policy: Path) -> None:
    spec = pod("copied", "true", namespace=NAMESPACE, ttl="1s")
    spec["metadata"]["labels"] = {"copy": "true"}
    thing = create(spec)
    deletion = until_gone(witness, thing)
    listed = ttl("archive", "ls", "-n", NAMESPACE, "--policy", str(policy), "-o", "json")
    assert listed.returncode == 0, listed.stderr
    archived_at = {one["resourceVersion"]: one["archivedAt"] for one in json.loads(listed.stdout)}
    version = witness.last_version(thing["metadata"]["uid"])
    assert datetime.fromisoformat(archived_at[version]) <= deletion.seen_at
    assert delete_of(thing) == ("expire", in_version(thing, version))


def test_each_function_keeps_the_pods_that_production_asks_for() -> None:
    """None of them scales to zero, since its metrics are scraped; only Knative Serving itself scales."""
    if not installation.has_serving():
        pytest.skip("nothing scales a Knative Service without Knative Serving itself")
    asked = installation.min_scales()
    assert asked.keys() == {*FUNCTIONS, "usage", "deadletter"} - {"timers"}  # which is a StatefulSet
    assert {asked[name] for name in ("schedule", "expire", "enforce", "archive")} == {2}
    assert min(asked.values()) == 1
    pods = {name: len(installation.pods_of(name)) for name in asked}
    assert {name: count for name, count in pods.items() if count < asked[name]} == {}
    assert len(installation.pods_of("timers")) == 1


def test_doctor_reports_no_problem(policy: Path) -> None:
    """With the policy as a file, since the folder of its archive is of this machine."""
    report = ttl("doctor", "--policy", str(policy))
    deadline = time.monotonic() + SECONDS_MAX
    while report.returncode != 0 and time.monotonic() < deadline:
        report = ttl("doctor", "--policy", str(policy))
    assert report.returncode == 0, report.stdout + report.stderr


def test_no_account_lacks_a_right(since: int) -> None:
    calls = asked(not_none(audit_log()), installation=installation.NAMESPACE, since=since)
    assert calls.keys() >= {"source", "expire", "enforce", "archive"}
    assert refused(calls) == set()


def test_uninstall_leaves_nothing(overlay: Path) -> None:
    installation.uninstall(overlay)
    assert installation.remains() == []


def fresh(thing: Object) -> Object:
    found: Object = get(thing["kind"], thing["metadata"]["name"], namespace=NAMESPACE)
    return found


def until_gone(witness: Witness, thing: Object) -> Deletion:
    what = f"the deletion of {thing['kind']} {thing['metadata']['name']}"
    deletion: Deletion = wait(what, lambda: witness.gone(thing["metadata"]["uid"]), SECONDS_MAX)
    return deletion


def delete_of(thing: Object) -> tuple[str, Any]:
    """The account that deleted it, and the preconditions; the audit log has them a moment after the deletion."""
    name, log = thing["metadata"]["name"], not_none(audit_log())
    (found,) = wait(
        f"the DELETE of {name} in the audit log",
        lambda: deletes(log, installation=installation.NAMESPACE, namespace=NAMESPACE, name=name),
    )
    return found


def in_version(thing: Object, version: str) -> dict[str, str]:
    """The preconditions of a DELETE."""
    return {"uid": thing["metadata"]["uid"], "resourceVersion": version}
