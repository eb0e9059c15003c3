"""`run` on a real kube-apiserver: names in a loop and an open breaker outlive it, and others may open and close it."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shared.core.policy.limits import RecreationLimits
from shared.safeguards.state_schema import NAME
from tests.integration.conftest import Api, Run
from tests.servers import shared_server  # noqa: F401 - a fixture

TIMES = RecreationLimits().times
POD_SPEC = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/work:1"}]}

HEAD = "apiVersion: ttlafterfinished.dev/v1\nkind: Policy\n"
LOOP = HEAD + "recreation: {times: 2, window: 10m}\n"
BREAKER = HEAD + "budget: {breaker: {count: 2, window: 10m}}\n"

Start = Callable[..., Run]


class Pods:
    """Finished Pods of one namespace, and the state that `run` keeps there."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        self.state = f"/api/v1/namespaces/{namespace}/configmaps/{NAME}"
        self.events = f"/api/v1/namespaces/{namespace}/events"

    def finish(self, name: str) -> str:
        """A Pod that is due at once."""
        metadata = {"name": name, "annotations": {"ttlafterfinished.dev/ttl": "0s"}}
        pod = self.api.call("POST", self.path, {"metadata": metadata, "spec": POD_SPEC})
        now = datetime.now(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")
        ended = {"terminated": {"exitCode": 0, "startedAt": now, "finishedAt": now}}
        container = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": ended}
        status = {"phase": "Succeeded", "startTime": now, "containerStatuses": [container]}
        self.api.call("PATCH", f"{self.path}/{name}/status", {"status": status})
        return str(pod["metadata"]["uid"])

    def is_gone(self, name: str) -> bool:
        return self.api.get(f"{self.path}/{name}") is None

    def data(self) -> dict[str, Any]:
        return (self.api.get(self.state) or {}).get("data") or {}


@pytest.fixture
def pods(api: Api, namespace: str) -> Pods:
    return Pods(api, namespace)


def test_pod_that_returns_after_each_delete_is_kept_across_a_restart(pods: Pods, start_run: Start) -> None:
    run = start_run("--kinds", "pods", "-v")
    for _ in range(TIMES):
        pods.finish("again")
        pods.api.wait("the deletion", lambda: pods.is_gone("again"))
    uid = pods.finish("again")
    pods.api.wait("the loop", lambda: f"uid={uid} reason=recreate-loop" in run.text)
    assert not pods.is_gone("again")
    assert "recreation" in pods.data()
    (event,) = [one for one in pods.api.call("GET", pods.events)["items"] if one["reason"] == "RecreateLoop"]
    assert event["involvedObject"]["uid"] == uid
    assert run.stop() == 0

    before = run.text
    restarted = start_run("--kinds", "pods", "-v")
    pods.finish("another")
    pods.api.wait("the deletion", lambda: pods.is_gone("another"))
    pods.api.wait("the loop", lambda: f"uid={uid} reason=recreate-loop" in restarted.text.removeprefix(before))
    assert not pods.is_gone("again")


def test_loop_is_found_by_processes_that_each_see_one_round(pods: Pods, start_run: Start, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(LOOP)
    for _ in range(2):
        run = start_run("--kinds", "pods", "-v", "--policy", str(policy))
        pods.finish("again")
        pods.api.wait("the deletion", lambda: pods.is_gone("again"))
        assert run.stop() == 0
    (name,) = json.loads(pods.data()["names"])
    assert name == f"Pod/{pods.namespace}/again"

    run = start_run("--kinds", "pods", "-v", "--policy", str(policy))
    uid = pods.finish("again")
    pods.api.wait("the loop", lambda: f"uid={uid} reason=recreate-loop" in run.text)
    assert not pods.is_gone("again")


def test_breaker_trips_at_the_sum_of_the_deletions_of_all_processes(
    pods: Pods, start_run: Start, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(BREAKER)
    for number in range(2):
        run = start_run("--kinds", "pods", "-v", "--policy", str(policy))
        pods.finish(f"gone-{number}")
        pods.api.wait("the deletion", lambda name=f"gone-{number}": pods.is_gone(name))
        assert run.stop() == 0

    run = start_run("--kinds", "pods", "-v", "--policy", str(policy))
    pods.finish("kept")
    pods.api.wait("the trip", lambda: "reason=breaker-open" in run.text)
    assert not pods.is_gone("kept")
    pods.api.call("PATCH", pods.state, {"data": {"breaker": None}})
    pods.api.wait("the deletion", lambda: pods.is_gone("kept"))


def test_open_breaker_stops_every_process_until_it_is_released(pods: Pods, start_run: Start) -> None:
    trip = '{"at":"2026-01-02T03:04:05Z","why":"too many","by":"sweep"}'
    pods.api.call("POST", pods.state.rpartition("/")[0], {"metadata": {"name": NAME}, "data": {"breaker": trip}})
    run = start_run("--kinds", "pods", "-v")
    pods.finish("kept")
    pods.api.wait("the refusal", lambda: "reason=breaker-open" in run.text)
    assert "since 2026-01-02T03:04:05Z: too many" in run.text
    assert not pods.is_gone("kept")

    # No event tells of it, and the next sweep is minutes away.
    pods.api.call("PATCH", pods.state, {"data": {"breaker": None}})
    pods.api.wait("the deletion", lambda: pods.is_gone("kept"))
    pods.api.wait("the report", lambda: "the breaker is released" in run.text)
