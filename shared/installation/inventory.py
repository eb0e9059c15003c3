"""The inventory: the objects in the namespace of an installation, each list read once.

If a list cannot be read, the inventory contains the reason in its place. The API server keeps the Events about sweeps
for an hour: they also show a sweep that deleted nothing.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from shared.core.values.objects import get_in, get_text, list_mappings, parse_instant
from shared.errors import AbsentKindError, ForbiddenError, TtlError
from shared.ports import EventReason

if TYPE_CHECKING:
    from shared.adapters.kubernetes.cluster import KubernetesCluster

Obj = dict[str, Any]

PARTS = {
    "Broker": "eventing.knative.dev/v1/brokers",
    "Trigger": "eventing.knative.dev/v1/triggers",
    "ApiServerSource": "sources.knative.dev/v1/apiserversources",
    "ContainerSource": "sources.knative.dev/v1/containersources",
    "PingSource": "sources.knative.dev/v1/pingsources",
    "SinkBinding": "sources.knative.dev/v1/sinkbindings",
    "Knative Service": "serving.knative.dev/v1/services",
    "Deployment": "apps/v1/deployments",
    "StatefulSet": "apps/v1/statefulsets",
    "Service": "v1/services",
    "Pod": "v1/pods",
    "ConfigMap": "v1/configmaps",
    "Lease": "coordination.k8s.io/v1/leases",
    "NetworkPolicy": "networking.k8s.io/v1/networkpolicies",
}
"""The parts of an installation: the name that this program uses, with apiVersion and plural."""

OURS = {"app.kubernetes.io/name": "ttl-after-finished"}
"""The label on all objects in our manifests. Objects that Knative makes for a Service inherit the label."""

_POD = "spec.template.spec"
_COMPONENT, _PAGE = "app.kubernetes.io/component", "ui"
_OF_KNATIVE = "serving.knative.dev/service"


@dataclass(frozen=True, slots=True)
class Listed:
    """The result of a LIST.

    Attributes:
        items: The objects.
        problem: Why the objects could not be read; empty if they could.
    """

    items: tuple[Obj, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Inventory:
    """All parts of the installation, by the keys of PARTS."""

    parts: Mapping[str, Listed]

    def all(self, kind: str) -> tuple[Obj, ...]:
        """Return the objects of a kind; an empty tuple if they could not be read."""
        return self.parts.get(kind, Listed()).items

    def get(self, kind: str, name: str) -> Obj | None:
        """Return one object by its name; None if it is not in the inventory."""
        return next((obj for obj in self.all(kind) if name_of(obj) == name), None)

    def is_absent(self, kind: str, name: str) -> bool:
        """Whether the list of the kind was read and does not contain the object."""
        return not self.parts.get(kind, Listed()).problem and self.get(kind, name) is None

    def workloads(self) -> Iterator[tuple[str, Obj]]:
        """Yield kind and object of each workload of the installation: the objects of ours that run Pods.

        The page of `ui` is no such workload: it only reads, and an installation does not need it.
        """
        for kind in ("Knative Service", "StatefulSet", "Deployment"):
            for obj in self.all(kind):
                labels = labels_of(obj)
                if OURS.items() <= labels.items() and _OF_KNATIVE not in labels and labels.get(_COMPONENT) != _PAGE:
                    yield kind, obj

    def pages(self) -> Iterator[Obj]:
        """Yield the Deployments that serve the page of `ui`."""
        for obj in self.all("Deployment"):
            if {**OURS, _COMPONENT: _PAGE}.items() <= labels_of(obj).items():
                yield obj

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield each kind that could not be read, with the reason."""
        for kind, listed in self.parts.items():
            if listed.problem:
                yield kind, listed.problem


async def read_inventory(
    cluster: "KubernetesCluster", namespace: str, kinds: Sequence[str] = tuple(PARTS)
) -> Inventory:
    """Read all parts, or the given kinds only; the lists are read in parallel."""
    lists = await asyncio.gather(*(read_list(cluster, path_of(PARTS[kind], namespace)) for kind in kinds))
    return Inventory(dict(zip(kinds, lists, strict=True)))


