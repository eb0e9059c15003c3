"""`run` on a real kube-apiserver with the real Job controller; only the kubelet is played."""

import os
import re
import signal
import time
import urllib.error
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.core.values.objects import parse_instant
from tests.builders import not_none
from tests.integration.conftest import WAIT_SECONDS, Api, Run
from tests.servers import shared_server  # noqa: F401 - a fixture

POD_SPEC = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/work:1"}]}


def now() -> str:
    return datetime.now(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")


class Cluster:
    """What users and kubelets do in one namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self.pods = f"/api/v1/namespaces/{namespace}/pods"

    def create_job(self, name: str, ttl: int | None = None, annotations: dict[str, str] | None = None) -> Any:
        spec: dict[str, Any] = {"template": {"spec": POD_SPEC}}
        if ttl is not None:
            spec["ttlSecondsAfterFinished"] = ttl
        metadata = {"name": name, "annotations": annotations or {}}
        return self.api.call("POST", self.jobs, {"metadata": metadata, "spec": spec})

    def job(self, name: str) -> Any:
        return self.api.get(f"{self.jobs}/{name}")

    def annotate(self, job: str, **annotations: str | None) -> None:
        ours = {f"ttlafterfinished.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
        self.api.call("PATCH", f"{self.jobs}/{job}", {"metadata": {"annotations": ours}})

    def end_pod(self, name: str) -> None:
        """End a Pod as a kubelet does."""
        ended = {"exitCode": 0, "reason": "Completed", "startedAt": now(), "finishedAt": now()}
        status = {
            "phase": "Succeeded",
            "startTime": now(),
            "containerStatuses": [
                {
                    "name": "main",
                    "image": "example.com/work:1",
                    "imageID": "",
                    "ready": False,
                    "restartCount": 0,
                    "state": {"terminated": ended},
                }
            ],
        }
        self.api.call("PATCH", f"{self.pods}/{name}/status", {"status": status})

    def finish_pods_of(self, job: str) -> None:
        """End the Job's Pods as a kubelet does, and wait until the Job controller has finished the Job."""
        selector = f"{self.pods}?labelSelector=batch.kubernetes.io/job-name%3D{job}"
        for pod in self.api.wait(f"a Pod of {job}", lambda: self.api.call("GET", selector)["items"]):
            self.end_pod(pod["metadata"]["name"])
        self.api.wait(f"the end of {job}", lambda: self.job(job) is None or finish_time(self.job(job)))

    def pass_due_time(self, ttl: int) -> None:
        """Wait until a Job that finishes now is deleted: a Job with this TTL that finished before was due by then.

        The TTL of the new Job is two seconds longer, since finish times are whole seconds.
        """
        self.create_job("later", ttl=ttl + 2)
        self.finish_pods_of("later")
        self.api.wait("the deletion of what was due later", lambda: self.job("later") is None)

    def await_deletion(self, job: Any) -> tuple[Any, datetime]:
        """What a Job was in the end, and when its deletion was seen; `job` is an earlier state of it."""
        meta = job["metadata"]
        query = f"watch=1&fieldSelector=metadata.name%3D{meta['name']}&resourceVersion={meta['resourceVersion']}"
        for event in self.api.watch(f"{self.jobs}?{query}&timeoutSeconds={WAIT_SECONDS}"):
            if event["type"] == "DELETED":
                return event["object"], datetime.now(UTC)
        raise AssertionError(f"{meta['name']} was not deleted")


def await_timer(cluster: Cluster, run: Run, job: str, ttl: int = 10) -> None:
    """Finish a Job and wait until its timer is set.

    First a Job that is due in a quarter of an hour shows that `run` follows: the sweep of a slow start deletes what is
    due by then, without a timer.
    """
    for name, seconds in (("witness", 900), (job, ttl)):
        cluster.create_job(name, ttl=seconds)
        cluster.finish_pods_of(name)
        cluster.api.wait(f"the timer of {name}", lambda name=name: re.search(f'timer-set .*/{name}"', run.text))


def finish_time(job: Any) -> datetime | None:
    """An independent reading of when a Job finished."""
    for condition in job["status"].get("conditions", []):
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return parse_instant(condition["lastTransitionTime"])
    return None


@pytest.fixture
def cluster(api: Api, namespace: str) -> Cluster:
    return Cluster(api, namespace)


Start = Callable[..., Run]


@pytest.mark.smoke
def test_job_finished_by_the_job_controller_is_deleted_when_due(cluster: Cluster, start_run: Start) -> None:
    run = start_run("-v")
    cluster.api.wait("the first sweep", lambda: "sweep ended" in run.text)
    job = cluster.create_job("report", ttl=5)
    cluster.finish_pods_of("report")
    last, deleted_at = cluster.await_deletion(job)

    assert deleted_at >= not_none(finish_time(last)) + timedelta(seconds=5)
    cluster.api.wait("the report", lambda: re.search(r'deleted .*/report"', run.text))
    cluster.api.wait("the garbage collection of its Pod", lambda: not cluster.api.call("GET", cluster.pods)["items"])


@pytest.mark.smoke
def test_sweep_finds_objects_that_finished_before_the_start(cluster: Cluster, start_run: Start) -> None:
    cluster.create_job("old", ttl=0)
    cluster.create_job("kept")
    cluster.create_job("running", ttl=0)
    cluster.finish_pods_of("old")
    cluster.finish_pods_of("kept")
    run = start_run("-v")
    cluster.api.wait("the deletion", lambda: cluster.job("old") is None)
    cluster.api.wait("the end of the sweep", lambda: "sweep ended" in run.text)

    assert cluster.job("kept") is not None
    assert cluster.job("running") is not None


@pytest.mark.smoke
def test_held_job_is_kept_past_its_due_time_until_the_release(cluster: Cluster, start_run: Start) -> None:
    run = start_run("-v")
    cluster.create_job("held", ttl=1, annotations={"ttlafterfinished.dev/hold": "wait for me"})
    cluster.finish_pods_of("held")
    cluster.api.wait("the decision", lambda: re.search(r'kept .*/held".*reason=held', run.text))
    cluster.pass_due_time(1)
    assert cluster.job("held") is not None

    cluster.annotate("held", hold=None)
    cluster.api.wait("the deletion once released", lambda: cluster.job("held") is None)


def test_recreated_job_survives_the_timer_of_its_predecessor(cluster: Cluster, start_run: Start) -> None:
    run = start_run()
    await_timer(cluster, run, "same-name")
    old = cluster.job("same-name")
    cluster.api.call("DELETE", f"{cluster.jobs}/same-name", {"propagationPolicy": "Background"})
    new = cluster.create_job("same-name", ttl=3)
    cluster.api.wait("the stale timer", lambda: re.search(f"already-gone.*{old['metadata']['uid']}", run.text))

    assert cluster.job("same-name")["metadata"]["uid"] == new["metadata"]["uid"]


def test_hold_added_after_the_timer_was_set_keeps_the_job(cluster: Cluster, start_run: Start) -> None:
    run = start_run("-v")
    await_timer(cluster, run, "held", ttl=10)
    cluster.annotate("held", hold="wait for me")
    cluster.pass_due_time(10)

    assert cluster.job("held") is not None, run.text

    cluster.annotate("held", hold=None)
    cluster.api.wait("the deletion once released", lambda: cluster.job("held") is None)


def test_ttl_raised_or_lowered_after_scheduling_applies(cluster: Cluster, start_run: Start) -> None:
    run = start_run()
    await_timer(cluster, run, "raised", ttl=10)
    cluster.annotate("raised", ttl="1h")
    cluster.create_job("lowered", ttl=600)
    cluster.finish_pods_of("lowered")
    cluster.api.wait("the timer of the lowered", lambda: re.search('timer-set .*/lowered"', run.text))
    cluster.annotate("lowered", ttl="1s")
    cluster.api.wait("the deletion of the lowered", lambda: cluster.job("lowered") is None)
    cluster.pass_due_time(10)

    assert cluster.job("raised") is not None


def test_scheduled_job_is_deleted_after_kill_9(cluster: Cluster, start_run: Start) -> None:
    run = start_run()
    await_timer(cluster, run, "patient")
    run.stop(signal.SIGKILL)
    start_run("--no-lease")
    cluster.api.wait("the deletion", lambda: cluster.job("patient") is None)


def test_dry_run_deletes_nothing_and_counts_due_objects(cluster: Cluster, start_run: Start) -> None:
    cluster.create_job("due", ttl=0)
    cluster.finish_pods_of("due")
    run = start_run("--dry-run", "-v")
    cluster.api.wait("the end of the sweep", lambda: "sweep ended" in run.text)

    assert "would-delete" in run.text
    assert cluster.job("due") is not None
    assert (
        cluster.api.get(f"{cluster.jobs.replace('batch', 'coordination.k8s.io').replace('jobs', 'leases')}")["items"]
        == []
    )


def test_dry_run_writes_no_event(cluster: Cluster, start_run: Start) -> None:
    cluster.create_job("typo", annotations={"ttlafterfinished.dev/ttl": "5 minutes"})
    cluster.finish_pods_of("typo")
    run = start_run("--dry-run", "-v")
    cluster.api.wait("the look", lambda: "invalid-ttl" in run.text)
    assert run.stop() == 0  # it would end what it has begun to write
    events = cluster.api.call("GET", cluster.pods.replace("pods", "events"))["items"]

    assert [event for event in events if event["reason"] == "InvalidTtl"] == []


def test_timer_of_another_namespace_deletes_nothing(cluster: Cluster, start_run: Start, api: Api) -> None:
    """The timers are one file for a cluster; a run that is limited to a namespace must not fire the others'."""
    first = start_run()
    await_timer(cluster, first, "elsewhere")
    first.stop()
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "another"}})
    second = start_run("--namespace", "another", "--no-lease", "-v")
    cluster.api.wait("the word", lambda: "namespace-not-enabled" in second.text)
    assert second.stop() == 0  # it would end the deletion that it has begun

    assert cluster.job("elsewhere") is not None


