"""The quotas of the namespaces, and the quota controller, whose status is behind."""

import random
from typing import Any

from shared.devserver.apiserver.listing import Change
from shared.devserver.apiserver.resources import RESOURCE_QUOTAS
from shared.devserver.apiserver.writes import WriteOptions
from tests.simulation.users import NAMESPACES, RESOURCES

HARD = 8
"""How many objects of each kind a namespace may have; no more are ever there."""

LAG_SECONDS_MAX = 3.0
_STATUS = WriteOptions(manager="kube-controller-manager", subresource="status")


class QuotaController:
    """Writes how many objects there are, some time after a change; those that are going count, too."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.rng = random.Random(world.seed)  # of its own, so that other seeds stay as they are
        for namespace in NAMESPACES:
            quota = {"metadata": {"name": "objects", "namespace": namespace}, "spec": {"hard": self._hard()}}
            world.store.restore(RESOURCE_QUOTAS, {"apiVersion": "v1", "kind": "ResourceQuota"} | _known(quota))
            self._write(namespace)
        world.store.listeners.append(self.changed)

    def changed(self, resource: Any, change: Change) -> None:
        """Count again, soon."""
        if resource.kind in RESOURCES and change.type in ("ADDED", "DELETED"):
            lag = self.rng.uniform(0.01, LAG_SECONDS_MAX)
            self.world.loop.call_later(lag, self._write, change.obj["metadata"]["namespace"])

    def _write(self, namespace: str) -> None:
        tables = {kind: self.world.store.table(resource).objects for kind, resource in RESOURCES.items()}
        used = {_name(kind): str(sum(place == namespace for place, _ in objects)) for kind, objects in tables.items()}
        with self.world.acting("quota"):
            status = {"status": {"hard": self._hard(), "used": used}}
            self.world.patch(RESOURCE_QUOTAS, namespace, "objects", status, _STATUS)

    def _hard(self) -> dict[str, str]:
        return {_name(kind): str(HARD) for kind in RESOURCES}


def _name(kind: str) -> str:
    return f"count/{RESOURCES[kind].name}"


def _known(quota: dict[str, Any]) -> dict[str, Any]:
    metadata = quota["metadata"]
    return quota | {"metadata": metadata | {"uid": f"quota-{metadata['namespace']}"}}
