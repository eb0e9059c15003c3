"""A cluster for the benchmarks of `usage`: many Secrets and ConfigMaps, and the Pods and ReplicaSets that name them.

In each namespace, one object of ten is named by nothing. The others are named by Pods, and by ReplicaSets of earlier
rollouts. Every client that is measured connects through a relay, which counts bytes and reads none.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from shared.devserver.ports import free_port
from tests.benchmarks.cluster import Cluster, for_each

ACCOUNT = "measured"
USER = f"system:serviceaccount:bench:{ACCOUNT}"
UNUSED_EACH = 10
"""One object of so many is named by nothing."""

_CHUNK_BYTES = 1024 * 1024
_KINDS = ("secrets", "configmaps")
_RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class Sizes:
    """What is created.

    Attributes:
        objects: Secrets and ConfigMaps, half of each.
        pods: Pods that name one of each.
        replica_sets: ReplicaSets without Pods that name one of each.
        namespaces: Namespaces, with as many objects in each.
    """

    objects: int
    pods: int
    replica_sets: int
    namespaces: int

    def as_json(self) -> dict[str, int]:
        return asdict(self)

    @property
    def places(self) -> list[str]:
        """The names of the namespaces."""
        return [f"team-{number:03}" for number in range(self.namespaces)]

    @property
    def of_a_kind(self) -> int:
        """Secrets in each namespace, and ConfigMaps in each."""
        return self.objects // len(_KINDS) // self.namespaces

    @property
    def named(self) -> int:
        """How many of these are named by an object."""
        return self.of_a_kind - self.of_a_kind // UNUSED_EACH

    @property
    def unused(self) -> int:
        """Secrets and ConfigMaps that nothing names, in the cluster."""
        return len(_KINDS) * self.namespaces * (self.of_a_kind - self.named)


async def fill(cluster: Cluster, sizes: Sizes) -> None:
    """Create all objects through the API."""
    places = sizes.places
    for place in places:
        await cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": place}})

    async def create(path: str) -> None:
        plural, _, number = path.rpartition("/")
        at, place = int(number) // len(places), places[int(number) % len(places)]
        name, folder = f"{plural[:-1]}-{at:05}", f"/api/v1/namespaces/{place}"
        if plural == "replicasets":
            folder = f"/apis/apps/v1/namespaces/{place}"
        await cluster.call("POST", f"{folder}/{plural}", _body(plural, name, at % sizes.named))

    counts: dict[str, int] = {**dict.fromkeys(_KINDS, sizes.of_a_kind * len(places)), "replicasets": sizes.replica_sets}
    for plural, count in (counts | {"pods": sizes.pods}).items():
        await for_each((f"{plural}/{number}" for number in range(count)), create)


def _body(plural: str, name: str, names: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "labels": {"app.kubernetes.io/name": "web", "team": "a"}}
    if plural == "secrets":
        return {"metadata": metadata, "stringData": {"password": secrets.token_hex(16)}}
    if plural == "configmaps":
        return {"metadata": metadata, "data": {"settings.yaml": secrets.token_hex(512)}}
    if plural == "pods":
        return {"metadata": metadata, "spec": _pod_spec(names)}
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": _pod_spec(names)}
    return {"metadata": metadata, "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}}


def _pod_spec(names: int) -> dict[str, Any]:
    """Two containers that name a Secret and a ConfigMap of the namespace, with what is usual beside it."""
    secret, config_map = f"secret-{names:05}", f"configmap-{names:05}"
    env: list[dict[str, Any]] = [
        {"name": f"OPTION_{number}", "value": f"value of option {number}"} for number in range(10)
    ]
    env.append({"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": secret, "key": "password"}}})
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10}
    container = {
        "image": "registry.example.com/team-a/web:2026.11.21",
        "env": env,
        "livenessProbe": probe,
        "readinessProbe": probe,
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "volumeMounts": [{"name": "settings", "mountPath": "/etc/web", "readOnly": True}],
    }
    volumes = [{"name": "settings", "configMap": {"name": config_map}}, {"name": "scratch", "emptyDir": {}}]
    return {"containers": [{"name": name, **container} for name in ("main", "proxy")], "volumes": volumes}


async def make_account(cluster: Cluster) -> str:
    """The token of an account that may do everything, so that the audit log tells its requests from all others."""
    await cluster.call("POST", "/api/v1/namespaces/bench/serviceaccounts", {"metadata": {"name": ACCOUNT}})
    role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "cluster-admin"}
    subjects = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "bench"}]
    body = {"metadata": {"name": ACCOUNT}, "roleRef": role, "subjects": subjects}
    await cluster.call("POST", f"/apis/{_RBAC}/v1/clusterrolebindings", body)
    path = f"/api/v1/namespaces/bench/serviceaccounts/{ACCOUNT}/token"
    asked = await cluster.call("POST", path, {"spec": {"expirationSeconds": 7200}})
    token: str = asked["status"]["token"]
    return token


class Relay:
    """Counts the bytes between clients and the API server: TLS included.

    Attributes:
        port: Where clients connect.
        received: Bytes that the API server sent.
    """

    def __init__(self, url: str) -> None:
        self.port, self.received = free_port(), 0
        self._host, self._to = urlsplit(url).hostname, urlsplit(url).port

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect one client."""
        from_server, to_server = await asyncio.open_connection(self._host, self._to, limit=_CHUNK_BYTES)
        await asyncio.gather(self._copy(reader, to_server), self._copy(from_server, writer, counts=True))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counts: bool = False) -> None:
        try:
            while chunk := await reader.read(_CHUNK_BYTES):
                self.received += len(chunk) if counts else 0
                writer.write(chunk)
                await writer.drain()
        except ConnectionError:  # the other side has closed
            pass
        finally:
            writer.close()


@asynccontextmanager
async def relayed(cluster: Cluster, token: str, kubeconfig: Path) -> AsyncIterator[Relay]:
    """Relay until the block ends, and write the kubeconfig of who connects there with a token."""
    relay = Relay(cluster.server.url)
    config = json.loads(cluster.server.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{relay.port}"
    config["users"][0]["user"]["token"] = token
    await asyncio.to_thread(kubeconfig.write_text, json.dumps(config))
    async with await asyncio.start_server(relay.serve, "127.0.0.1", relay.port, limit=_CHUNK_BYTES):
        yield relay


def audit_arguments(folder: Path) -> Sequence[str]:
    """Flags by which the API server logs what the account asks for."""
    rules = [{"level": "Metadata", "users": [USER]}, {"level": "None"}]
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules}
    (folder / "audit-policy.yaml").write_text(json.dumps(policy))
    return f"--audit-policy-file={folder}/audit-policy.yaml", f"--audit-log-path={folder}/audit.log"
