"""Children and their logs, from a kubelet of our own, in an archive that `run` fills on a real kube-apiserver."""

import asyncio
import json
import signal
from functools import partial

import pytest

from shared.adapters.archive.codec import decompress
from shared.core.archive.layout import parse_key
from tests.integration.test_archive import Archiving
from tests.integration.test_run import POD_SPEC
from tests.kubelets import Kubelet, node, serving
from tests.servers import shared_server  # noqa: F401 - a fixture

pytestmark = pytest.mark.anyio

SIDE = {"name": "side", "image": "example.com/side:1"}


class Logging(Archiving):
    """Jobs whose Pods have two containers, on a node of a kubelet of our own."""

    def create(self, name, count):
        spec = POD_SPEC | {"nodeName": self.namespace, "containers": [*POD_SPEC["containers"], SIDE]}
        body = {"template": {"spec": spec}, "completions": count, "parallelism": count}
        self.api.call("POST", self.jobs, {"metadata": {"name": name}, "spec": body})
        listed = partial(self.api.call, "GET", f"{self.pods}?labelSelector=batch.kubernetes.io/job-name%3D{name}")
        return self.api.wait("the Pods", lambda: len(found := listed()["items"]) == count and found)

    def add_node(self, port):
        body, status = node(self.namespace, port)
        self.api.call("POST", "/api/v1/nodes", body)
        self.api.call("PATCH", f"/api/v1/nodes/{self.namespace}/status", status)

    def write_rule(self, ttl="1s"):
        archive = "{to: main, grace: 2s, children: true, logs: true}"
        policy = {
            "apiVersion": "ttlafterfinished.dev/v1",
            "kind": "Policy",
            "archives": {"main": {"url": f"file://{self.folder}"}},
        }
        rule = f"{{name: all, match: {{kinds: [jobs]}}, ttl: {ttl}, archive: {archive}}}"
        self.policy.write_text(f"{json.dumps(policy)[:-1]}, rules: [{rule}]}}\n")
        return self.policy

    def log(self, pod, container):
        """The stored log of a container; None if there is none."""
        files = list(self.folder.rglob(f"{pod['metadata']['name']}/*.{container}.log.zst"))
        return decompress(files[0].read_bytes()) if files else None


@pytest.fixture
def cluster(api, namespace, tmp_path):
    return Logging(api, namespace, tmp_path)


async def test_pods_of_a_job_are_archived_with_their_logs(cluster, start_run, tmp_path):
    kubelet = Kubelet()
    async with serving(kubelet, tmp_path) as port:
        await asyncio.to_thread(cluster.add_node, port)
        pods = await asyncio.to_thread(cluster.create, "build", 3)
        for pod in pods:
            name = pod["metadata"]["name"]
            kubelet.texts[f"{name}/main"] = f"the log of {name}\n".encode()
            kubelet.refusals[f"{name}/side"] = 400, f'container "side" in pod "{name}" is waiting to start'
        start_run("--policy", str(cluster.write_rule()), "--kinds", "jobs")
        await asyncio.to_thread(cluster.finish_pods_of, "build")
        ((_, document),) = await asyncio.to_thread(cluster.await_stored, "build")
        await asyncio.to_thread(cluster.await_gone, "build")

    children = {parse_key(path).name: cluster.folder / path for path in document.record.children}
    assert children.keys() == {pod["metadata"]["name"] for pod in pods}
    assert all(path.exists() for path in children.values())
    assert [cluster.log(pod, "main") for pod in pods] == [
        f"the log of {pod['metadata']['name']}\n".encode() for pod in pods
    ]
    assert [cluster.log(pod, "side") for pod in pods] == [None] * 3
    assert len(document.record.logs) == 3
    assert sorted(document.record.log_problems) == sorted(f"{name}/side" for name in children)
    assert all(problem.startswith("gone: ") for problem in document.record.log_problems.values())


async def test_job_whose_node_is_away_for_a_moment_is_archived_with_its_logs(cluster, start_run, tmp_path):
    kubelet = Kubelet()
    async with serving(kubelet, tmp_path) as port:
        await asyncio.to_thread(cluster.add_node, port)
    (pod,) = await asyncio.to_thread(cluster.create, "build", 1)
    name = pod["metadata"]["name"]
    kubelet.texts |= {f"{name}/{container}": b"the whole log\n" for container in ("main", "side")}
    run = start_run("--policy", str(cluster.write_rule()), "--kinds", "jobs")
    await asyncio.to_thread(cluster.finish_pods_of, "build")
    await asyncio.to_thread(cluster.api.wait, "the problem", lambda: "connection refused" in run.text, 30)
    assert cluster.stored("build") == []

    async with serving(kubelet, tmp_path, port=port):
        ((_, document),) = await asyncio.to_thread(cluster.await_stored, "build")
        await asyncio.to_thread(cluster.await_gone, "build")

    assert document.record.log_problems == {}
    assert [cluster.log(pod, container) for container in ("main", "side")] == [b"the whole log\n"] * 2


async def test_job_of_a_renamed_cluster_keeps_the_logs_of_pods_that_are_gone(cluster, start_run, tmp_path, monkeypatch):
    monkeypatch.setenv("TTL_CLUSTER", "before")
    kubelet = Kubelet()
    async with serving(kubelet, tmp_path) as port:
        await asyncio.to_thread(cluster.add_node, port)
        (pod,) = await asyncio.to_thread(cluster.create, "build", 1)
        name = pod["metadata"]["name"]
        kubelet.texts |= {f"{name}/{container}": b"the whole log\n" for container in ("main", "side")}
        run = start_run("--policy", str(cluster.write_rule("1h")), "--kinds", "jobs")
        await asyncio.to_thread(cluster.finish_pods_of, "build")
        await asyncio.to_thread(cluster.await_stored, "build")
        run.stop(signal.SIGTERM)
    await asyncio.to_thread(cluster.api.call, "DELETE", f"{cluster.pods}/{name}", {"gracePeriodSeconds": 0})

    monkeypatch.setenv("TTL_CLUSTER", "after")
    start_run("--policy", str(cluster.write_rule()), "--kinds", "jobs")
    await asyncio.to_thread(cluster.await_gone, "build", 60)

    (record,) = [one.record for key, one in cluster.stored("build") if key.cluster.startswith("after.")]
    assert (record.with_children, record.with_logs, record.log_problems) == (True, True, {})
    assert len(record.logs) == 2
    for path in (*record.children, *record.logs):
        assert path.startswith("v1/after.")
        assert (cluster.folder / path).exists()
    assert [decompress((cluster.folder / path).read_bytes()) for path in record.logs] == [b"the whole log\n"] * 2