async def read_list(cluster: "KubernetesCluster", path: str, **selectors: str) -> Listed:
    """Read all objects of a collection, page by page; an empty list if the API server does not serve the kind."""
    items: list[Obj] = []
    token = ""
    while True:
        query = urlencode({"limit": "500", **selectors, **({"continue": token} if token else {})})
        try:
            answer = await cluster.request("GET", f"{path}?{query}", missing_ok=True)
        except AbsentKindError:
            return Listed()
        except ForbiddenError as error:
            return Listed() if await _is_unserved(cluster, path) else Listed(problem=str(error))
        except TtlError as error:
            return Listed(problem=str(error))
        body = answer.body if answer else {}
        items += body.get("items") or ()
        token = get_text(body, "metadata.continue")
        if not token:
            return Listed(tuple(items))


async def _is_unserved(cluster: "KubernetesCluster", path: str) -> bool:
    """Whether the API server does not serve the group version.

    The API server checks rights before it checks whether the kind exists, so a 403 proves nothing. Any user may read
    discovery.
    """
    in_namespace, separator, _ = path.partition("/namespaces/")
    discovery_path = in_namespace if separator else path.rpartition("/")[0]
    try:
        await cluster.request("GET", discovery_path, missing_ok=True)
    except AbsentKindError:
        return True
    except TtlError:
        return False
    return False


def path_of(what: str, namespace: str) -> str:
    """Return the URL path of a collection in a namespace.

    Args:
        what: apiVersion and plural, such as `apps/v1/deployments`.
        namespace: The namespace.
    """
    api_version, _, plural = what.rpartition("/")
    root = "apis" if "/" in api_version else "api"
    return f"/{root}/{api_version}/namespaces/{quote(namespace, safe='')}/{plural}"


def name_of(obj: Obj) -> str:
    """Return `metadata.name`."""
    return get_text(obj, "metadata.name")


def environment_of(workload: Obj) -> dict[str, str]:
    """Return the variables in `env` of a workload's containers; variables from `envFrom` are not included."""
    containers = list_mappings(workload, f"{_POD}.containers")
    variables = (variable for container in containers for variable in list_mappings(container, "env"))
    return {get_text(one, "name"): get_text(one, "value") for one in variables}


def volume_at(workload: Obj, folder: str) -> str:
    """Return the name of the ConfigMap that is mounted at a folder of a workload's container; empty if none is."""
    volumes = {
        get_text(one, "name"): get_text(one, "configMap.name") for one in list_mappings(workload, f"{_POD}.volumes")
    }
    for container in list_mappings(workload, f"{_POD}.containers"):
        for mount in list_mappings(container, "volumeMounts"):
            if folder and get_text(mount, "mountPath").rstrip("/") == folder.rstrip("/"):
                return volumes.get(get_text(mount, "name"), "")
    return ""


def labels_of(obj: Obj) -> Mapping[str, Any]:
    """Return `metadata.labels`; empty if they are missing or malformed."""
    labels = get_in(obj, "metadata.labels")
    return labels if isinstance(labels, dict) else {}


ABOUT_INSTALLATION = "involvedObject.kind=Namespace"
"""The field selector of the Events about an installation."""

_SWEEP_REASONS = (EventReason.SWEPT, EventReason.SWEPT_IN_PART)


@dataclass(frozen=True, slots=True)
class LastSweep:
    """The last sweep of all kinds.

    Attributes:
        at: When it ended, by the API server's clock.
        is_complete: Whether it could list all kinds.
        message: What it saw.
    """

    at: datetime
    is_complete: bool
    message: str


def find_last_sweep(events: Iterable[Obj]) -> LastSweep | None:
    """Find the last sweep in the Events about an installation; None if they have none."""
    sweeps = [(at, event) for event in events if get_text(event, "reason") in _SWEEP_REASONS and (at := time_of(event))]
    if not sweeps:
        return None
    at, event = max(sweeps, key=lambda one: one[0])
    return LastSweep(at, get_text(event, "reason") == EventReason.SWEPT, get_text(event, "message"))


def time_of(event: Obj) -> datetime | None:
    """Return when the API server stored an Event, by its clock; an Event of ours is written only once."""
    candidates: list[Any] = [get_in(event, path) for path in ("metadata.creationTimestamp", "lastTimestamp")]
    for text in candidates:
        try:
            return parse_instant(text)
        except ValueError:
            continue
    return None
