"""Logs that are long, cut, or not to be had, on a real kube-apiserver that asks a kubelet of our own."""

import tracemalloc
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from shared.adapters.kubernetes import requests
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.adapters.kubernetes.connect import connect
from shared.core.values.objects import ref_of
from shared.devserver.ports import free_port
from shared.errors import ForbiddenError, MissingLogError, PermanentError, TryLaterError, UnreachableLogError
from shared.evaluation.pod_logs import LogGap, PodLogs
from shared.ports import Cluster
from tests.integration.conftest import Api
from tests.kubelets import LINE, Kubelet, node, serving

pytestmark = pytest.mark.anyio

MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def controllers():
    """None: nothing may touch the Pods."""
    return []


@pytest.fixture
def kubelet():
    return Kubelet()


@pytest.fixture
async def cluster(server) -> AsyncIterator[Cluster]:
    cluster = await connect(kubeconfig=str(server.kubeconfig))
    yield cluster
    await cluster.close()


@pytest.fixture
async def pod(api: Api, namespace: str, kubelet: Kubelet, tmp_path):
    """A Pod that has finished on a node of this kubelet."""
    async with serving(kubelet, tmp_path) as port:
        create(api, namespace, port)
        yield api.get(f"/api/v1/namespaces/{namespace}/pods/pod")


def create(api, namespace, port):
    body, status = node(namespace, port)
    api.call("POST", "/api/v1/nodes", body)
    api.call("PATCH", f"/api/v1/nodes/{namespace}/status", status)
    spec = {"restartPolicy": "Never", "nodeName": namespace, "containers": [{"name": "main", "image": "i"}]}
    path = f"/api/v1/namespaces/{namespace}/pods"
    api.call("POST", path, {"metadata": {"name": "pod"}, "spec": spec})
    state = {"terminated": {"exitCode": 0}}
    about = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": state}
    api.call("PATCH", f"{path}/pod/status", {"status": {"phase": "Succeeded", "containerStatuses": [about]}})


async def read(cluster, pod, bytes_max=64 * MEGABYTE):
    async with aclosing(cluster.logs(ref_of(pod), "main", bytes_max=bytes_max)) as chunks:
        return [len(chunk) async for chunk in chunks]


async def only_log(cluster, pod, bytes_max=10 * MEGABYTE):
    """The log of the Pod's container, after it was read."""
    (log,) = [await _drained(log) async for log in PodLogs(cluster, bytes_max).read(pod)]
    return log


async def _drained(log):
    async for _ in log.chunks():
        pass
    return log


async def test_long_log_is_read_in_little_memory(cluster: KubernetesCluster, pod, kubelet):
    kubelet.texts["pod/main"] = 30 * MEGABYTE
    await read(cluster, pod, bytes_max=1)  # what a first request allocates
    tracemalloc.start()
    try:
        sizes = await read(cluster, pod)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert sum(sizes) == 30 * MEGABYTE
    assert max(sizes) <= requests.LOG_CHUNK_BYTES
    assert peak < 4 * MEGABYTE


@pytest.mark.parametrize("honours_limit", [True, False])
async def test_log_is_cut_at_the_limit(cluster, pod, kubelet, honours_limit):
    """Also if the kubelet ignores the limit; then the connection ends."""
    kubelet.texts["pod/main"], kubelet.honours_limit = 30 * MEGABYTE, honours_limit

    log = await only_log(cluster, pod, bytes_max=2 * MEGABYTE)

    assert (log.size, log.gap) == (2 * MEGABYTE, LogGap.CUT)
    assert kubelet.sent < 20 * MEGABYTE
    assert kubelet.queries[-1]["limitBytes"] == str(2 * MEGABYTE + 1)


async def test_log_of_exactly_the_limit_is_whole(cluster, pod, kubelet):
    kubelet.texts["pod/main"] = LINE * 100

    log = await only_log(cluster, pod, bytes_max=len(LINE) * 100)

    assert (log.size, log.gap) == (len(LINE) * 100, None)


async def test_log_of_a_kubelet_that_is_away_may_come_later(api, namespace, cluster, kubelet, tmp_path):
    async with serving(kubelet, tmp_path) as port:
        create(api, namespace, port)
    pod = api.get(f"/api/v1/namespaces/{namespace}/pods/pod")

    with pytest.raises(UnreachableLogError, match="connection refused"):
        await read(cluster, pod)
    log = await only_log(cluster, pod)
    assert (log.gap, log.is_missing, log.may_come) == (LogGap.UNREACHABLE, True, True)


