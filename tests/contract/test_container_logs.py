"""The logs of containers: of the adapter on both API servers, with a kubelet of our own, and of the double."""

from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass

import pytest

from shared.core.values.objects import ref_of
from shared.devserver.apiserver.pod_logs import LOG_ANNOTATION
from shared.errors import MissingLogError
from tests.contract.conftest import Api
from tests.kubelets import Kubelet, node, serving

pytestmark = pytest.mark.anyio

MAIN, SIDE = "main", "side"


@dataclass
class Logging:
    """Pods with logs, on any of the servers."""

    api: Api
    kubelet: Kubelet | None
    node: str

    async def pod(self, name, *, waiting=(), **texts):
        """A Pod whose containers have these logs; those in `waiting` have not started."""
        annotations = {LOG_ANNOTATION + container: text for container, text in texts.items()}
        containers = [{"name": container, "image": "i"} for container in (MAIN, SIDE)]
        body = {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"restartPolicy": "Never", "nodeName": self.node, "containers": containers},
        }
        assert (await self.api.post(self.api.pods(), body)).status == 201
        statuses = [_status(container, is_waiting=container in waiting) for container in (MAIN, SIDE)]
        answer = await self.api.patch(
            self.api.pods(name) + "/status", {"status": {"phase": "Running", "containerStatuses": statuses}}
        )
        assert answer.status == 200, answer
        if self.kubelet:
            for container in waiting:
                text = f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating'
                self.kubelet.refusals[f"{name}/{container}"] = 400, text
            self.kubelet.texts |= {f"{name}/{container}": text.encode() for container, text in texts.items()}
        return ref_of(answer.body)


def _status(container, *, is_waiting):
    state = {"waiting": {"reason": "ContainerCreating"}} if is_waiting else {"running": {}}
    about = {"name": container, "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    return about | {"state": state}


@pytest.fixture
async def logging(api, server, tmp_path):
    """The real server asks a kubelet; the embedded one has the logs in annotations."""
    async with AsyncExitStack() as stack:
        if server.id != "real":
            yield Logging(api, None, "node")
            return
        kubelet, name = Kubelet(), f"node-{api.namespace}"
        port = await stack.enter_async_context(serving(kubelet, tmp_path))
        body, status = node(name, port)
        assert (await api.post("/api/v1/nodes", body)).status == 201
        assert (await api.patch(f"/api/v1/nodes/{name}/status", status)).status == 200
        yield Logging(api, kubelet, name)
        await api.delete(f"/api/v1/nodes/{name}")


async def read(cluster, ref, container=MAIN, bytes_max=1_000):
    async with aclosing(cluster.logs(ref, container, bytes_max=bytes_max)) as chunks:
        return b"".join([chunk async for chunk in chunks])


async def test_log_of_each_container_is_read(cluster, logging):
    ref = await logging.pod("a", main="first line\nsecond line\n", side="öther\n")

    assert await read(cluster, ref) == b"first line\nsecond line\n"
    assert await read(cluster, ref, SIDE) == "öther\n".encode()


async def test_log_ends_at_the_limit(cluster, logging):
    ref = await logging.pod("a", main="0123456789")

    assert await read(cluster, ref, bytes_max=4) == b"0123"
    assert await read(cluster, ref, bytes_max=10) == b"0123456789"


async def test_container_that_wrote_nothing_has_an_empty_log(cluster, logging):
    assert await read(cluster, await logging.pod("a")) == b""


async def test_container_that_has_not_started_has_no_log(cluster, logging):
    ref = await logging.pod("a", waiting=[SIDE], main="text")

    with pytest.raises(MissingLogError, match="is waiting to start"):
        await read(cluster, ref, SIDE)
    assert await read(cluster, ref) == b"text"


async def test_unknown_container_has_no_log(cluster, logging):
    ref = await logging.pod("a", main="text")

    with pytest.raises(MissingLogError, match="container other is not valid for pod a"):
        await read(cluster, ref, "other")


async def test_pod_that_is_gone_has_no_log(api, cluster, logging):
    ref = await logging.pod("a", main="text")
    await api.delete(api.pods("a"), {"gracePeriodSeconds": 0})

    with pytest.raises(MissingLogError, match='pods "a" not found'):
        await read(cluster, ref)


async def test_log_can_only_be_read(api):
    await api.pod("a")

    for call in (api.put, api.patch):
        assert (await call(api.pods("a") + "/log", {"metadata": {"name": "a"}})).status == 405
    assert (await api.delete(api.pods("a") + "/log")).status == 405
    assert (await api.get(api.pods("a"))).status == 200
