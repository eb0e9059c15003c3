"""What the processes of an installation share, in a ConfigMap; and how many objects of a kind there are."""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.adapters.kubernetes.requests import ApiServer
from shared.core.kinds.rule import KindRule
from shared.core.objects import ObjectRef, get_in, get_text, list_mappings
from shared.core.policy.limits import Limits
from shared.errors import ConflictError, PermanentError
from shared.ports import EventLevel
from shared.safeguards.brake import start_deletions, stop_deletions
from shared.safeguards.safeguards import Safeguards
from shared.safeguards.shared_state import Runtime, SharedState
from shared.safeguards.state_schema import NAME, StateContents, Stop, Tell, Trip, parse_standing, release_breaker

ATTEMPTS_MAX = 5
"""Reads and writes while others keep writing."""

PAUSE_SECONDS = 0.1
"""After the first conflict, at the most; twice as long after each other. A crowd in step would never get through."""

_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


class ConfigMapState:
    """`shared.ports.State` in the ConfigMap `ttl-after-finished-state`.

    The manifests ship it without data, so that applying them again takes nothing away; where there is none it is made
    by the first write.

    Args:
        server: Where it lies.
        namespace: Of the installation.
    """

    def __init__(self, server: ApiServer, namespace: str) -> None:
        self._server = server
        self._collection = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps"

    async def read(self) -> Mapping[str, str]:
        """See `shared.ports.State`."""
        return _texts(await self._get())

    async def write(self, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Mapping[str, str]:
        """See `shared.ports.State`. The resourceVersion of what was read is the precondition."""
        for attempt in range(ATTEMPTS_MAX):
            present = await self._get()
            before = _texts(present)
            after = dict(change(before))
            if after == before:
                return after
            try:
                await self._put(present, after)
            except ConflictError:
                await asyncio.sleep(random.uniform(0, PAUSE_SECONDS * 2**attempt))  # noqa: S311 - no secret
                continue
            return after
        raise ConflictError(f"the ConfigMap {NAME} changed {ATTEMPTS_MAX} times while it was about to be written")

    async def _get(self) -> Any:
        answer = await self._server.request("GET", f"{self._collection}/{NAME}", missing_ok=True)
        return answer.body if answer else None

    async def _put(self, present: Any, data: Mapping[str, str]) -> None:
        body = {**(present or {"metadata": {"name": NAME}}), "apiVersion": "v1", "kind": "ConfigMap", "data": data}
        path = self._collection if present is None else f"{self._collection}/{NAME}"
        await self._server.request("POST" if present is None else "PUT", path, body=body)


@dataclass(frozen=True, slots=True)
class StateLocation:
    """Where an installation keeps what must outlive its processes.

    Attributes:
        cluster: The API server; one that is none of ours keeps nothing.
        namespace: Empty for nowhere: then each process stands for itself.
        write_event: Writes a Kubernetes Event about the installation.
    """

    cluster: object
    namespace: str
    write_event: Tell


def build_safeguards(
    home: StateLocation, limits: Callable[[], Limits], runtime: Runtime, *, namespace: str, horizon: timedelta
) -> Safeguards:
    """What stands between due objects and their DELETE, for one process.

    Args:
        home: Where its state is.
        limits: Those of the moment.
        runtime: Clocks and telemetry.
        namespace: What the process is limited to; empty for all.
        horizon: See Restraints.
    """
    server = home.cluster if isinstance(home.cluster, ApiServer) else None

    async def count(rule: KindRule) -> int:
        if server is None:
            raise PermanentError("there is no API server to ask")
        return await count_objects(server, rule, namespace)

    state = ConfigMapState(server, home.namespace) if server and home.namespace else None
    shared_state = SharedState(state, runtime, write_event=home.write_event, namespace=home.namespace)
    return Safeguards(limits, shared_state, runtime, count_objects=count, horizon=horizon)


async def release(cluster: KubernetesCluster, namespace: str) -> Trip | None:
    """Release the breaker of an installation, and say so by an Event; what `release --breaker` does.

    Args:
        cluster: As its operator reaches it.
        namespace: Of the installation; for `run`, of its Lease.

    Returns:
        What had tripped it; None where it was closed.

    Raises:
        TtlError: The state cannot be read or written.
    """
    return await release_breaker(ConfigMapState(cluster, namespace), _teller(cluster, namespace))


async def read_contents(cluster: ApiServer, namespace: str) -> StateContents:
    """What stands in an installation.

    Raises:
        TtlError: The state cannot be read.
    """
    return parse_standing(await ConfigMapState(cluster, namespace).read())


async def stop(cluster: KubernetesCluster, namespace: str, stop: Stop) -> Stop | None:
    """Set the brake of an installation, and report it by an Event; see `shared.safeguards.brake.stop_deletions`.

    Args:
        cluster: As a person reaches it.
        namespace: Of the installation; for `run`, of its Lease.
        stop: Who stops the deletions, when and why.
    """
    return await stop_deletions(ConfigMapState(cluster, namespace), _teller(cluster, namespace), stop)


async def start(cluster: KubernetesCluster, namespace: str, *, by: str) -> Stop | None:
    """Release the brake of an installation, and report it by an Event; see `shared.safeguards.brake.start_deletions`.

    Args:
        cluster: As a person reaches it.
        namespace: Of the installation; for `run`, of its Lease.
        by: That person.
    """
    return await start_deletions(ConfigMapState(cluster, namespace), _teller(cluster, namespace), by=by)


def _teller(cluster: KubernetesCluster, namespace: str) -> Tell:
    """Writes Events about the installation in a namespace."""

    async def write_event(reason: str, message: str, level: EventLevel) -> None:
        about = ObjectRef(api_version="v1", kind="Namespace", namespace=namespace, name=namespace, uid="")
        await cluster.record_event(about, reason, message, level=level)

    return write_event


async def count_objects(server: ApiServer, rule: KindRule, namespace: str = "") -> int:
    """How many objects of a kind there are, without listing them.

    Args:
        server: The API server.
        rule: The kind.
        namespace: Only in this one; empty for all.

    Raises:
        TryLaterError: The API server is busy or away.
        PermanentError: They may not be listed.
    """
    path = f"{rule.path_in(quote(namespace, safe=''))}?limit=1"
    answer = await server.request("GET", path, accept=_METADATA_ONLY)
    body = answer.body if answer else {}
    remaining = get_in(body, "metadata.remainingItemCount")
    if remaining is None and get_text(body, "metadata.continue"):
        raise PermanentError("the API server does not say how many there are")
    return len(list(list_mappings(body, "items"))) + (remaining if isinstance(remaining, int) else 0)


def _texts(config_map: Any) -> dict[str, str]:
    data = get_in(config_map, "data")
    return {name: text for name, text in data.items() if isinstance(text, str)} if isinstance(data, dict) else {}