async def test_log_that_stalls_is_broken_off_and_its_beginning_kept(cluster, pod, kubelet, monkeypatch):
    monkeypatch.setattr(requests, "LOG_IDLE_SECONDS_MAX", 1.0)
    kubelet.texts["pod/main"], kubelet.hangs_after = 5 * MEGABYTE, MEGABYTE

    log = await only_log(cluster, pod)

    assert (log.gap, log.is_missing, log.may_come) == (LogGap.BROKEN_OFF, False, True)
    assert 0 < log.size <= kubelet.sent < 5 * MEGABYTE


async def test_log_of_a_kubelet_that_hangs_may_come_later(cluster, pod, kubelet, monkeypatch):
    monkeypatch.setattr(requests, "LOG_IDLE_SECONDS_MAX", 1.0)
    kubelet.hangs_after = 0

    log = await only_log(cluster, pod)

    assert (log.gap, log.is_missing, log.may_come) == (LogGap.UNREACHABLE, True, True)
    assert "no answer from its node in time" in log.problem


async def test_api_server_that_is_away_is_no_missing_log(cluster, pod, tmp_path, server):
    text = server.kubeconfig.read_text().replace(server.url, f"https://127.0.0.1:{free_port()}")
    (tmp_path / "kubeconfig").write_text(text)
    away = await connect(kubeconfig=str(tmp_path / "kubeconfig"))

    with pytest.raises(TryLaterError, match="cannot reach the API server") as raised:
        await read(away, pod)
    assert not isinstance(raised.value, UnreachableLogError)
    await away.close()


async def test_account_without_the_right_to_logs_is_told_apart(api, server, namespace, pod, tmp_path, kubelet):
    api.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "poor"}})
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/poor/token"
    token = api.call("POST", path, {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {}})
    text = server.kubeconfig.read_text().replace(server.token, token["status"]["token"])
    (tmp_path / "kubeconfig").write_text(text)
    poor = await connect(kubeconfig=str(tmp_path / "kubeconfig"))

    with pytest.raises(ForbiddenError, match='cannot get resource "pods/log"'):
        await only_log(poor, pod)

    assert kubelet.queries == []
    await poor.close()


async def test_log_of_a_node_that_is_gone_is_missing(api, namespace, cluster, pod):
    api.call("DELETE", f"/api/v1/nodes/{namespace}")

    log = await only_log(cluster, pod)

    assert (log.gap, log.is_missing, log.may_come) == (LogGap.GONE, True, False)


async def test_log_that_the_kubelet_lost_is_missing(cluster, pod, kubelet):
    kubelet.refusals["pod/main"] = 404, 'pod "pod" does not exist'

    with pytest.raises(MissingLogError, match=f"log of container main of Pod {pod['metadata']['namespace']}/pod"):
        await read(cluster, pod)
    assert (await only_log(cluster, pod)).gap is LogGap.GONE


async def test_log_that_the_kubelet_fails_to_read_may_come_later(cluster, pod, kubelet):
    kubelet.refusals["pod/main"] = 500, "failed to try resolving symlinks"

    log = await only_log(cluster, pod)

    assert (log.gap, log.may_come) == (LogGap.UNREACHABLE, True)
    assert "failed to try resolving symlinks" in log.problem


@pytest.mark.parametrize(("status", "text"), [(401, "Unauthorized"), (405, "Debug endpoints are disabled.")])
async def test_log_that_the_kubelet_refuses_is_no_gap(cluster, pod, kubelet, status, text):
    kubelet.refusals["pod/main"] = status, text

    with pytest.raises(PermanentError, match=f"{status}.*expected the log, or logs: false in the policy rule"):
        await only_log(cluster, pod)


async def test_log_of_a_kubelet_that_ends_meanwhile_is_kept_as_far_as_it_was_read(cluster, pod, kubelet):
    """kube-apiserver ends its answer as usual, so that no client can tell."""
    kubelet.texts["pod/main"], kubelet.breaks_after = 5 * MEGABYTE, MEGABYTE

    log = await only_log(cluster, pod)

    assert 0 < log.size < 5 * MEGABYTE
