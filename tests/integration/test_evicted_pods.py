"""Evicted Pods of a ReplicaSet and of a Job, with the real controllers of both; only the kubelet is played."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Api, Run

EVICTED = 500
CLIENTS = 8
POD_SPEC = {"containers": [{"name": "main", "image": "example.com/work:1"}]}
LABELS = {"app": "shop"}
POLICY = """
apiVersion: ttlafterfinished.dev/v1
kind: Policy
rules:
  - name: failed-pods
    match: {kinds: [pods]}
    ttl: {failed: 1s}
    onOwned: delete
"""
"""`onOwned: delete` changes nothing for the Pods of an unfinished Job."""


@pytest.fixture(scope="module")
def controllers() -> list[str]:
    return ["replicaset-controller", "job-controller", "garbage-collector-controller"]


class Place:
    """One namespace, with a ReplicaSet and a Job."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self.replica_set = f"/apis/apps/v1/namespaces/{namespace}/replicasets/shop"
        self.job = f"/apis/batch/v1/namespaces/{namespace}/jobs/report"

    def create(self, path: str, kind: str, **spec: Any) -> Any:
        place, _, name = path.rpartition("/")
        return self.api.call("POST", place, {"kind": kind, "metadata": {"name": name}, "spec": spec})

    def of(self, owner: Any, *, failed: bool) -> list[Any]:
        """The Pods of an owner that failed, or the others."""
        field = f"status.phase{'%3D' if failed else '%21%3D'}Failed"
        found = self.api.call("GET", f"{self.pods}?fieldSelector={field}")["items"]
        owned = [one for one in found if one["metadata"].get("ownerReferences")]
        return [one for one in owned if one["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]]

    def await_active(self, owner: Any, count: int) -> list[Any]:
        name = owner["metadata"]["name"]
        self.api.wait(f"{count} active Pods of {name}", lambda: len(self.of(owner, failed=False)) == count)
        return self.of(owner, failed=False)

    def evict(self, name: str) -> None:
        """What the kubelet writes about a Pod that it rejects or evicts before its containers started."""
        status = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
        self.api.call("PATCH", f"{self.pods}/{name}/status", {"status": status})

    def leave_behind(self, owner: Any, numbers: range) -> None:
        """Make evicted Pods of a ReplicaSet; it never sees them active, because it would delete them as too many."""
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop", "uid": owner["metadata"]["uid"]}
        owned = {"metadata": {"labels": LABELS, "ownerReferences": [{**reference, "controller": True}]}}

        def make(number: int) -> None:
            name = f"evicted-{number}"
            self.api.call("POST", self.pods, {"metadata": {"name": name}, "spec": POD_SPEC})
            self.evict(name)
            self.api.call("PATCH", f"{self.pods}/{name}", owned)

        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(make, numbers))


def names_of(pods: list[Any]) -> set[str]:
    return {one["metadata"]["name"] for one in pods}


@pytest.mark.timeout(300)
def test_evicted_pods_of_a_replica_set_are_deleted_and_none_is_started_for_them(
    api: Api, namespace: str, start_run: Callable[..., Run], tmp_path: Path
) -> None:
    place = Place(api, namespace)
    template = {"metadata": {"labels": LABELS}, "spec": POD_SPEC}
    shop = place.create(
        place.replica_set, "ReplicaSet", replicas=2, selector={"matchLabels": LABELS}, template=template
    )
    first = names_of(place.await_active(shop, 2))
    for name in first:
        place.evict(name)
    active = names_of(place.await_active(shop, 2))
    assert not active & first
    place.leave_behind(shop, range(EVICTED - len(first)))
    assert len(place.of(shop, failed=True)) == EVICTED

    once = {"spec": {**POD_SPEC, "restartPolicy": "Never"}}
    report = place.create(place.job, "Job", completions=2, parallelism=2, template=once)
    (evicted, _) = sorted(names_of(place.await_active(report, 2)))
    place.evict(evicted)
    api.wait("the count of the Job", lambda: api.get(place.job)["status"].get("failed") == 1)
    place.await_active(report, 2)
    counts = api.get(place.job)["status"]
    before = api.call("GET", place.pods)["metadata"]["resourceVersion"]

    (tmp_path / "policy.yaml").write_text(POLICY)
    run = start_run("--policy", str(tmp_path / "policy.yaml"))
    api.wait("the deletion of the evicted Pods", lambda: not place.of(shop, failed=True), seconds=120)
    api.wait("the end of a sweep", lambda: "sweep ended" in run.text)

    # The controller has seen the deletions once it has seen a change that was made after them.
    generation = api.call("PATCH", place.replica_set, {"spec": {"minReadySeconds": 1}})["metadata"]["generation"]
    api.wait("the controller", lambda: api.get(place.replica_set)["status"]["observedGeneration"] == generation)
    assert names_of(place.of(shop, failed=False)) == active
    assert api.get(place.replica_set)["status"]["replicas"] == 2
    assert names_of(place.of(report, failed=True)) == {evicted}
    assert api.get(place.job)["status"] == counts
    events = api.watch(f"{place.pods}?watch=1&resourceVersion={before}&timeoutSeconds=1")
    assert [event["object"]["metadata"]["name"] for event in events if event["type"] == "ADDED"] == []
