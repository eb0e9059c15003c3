"""A kind that an aggregated API server serves, behind a real kube-apiserver: a server that ignores preconditions."""

import ssl
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from shared.adapters.clock import SystemClock
from shared.adapters.kubernetes.connect import connect
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.values.objects import ref_of
from shared.evaluation.evaluator import Evaluator
from shared.messages import ObjectDeleted, Purpose, Timer
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from tests.fakes import FakeTelemetry
from tests.loopback import answering_with

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("server", ["real"], indirect=True)]

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


def rule_in(group, **more):
    finished = {"field": "status.phase", "values": {"Done": "succeeded"}}
    about = {"apiVersions": [f"{group}/v1"], "kind": "Foo", "plural": "foos", "finished": finished}
    return KindRule.model_validate({**about, "finishedAt": ["status.endedAt"], **more})


@asynccontextmanager
async def aggregated(api, real):
    """A server on loopback that kube-apiserver sends a group's requests to; it deletes whatever the options say."""
    group = f"{api.namespace}.example.com"
    foo = {
        "apiVersion": f"{group}/v1",
        "kind": "Foo",
        "metadata": {
            "name": "a", "namespace": api.namespace, "uid": "u", "resourceVersion": "7",
            "creationTimestamp": "2026-01-02T03:00:00Z", "annotations": {"ttlafterfinished.dev/ttl": "0s"},
        },
        "status": {"phase": "Done", "endedAt": "2026-01-02T03:04:05Z"},
    }  # fmt: skip
    deletes = []

    async def answer(request):
        if request.method == "DELETE":
            deletes.append(await request.json())
            return web.json_response({"kind": "Status", "apiVersion": "v1", "status": "Success"})
        if request.path.endswith("/foos/a"):
            return web.json_response(foo)
        resources = [{"name": "foos", "kind": "Foo", "namespaced": True, "singularName": "foo", "verbs": ["delete"]}]
        return web.json_response(
            {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/v1", "resources": resources}
        )

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(real.ca, real.ca.with_suffix(".key"))
    async with (
        answering_with(answer, tls=context, shutdown_timeout=0.1) as url,
        reached_through_kube_apiserver(api, group, int(url.rpartition(":")[2])),
    ):
        yield group, foo, deletes


@asynccontextmanager
async def reached_through_kube_apiserver(api, group, port):
    """Have kube-apiserver send a group's requests to a port of loopback until the block ends."""
    service: dict[str, Any] = {
        "metadata": {"name": "foo"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }
    service["spec"]["ports"] = [{"port": port}]
    assert (await api.post(api.path("services"), service)).status == 201
    about = {"group": group, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100}
    behind = {"insecureSkipTLSVerify": True, "service": {"namespace": api.namespace, "name": "foo", "port": port}}
    apiservice = {"metadata": {"name": f"v1.{group}"}, "spec": about | behind}
    assert (await api.post(SERVICES, apiservice)).status == 201
    try:
        await api.becomes(f"/apis/{group}/v1", lambda answer: answer.status == 200)
        yield
    finally:
        await api.delete(f"{SERVICES}/v1.{group}")


async def test_expire_keeps_objects_of_an_aggregated_server_unless_the_rule_allows_them(server, real, api):
    cluster = await connect(kubeconfig=str(server.kubeconfig))
    async with aggregated(api, real) as (group, foo, deletes):
        timer = Timer(ref=ref_of(foo), purpose=Purpose.EXPIRE, due_at=SystemClock().now())
        reported = []
        for more in ({}, {"preconditions": "honoured"}):
            kinds, telemetry = Catalogue((rule_in(group, **more),)), FakeTelemetry()
            expiry = Handler(
                DELETION, cluster, kinds, Evaluator(cluster, kinds), SystemClock(), telemetry, dry_run=False
            )
            reported.append((await expiry.handle(timer), telemetry.verdicts(), len(deletes)))
    await cluster.close()

    assert reported[0] == (None, [("kept", "aggregated-api")], 0)
    assert isinstance(reported[1][0], ObjectDeleted)
    assert deletes[0]["preconditions"] == {"uid": "u", "resourceVersion": "7"}


async def test_group_of_a_crd_is_local_after_its_apiservice_names_another_server(server, api, crds):
    await crds.install("Run", "runs", "v1")
    cluster = await connect(kubeconfig=str(server.kubeconfig))
    path = f"{SERVICES}/v1.{crds.group}"
    registered = await api.becomes(path, lambda answer: answer.status == 200)
    is_aggregated = await cluster.is_aggregated(crds.rule("Run", "runs", "v1"))
    spec = {"service": {"namespace": "default", "name": "x"}, "insecureSkipTLSVerify": True}
    assert (await api.patch(path, {"spec": spec})).status == 200
    await api.becomes(path, lambda answer: "service" not in answer.body["spec"])  # kube-apiserver takes it back
    await cluster.close()

    assert is_aggregated is False
    assert registered.meta["labels"]["kube-aggregator.kubernetes.io/automanaged"] == "true"
