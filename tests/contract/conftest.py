"""One suite for the embedded API server, a real kube-apiserver, and the double of the Cluster port."""

import asyncio
import itertools
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLContext
from typing import Any

import aiohttp
import pytest

from shared.adapters.clock import SystemClock
from shared.adapters.kubernetes.connect import connect
from shared.devserver.apiserver import EmbeddedApiServer, Store, serve, write_kubeconfig
from shared.devserver.real_servers import RealServer
from shared.ports import Cluster
from tests.contract.definitions import DEFINITIONS, Crds
from tests.s3_servers import S3Server
from tests.servers import shared_api_server, shared_s3_server
from tests.store_cluster import StoreCluster

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
_names = itertools.count()

SMOKE_ROWS = {"server": {"real"}, "world": {"sqlite", "nats"}, "subject": {"s3"}}
"""Of a test in the smoke selection, by the fixture that selects a server: the rows that are in it."""


@dataclass(frozen=True)
class Server:
    """A server under test."""

    id: str
    url: str
    kubeconfig: Path
    compact: Callable[[], None]
    collects_garbage: bool
    token: str = "anyone"
    ssl: SSLContext | None = None
    double: StoreCluster | None = None


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    headers: dict[str, str]

    @property
    def names(self):
        return [item["metadata"]["name"] for item in self.body["items"]]

    @property
    def meta(self):
        return self.body["metadata"]

    def is_error(self, code, reason):
        return (self.status, self.body["code"], self.body["status"], self.body["reason"]) == (
            code, code, "Failure", reason,
        )  # fmt: skip


@dataclass(frozen=True)
class Api:
    """Plain HTTP, no client library: what is on the wire is what is tested."""

    server: Server
    session: aiohttp.ClientSession
    namespace: str = field(default_factory=lambda: f"contract-{os.getpid()}-{next(_names)}")

    def path(self, plural, name="", *, group="", version="v1", namespace=None):
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        return f"{root}/namespaces/{namespace or self.namespace}/{plural}" + (f"/{name}" if name else "")

    def jobs(self, name=""):
        return self.path("jobs", name, group="batch")

    def pods(self, name=""):
        return self.path("pods", name)

    def config_maps(self, name=""):
        return self.path("configmaps", name)

    def secrets(self, name=""):
        return self.path("secrets", name)

    async def call(self, method, path, body=None, *, accept="application/json", kind="application/json", **query):
        data = body if isinstance(body, bytes | None) else json.dumps(body)
        params = {key.rstrip("_"): str(value) for key, value in query.items()}
        headers = {"Accept": accept, "Content-Type": kind}
        url = self.server.url + path
        async with self.session.request(method, url, data=data, params=params, headers=headers) as answer:
            text = await answer.text()
            is_json = answer.content_type == "application/json"
            return Answer(answer.status, json.loads(text) if is_json else text, dict(answer.headers))

    async def get(self, path, **options):
        return await self.call("GET", path, **options)

    async def post(self, path, body, **options):
        return await self.call("POST", path, body, **options)

    async def put(self, path, body, **options):
        return await self.call("PUT", path, body, **options)

    async def patch(self, path, body, kind=MERGE, **options):
        return await self.call("PATCH", path, body, kind=kind, **options)

    async def delete(self, path, body=None, **options):
        return await self.call("DELETE", path, body, **options)

    async def watch(self, path, *, seconds=1, **options):
        """All events of a watch that ends by itself."""
        answer = await self.get_lines(path, watch=1, timeoutSeconds=seconds, **options)
        return [json.loads(line) for line in answer.splitlines() if line]

    async def get_lines(self, path, accept="application/json", **query):
        params = {key: str(value) for key, value in query.items()}
        async with self.session.get(self.server.url + path, params=params, headers={"Accept": accept}) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.text()

    async def config_map(self, name, **metadata):
        answer = await self.post(self.config_maps(), {"metadata": {"name": name, **metadata}, "data": {"a": "1"}})
        assert answer.status == 201, answer
        return answer.body

    async def secret(self, name, **metadata):
        answer = await self.post(self.secrets(), {"metadata": {"name": name, **metadata}})
        assert answer.status == 201, answer
        return answer.body

    async def job(self, name, **metadata):
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
        spec = {"managedBy": "example.com/contract", "template": template}  # not by the Job controller
        answer = await self.post(self.jobs(), {"metadata": {"name": name, **metadata}, "spec": spec})
        assert answer.status == 201, answer
        return answer.body

    async def pod(self, name, **metadata):
        spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
        answer = await self.post(self.pods(), {"metadata": {"name": name, **metadata}, "spec": spec})
        assert answer.status == 201, answer
        return answer.body

    async def becomes(self, path, wanted, seconds=30):
        """Whether a path's answer satisfies `wanted` before long: controllers take their time."""
        deadline = time.monotonic() + seconds
        while not wanted(answer := await self.get(path)):
            if time.monotonic() > deadline:
                pytest.fail(f"{path} is still {answer}")
            await asyncio.sleep(0.1)
        return answer


