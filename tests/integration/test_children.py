"""Children on a real kube-apiserver: ten thousand, a burst of Jobs, and a kind that is served in another version."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing

import aiohttp
import pytest

from shared.adapters.clock import SystemClock
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.adapters.kubernetes.connect import connect
from shared.adapters.kubernetes.requests import resource_path
from shared.core.kinds.rule import Catalogue
from shared.core.values.objects import ref_of
from shared.devserver.apiserver import EmbeddedApiServer, Store, serve, write_kubeconfig
from shared.devserver.apiserver.resources import JOBS, PODS
from shared.evaluation.children import Children
from tests.builders import JOB, POD, kind_rules
from tests.integration.conftest import Api
from tests.integration.operators import install

pytestmark = pytest.mark.anyio

MANY = 10_000
KINDS = Catalogue(tuple(kind_rules().values()))
CONTAINERS = [{"name": "main", "image": "i", "env": [{"name": f"V{n}", "value": "x" * 50} for n in range(10)]}]


@pytest.fixture(scope="module")
def controllers():
    """None: nothing may touch the Pods."""
    return []


@pytest.fixture
async def cluster(server) -> AsyncIterator[KubernetesCluster]:
    cluster = await connect(kubeconfig=str(server.kubeconfig))
    yield cluster
    await cluster.close()


def count_requests(cluster, monkeypatch):
    """How many requests of each kind are made from now on."""
    counted: Counter[str] = Counter()
    request = cluster.request

    async def count(method, path, **options):
        verb = "get" if "limit=" not in path else "list-metadata" if "Partial" in options["accept"] else "list"
        counted[verb if "/namespaces/" in path else "discovery"] += 1
        return await request(method, path, **options)

    monkeypatch.setattr(cluster, "request", count)
    return counted


def make_job(api: Api, namespace: str, name: str):
    spec = {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": CONTAINERS}}}
    return api.call("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", {"metadata": {"name": name}, "spec": spec})


async def make_pods(server, namespace, jobs, count):
    """Create Pods that the Jobs own in turn."""
    headers = {"Authorization": f"Bearer {server.token}"}
    waiting = iter(range(count))
    connector = aiohttp.TCPConnector(ssl=server.ssl)
    async with aiohttp.ClientSession(server.url, connector=connector, headers=headers) as session:

        async def work():
            for number in waiting:
                job = jobs[number % len(jobs)]
                owner = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
                owner |= {key: job["metadata"][key] for key in ("name", "uid")}
                metadata = {"name": f"pod-{number:05}", "ownerReferences": [owner]}
                body = {"metadata": metadata, "spec": {"restartPolicy": "Never", "containers": CONTAINERS}}
                async with session.post(f"/api/v1/namespaces/{namespace}/pods", json=body) as answer:
                    assert answer.status == 201, await answer.text()

        await asyncio.gather(*(work() for _ in range(32)))


async def find(finder, job):
    async with aclosing(finder.find(ref_of(job), JOB)) as pages:
        return [one.obj["metadata"]["name"] async for page in pages for one in page.children]


async def test_ten_thousand_children_are_found(tmp_path, monkeypatch):
    """On the embedded API server, which stores them in a second; the real one took 15 s to list them."""
    store = Store(SystemClock().now)
    job = store.create(JOBS, "default", {"metadata": {"name": "large"}, "spec": {}})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "large", "uid": job["metadata"]["uid"]}
    for number in range(MANY):
        metadata = {"name": f"pod-{number:05}", "ownerReferences": [owner]}
        store.create(PODS, "default", {"metadata": metadata, "spec": {"containers": CONTAINERS}})
    async with serve(EmbeddedApiServer(store)) as url:
        cluster = await connect(kubeconfig=str(write_kubeconfig(tmp_path / "kubeconfig", url)))
        try:
            requests, started_at = count_requests(cluster, monkeypatch), time.monotonic()
            names = await find(Children(cluster, KINDS), job)
        finally:
            await cluster.close()

    print(f"\n{MANY} children in {time.monotonic() - started_at:.1f} s, by {dict(requests)}")
    assert names == [f"pod-{number:05}" for number in range(MANY)]
    assert requests["list"] == requests["list-metadata"] == MANY / 500


async def test_burst_of_jobs_shares_its_lists(api, server, namespace, cluster, monkeypatch):
    requests = count_requests(cluster, monkeypatch)
    jobs = [make_job(api, namespace, f"job-{number:03}") for number in range(100)]
    await make_pods(server, namespace, jobs, 200)
    await cluster.served((POD,))  # after it, all of them ask for the LIST at the same moment
    finder, started_at = Children(cluster, KINDS), time.monotonic()

    found = await asyncio.gather(*(find(finder, job) for job in jobs))

    print(f"\n{len(jobs)} Jobs with 2 Pods each in {time.monotonic() - started_at:.1f} s, by {dict(requests)}")
    assert sorted(name for names in found for name in names) == [f"pod-{number:05}" for number in range(200)]
    assert requests["list-metadata"] <= 3
    assert (requests["list"], requests["get"]) == (0, 200)


async def test_children_are_found_in_a_version_that_no_rule_knows(api, namespace, cluster):
    rule = kind_rules()["pipelineruns.tekton.dev"]
    newer = kind_rules()["taskruns.tekton.dev"].model_copy(update={"api_versions": ("tekton.dev/v2",)})
    install(api, rule)
    install(api, newer)
    kind = {"apiVersion": rule.api_version, "kind": rule.kind}
    run = api.call("POST", resource_path(rule, namespace), kind | {"metadata": {"name": "run"}})
    owner = kind | {key: run["metadata"][key] for key in ("name", "uid")}
    metadata = {"name": "task", "ownerReferences": [owner]}
    task = {"apiVersion": newer.api_version, "kind": newer.kind, "metadata": metadata}
    api.call("POST", resource_path(newer, namespace), task)

    pages = [page async for page in Children(cluster, KINDS).find(ref_of(run), rule)]

    found = [one.obj for page in pages for one in page.children]
    assert [(one["apiVersion"], one["metadata"]["name"]) for one in found] == [("tekton.dev/v2", "task")]
