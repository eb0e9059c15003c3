"""Pending deadlines of Pods on a real kube-apiserver, through `run` as a user starts it; no scheduler, no kubelet."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.core.values.objects import parse_instant
from tests.integration.conftest import Api, Run
from tests.integration.test_run import POD_SPEC, now
from tests.servers import shared_server  # noqa: F401 - a fixture

Start = Callable[..., Run]
OURS = "ttlafterfinished.dev/"
DEADLINE = timedelta(seconds=4)
POLICY = f"""\
apiVersion: ttlafterfinished.dev/v1
kind: Policy
rules:
  - name: stuck
    match: {{kinds: [pods]}}
    pendingDeadline: {DEADLINE.seconds}s
    onDeadline: delete
"""


class Pods:
    """What a user, the scheduler and a kubelet do with the Pods of one namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.path = api, f"/api/v1/namespaces/{namespace}/pods"
        self.events = f"/api/v1/namespaces/{namespace}/events?fieldSelector=source%3Dttl-after-finished"

    def create(self, name: str, *, gated: bool = False, **annotations: str) -> None:
        named = {f"{OURS}{key.replace('_', '-')}": value for key, value in annotations.items()}
        spec = POD_SPEC | ({"schedulingGates": [{"name": "example.com/queue"}]} if gated else {})
        self.api.call("POST", self.path, {"metadata": {"name": name, "annotations": named}, "spec": spec})

    def get(self, name: str) -> Any:
        return self.api.get(f"{self.path}/{name}")

    def write_status(self, name: str, **status: Any) -> None:
        self.api.call("PATCH", f"{self.path}/{name}/status", {"status": status})

    def refuse(self, name: str) -> datetime:
        """Write what the scheduler writes about a Pod for which it has no node; returns since when."""
        at = now()
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": at}
        self.write_status(name, conditions=[condition])
        return parse_instant(at)

    def accept(self, name: str, state: dict[str, Any]) -> datetime:
        """Write what a kubelet writes about a Pod whose container has this state; returns its start time."""
        at = now()
        container = {"name": "main", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": state}
        self.write_status(name, startTime=at, containerStatuses=[container])
        return parse_instant(at)


@pytest.fixture
def pods(api: Api, namespace: str) -> Pods:
    return Pods(api, namespace)


@pytest.fixture
def run(pods: Pods, start_run: Start, tmp_path: Path) -> Run:
    """A `run` with the policy, whose watch has brought an object: what follows is seen by an event."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    started = start_run("--kinds", "pods", "-v", "--policy", str(policy))
    pods.api.wait("the first sweep", lambda: "sweep ended" in started.text)
    pods.create("witness", pending_deadline="15m", on_deadline="delete")
    pods.refuse("witness")
    pods.api.wait("the timer of the witness", lambda: re.search(r'timer-set .*/witness"', started.text))
    return started


def test_pod_that_no_node_accepts_is_deleted_at_its_pending_deadline_and_others_stay(pods: Pods, run: Run) -> None:
    pods.create("started")
    pods.refuse("started")
    pods.create("gated", gated=True)
    pods.create("patient", pending_deadline="never")
    pods.refuse("patient")
    pods.create("stuck")
    since = pods.refuse("stuck")
    pods.accept("started", {"running": {"startedAt": now()}})

    pods.api.wait("its deletion", lambda: pods.get("stuck") is None)
    assert datetime.now(UTC) >= since + DEADLINE
    pods.create("later")
    pods.refuse("later")
    pods.api.wait("the deletion of a later one", lambda: pods.get("later") is None)
    assert [name for name in ("started", "gated", "patient") if pods.get(name) is None] == []
    events = [one for one in pods.api.call("GET", pods.events)["items"] if one["involvedObject"]["name"] == "stuck"]
    assert [one["reason"] for one in events] == ["DeadlineExceeded"]
    assert re.search(r'deleted .*/stuck".*reason=deadline-exceeded', run.text)


def test_pod_that_cannot_pull_its_image_is_failed_by_its_kubelet(pods: Pods, run: Run) -> None:
    """Its own annotation has it stopped, not deleted: the patch is the deadline that a kubelet enforces."""
    pods.create("pulls", on_deadline="stop")
    since = pods.accept("pulls", {"waiting": {"reason": "ImagePullBackOff"}})

    def stopped() -> Any:
        pod = pods.get("pulls")
        return pod if pod["spec"].get("activeDeadlineSeconds") == 1 else None

    marked = pods.api.wait("its stop", stopped)
    assert parse_instant(marked["metadata"]["annotations"][f"{OURS}deadline-exceeded"]) >= since + DEADLINE
    assert re.search(r'stopped .*/pulls"', run.text)
