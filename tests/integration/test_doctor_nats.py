"""What `doctor` reads for timers on NATS, from a real API server: the Service, and the Secret without its data."""

import asyncio
from pathlib import Path
from typing import Any

from shared.adapters.config.settings import read_settings
from shared.adapters.kubernetes.bodies import METADATA
from shared.adapters.kubernetes.connect import connect
from shared.devserver.real_servers import RealServer
from shared.doctor.findings import Finding
from shared.doctor.timer_engines import check_nats
from shared.installation.inventory import Inventory, Listed
from shared.installation.place import Place
from tests.integration.conftest import Api
from tests.servers import shared_server  # noqa: F401 - a fixture

SERVICE = {"metadata": {"name": "nats"}, "spec": {"ports": [{"port": 4222}]}}
SECRET = {"metadata": {"name": "nats-credentials"}, "data": {"user.creds": "c2VjcmV0"}}


def timers() -> dict[str, Any]:
    mount = {"name": "credentials", "mountPath": "/etc/nats-credentials"}
    volume = {"name": "credentials", "secret": {"secretName": "nats-credentials"}}
    annotations = {"autoscaling.knative.dev/min-scale": "2"}
    spec = {"volumes": [volume], "containers": [{"volumeMounts": [mount]}]}
    template = {"metadata": {"annotations": annotations}, "spec": spec}
    return {"apiVersion": "serving.knative.dev/v1", "metadata": {"name": "timers"}, "spec": {"template": template}}


def examined(server: RealServer, namespace: str) -> dict[str, str]:
    """The level of each finding; everything is in the one namespace."""
    environment = {
        "TTL_TIMERS": f"nats://nats.{namespace}.svc.cluster.local:4222",
        "TTL_NATS_REPLICAS": "3",
        "TTL_NATS_CREDENTIALS": "/etc/nats-credentials/user.creds",
    }
    settings, place = read_settings(environment=environment), Place(namespace, manifests=str(Path("knative")))

    async def examine() -> list[Finding]:
        cluster = await connect(kubeconfig=str(server.kubeconfig))
        try:
            return await check_nats(cluster, Inventory({"ConfigMap": Listed()}), [timers()], settings, place=place)
        finally:
            await cluster.close()

    return {one.what.removesuffix(namespace + "/nats"): one.level.value for one in asyncio.run(examine())}


def test_service_and_secret_are_found_and_missed(server: RealServer, api: Api, namespace: str) -> None:
    assert examined(server, namespace) == {"NATS Service ": "FAIL", "Secret nats-credentials": "FAIL"}

    api.call("POST", f"/api/v1/namespaces/{namespace}/services", SERVICE)
    api.call("POST", f"/api/v1/namespaces/{namespace}/secrets", SECRET)
    assert examined(server, namespace) == {
        "timer engine": "ok",
        "NATS Service ": "ok",
        "Secret nats-credentials": "ok",
    }


def test_service_in_a_namespace_that_does_not_exist_is_missed(server: RealServer) -> None:
    assert examined(server, "nowhere")["NATS Service "] == "FAIL"


def test_secret_is_read_without_its_data(server: RealServer, api: Api, namespace: str) -> None:
    api.call("POST", f"/api/v1/namespaces/{namespace}/secrets", SECRET)

    async def read() -> Any:
        cluster = await connect(kubeconfig=str(server.kubeconfig))
        path = f"/api/v1/namespaces/{namespace}/secrets/nats-credentials"
        try:
            return await cluster.request("GET", path, accept=METADATA, missing_ok=True)
        finally:
            await cluster.close()

    body = asyncio.run(read()).body
    assert body["kind"] == "PartialObjectMetadata"
    assert "data" not in body