@pytest.fixture(scope="session")
def real(pytestconfig: pytest.Config) -> RealServer:
    """A kube-apiserver for all tests; they keep apart by their namespaces."""
    return shared_api_server(pytestconfig)


@pytest.fixture(scope="session")
def s3(pytestconfig: pytest.Config) -> S3Server:
    """An S3 server for all tests; they keep apart by their buckets."""
    return shared_s3_server(pytestconfig)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that does not choose its server against both, and a test of the Cluster port against the double."""
    is_chosen = any("server" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "server" in metafunc.fixturenames and not is_chosen:
        double = ["double"] if "cluster" in metafunc.fixturenames else []
        metafunc.parametrize("server", ["embedded", "real", *double], indirect=True)


@pytest.hookimpl(tryfirst=True)  # before the tests without the mark are deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the mark `smoke` only to the rows of a test that run on real servers."""
    for item in items:
        params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if any(name in params and params[name] not in rows for name, rows in SMOKE_ROWS.items()):
            item.own_markers = [mark for mark in item.own_markers if mark.name != "smoke"]


@pytest.fixture
async def server(request, tmp_path, anyio_backend) -> AsyncIterator[Server]:
    if request.param == "real":
        real: RealServer = request.getfixturevalue("real")
        yield Server("real", real.url, real.kubeconfig, real.compact, real.has_controllers(), real.token, real.ssl)
        return
    store = Store(SystemClock().now)
    async with serve(EmbeddedApiServer(store)) as url:
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", url)
        double = StoreCluster(store, time.monotonic) if request.param == "double" else None
        yield Server(request.param, url, kubeconfig, store.compact, True, double=double)


@pytest.fixture
async def cluster(server) -> AsyncIterator[Cluster]:
    """The Cluster port: the adapter, or the double over the store of the embedded API server."""
    if server.double:
        yield server.double
        return
    cluster = await connect(kubeconfig=str(server.kubeconfig))
    yield cluster
    await cluster.close()


@pytest.fixture
async def api(server) -> AsyncIterator[Api]:
    """A client, and a namespace of its own."""
    async with AsyncExitStack() as stack:
        connector = aiohttp.TCPConnector(ssl=server.ssl or True)
        headers = {"Authorization": f"Bearer {server.token}", "User-Agent": "contract/1"}
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector, headers=headers))
        api = Api(server, session)
        answer = await api.post("/api/v1/namespaces", {"metadata": {"name": api.namespace}})
        assert answer.status == 201, answer
        yield api


@pytest.fixture
async def crds(api):
    crds = Crds(api)
    yield crds
    for plural in crds.installed:
        await api.delete(f"{DEFINITIONS}/{plural}.{crds.group}")
