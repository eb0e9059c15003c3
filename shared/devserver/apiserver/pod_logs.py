"""The logs of Pods. This server runs no containers: an annotation of the Pod has the log of each container."""

from collections.abc import Iterator

from shared.devserver.apiserver.errors import bad_request
from shared.devserver.apiserver.resources import PODS, Object
from shared.devserver.apiserver.store import Store

LOG_ANNOTATION = "devserver.ttlafterfinished.dev/log-"
"""The prefix of the annotations; the name of the container follows."""

_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_STARTED_PHASES = ("Running", "Succeeded", "Failed")


def read_log(store: Store, namespace: str, name: str, container: str, *, bytes_max: int | None = None) -> bytes:
    """Return the log of a container of a Pod, or its first bytes.

    Args:
        store: The objects.
        namespace: The namespace of the Pod.
        name: The name of the Pod.
        container: The name of the container; empty for the only one.
        bytes_max: Maximum number of bytes; None for all.

    Raises:
        StatusError: 404; 400 if the Pod has no such container, or if the container has not started.
    """
    pod = store.get(PODS, namespace, name)
    names = [one["name"] for part in _CONTAINERS for one in pod.get("spec", {}).get(part, ())]
    if not container and len(names) > 1:
        listed = " ".join(names)
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{listed}]")
    container = container or "".join(names)
    if container not in names:
        raise bad_request(f"container {container} is not valid for pod {name}")
    if not _has_started(pod, container):
        raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating')
    text: str = pod["metadata"].get("annotations", {}).get(LOG_ANNOTATION + container, "")
    return text.encode()[:bytes_max]


def _has_started(pod: Object, container: str) -> bool:
    """Return whether a container has started; in a Pod without the statuses of containers, the phase decides."""
    statuses = list(_statuses(pod))
    if not statuses:
        return pod.get("status", {}).get("phase") in _STARTED_PHASES
    own = (one for one in statuses if one.get("name") == container)
    return any("running" in state or "terminated" in state for one in own for state in (_state(one), _last(one)))


def _statuses(pod: Object) -> Iterator[Object]:
    for part in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        yield from pod.get("status", {}).get(part, ())


def _state(status: Object) -> Object:
    state: Object = status.get("state") or {}
    return state


def _last(status: Object) -> Object:
    state: Object = status.get("lastState") or {}
    return state
