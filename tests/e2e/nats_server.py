"""A NATS server with JetStream in the cluster, under the names that the official Helm chart gives it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shared.devserver.real_servers import find_assets
from tests.e2e import installation
from tests.e2e.cluster import SHELL, create, kubectl

SERVER = "nats"
"""The namespace and the name of the Helm chart's release, and so of its Service."""

Object = dict[str, Any]


@contextmanager
def running() -> Iterator[None]:
    """Run a server until the block ends."""
    storage = installation.shared_folder("e2e-nats")
    if storage is not None:
        shutil.rmtree(storage, ignore_errors=True)
        storage.mkdir()
        storage.chmod(0o777)
    kubectl("create", "namespace", SERVER)
    for obj in (_deployment(storage), _service()):
        create(obj)
    kubectl("-n", SERVER, "rollout", "status", f"deployment/{SERVER}", "--timeout=2m")
    yield
    kubectl("delete", "namespace", SERVER, "--timeout=180s")


def _deployment(storage: Path | None) -> Object:
    """One server: the binary of this machine where Pods are its processes, else the official image."""
    container: Object = {"name": "nats", "image": "nats:2.15-alpine", "args": ["-js", "-sd", "/data"]}
    volumes: list[Object] = [{"name": "data", "emptyDir": {}}]
    if storage is not None:
        binary = f"{find_assets()}/nats-server"
        container = {"name": "nats", "image": SHELL, "command": ["sh", "-c", f"exec {binary} -js -sd {storage}"]}
        volumes = []
    else:
        container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    labels = {"app": SERVER}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], "volumes": volumes}}
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels},
        "template": template,
    }
    metadata = {"name": SERVER, "namespace": SERVER}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def _service() -> Object:
    spec = {"selector": {"app": SERVER}, "ports": [{"port": 4222, "targetPort": 4222}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVER, "namespace": SERVER}, "spec": spec}