def test_environment_limits_the_kinds(cluster: Cluster, start_run: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTL_KINDS", "pods")
    cluster.create_job("due", ttl=0)
    cluster.finish_pods_of("due")
    run = start_run("-v")
    cluster.api.wait("the end of the sweep", lambda: "sweep ended" in run.text)

    assert "pods in namespace" in run.text
    assert cluster.job("due") is not None


def test_start_names_the_policy_in_force(cluster: Cluster, start_run: Start, tmp_path: Path) -> None:
    policy = tmp_path / "fleet.yaml"
    policy.write_text("rules: [{name: ci, match: {kinds: [Job]}, ttl: 1d}]")
    without = start_run()  # first: beside a leader with another policy it would not start
    cluster.api.wait("the start without a policy", lambda: "\nno policy (" in without.text)
    with_policy = start_run("--policy", str(policy))
    cluster.api.wait("the start with a policy", lambda: f"\npolicy {policy}: 1 rule\n" in with_policy.text)


def test_run_survives_an_outage_of_the_api_server(cluster: Cluster, start_run: Start) -> None:
    """Longer than a Lease lasts: the leader stops leading, waits, leads again, and deletes what was due."""
    run = start_run()
    await_timer(cluster, run, "due-meanwhile", ttl=4)
    server = cluster.api.server.pid("kube-apiserver")
    os.kill(server, signal.SIGSTOP)
    try:
        time.sleep(20)
    finally:
        os.kill(server, signal.SIGCONT)
    cluster.api.wait("the deletion", lambda: cluster.job("due-meanwhile") is None, 90)

    assert run.process.poll() is None
    assert "Traceback" not in run.text


def test_sigterm_releases_the_lease_so_that_the_next_run_leads_at_once(
    cluster: Cluster, start_run: Start, namespace: str
) -> None:
    def holder() -> str | None:
        listed = cluster.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")["items"]
        return next((one["spec"].get("holderIdentity") for one in listed), None)

    first = start_run()
    cluster.api.wait("the first to lead", lambda: "sweep at start" in first.text)
    second = start_run()
    cluster.api.wait("the second to wait", lambda: "waiting to lead" in second.text)

    leader = holder()
    assert leader
    assert first.stop() == 0
    assert holder() != leader  # the second need not wait until the Lease ends
    cluster.api.wait("the second to lead", lambda: second.text.count("sweep at start") == 2)


@pytest.mark.smoke
def test_malformed_ttl_keeps_the_job_and_is_reported_by_an_event(cluster: Cluster, start_run: Start) -> None:
    cluster.create_job("typo", annotations={"ttlafterfinished.dev/ttl": "5 minutes"})
    cluster.finish_pods_of("typo")
    start_run()
    events = cluster.pods.replace("pods", "events")
    found = cluster.api.wait(
        "the Event",
        lambda: [e for e in cluster.api.call("GET", events)["items"] if e["reason"] == "InvalidTtl"],
    )

    assert "ttlafterfinished.dev/ttl" in found[0]["message"]
    assert found[0]["involvedObject"]["name"] == "typo"
    assert cluster.job("typo") is not None


def test_kind_is_served_after_its_crd_is_installed(cluster: Cluster, start_run: Start, namespace: str) -> None:
    run = start_run("-v")
    cluster.api.wait("the end of the sweep", lambda: "sweep ended" in run.text)
    install_trainjob_crd(cluster.api)
    trainjobs = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs"
    body = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "llm", "annotations": {"ttlafterfinished.dev/ttl": "1s"}},
        "spec": {},
    }
    cluster.api.wait("the CRD to be served", lambda: created(cluster.api, trainjobs, body))
    done = {"type": "Complete", "status": "True", "reason": "JobsCompleted", "message": "", "lastTransitionTime": now()}
    cluster.api.call("PATCH", f"{trainjobs}/llm/status", {"status": {"conditions": [done]}})
    cluster.api.wait("the deletion", lambda: cluster.api.get(f"{trainjobs}/llm") is None, 60)
    assert "kind is now served kind=trainjobs.trainer.kubeflow.org" in run.text


def created(api: Api, path: str, body: Any) -> bool:
    try:
        api.call("POST", path, body)
    except urllib.error.HTTPError as error:
        return error.code == 409
    return True


def install_trainjob_crd(api: Api) -> None:
    names = {"plural": "trainjobs", "singular": "trainjob", "kind": "TrainJob", "listKind": "TrainJobList"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    spec = {"group": "trainer.kubeflow.org", "names": names, "scope": "Namespaced", "versions": [version]}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "trainjobs.trainer.kubeflow.org"},
        "spec": spec,
    }
    api.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
