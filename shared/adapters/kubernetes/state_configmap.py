"""The shared state of an installation in a ConfigMap; and the number of objects of a kind."""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.adapters.kubernetes.discovery import resource_path
from shared.adapters.kubernetes.requests import ApiServer
from shared.core.archive.identity import KnownArchive
from shared.core.kinds.rule import KindRule
from shared.core.policy.limits import Limits
from shared.core.values.objects import ObjectRef, get_in, get_text, list_mappings
from shared.errors import ConflictError, PermanentError
from shared.ports import EventLevel, WriteEvent
from shared.safeguards.brake import start_deletions, stop_deletions
from shared.safeguards.breaker import release_breaker
from shared.safeguards.safeguards import Safeguards
from shared.safeguards.shared_state import Runtime, SharedState
from shared.safeguards.state_schema import NAME, BrakeStop, StateContents, Trip, parse_state, with_archive

STATE_WRITES_MAX = 5
"""Maximum number of attempts to write while other processes write too."""

STATE_PAUSE_SECONDS = 0.1
"""Maximum pause after the first conflict; it doubles after each. Random pauses let concurrent writers get through."""

_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


class ConfigMapState:
    """`shared.ports.State` in the ConfigMap `ttl-after-finished-state`.

    The manifests create it without data, so that applying them again removes no data. If it does not exist, the first
    write creates it.

    Args:
        server: The API server.
        namespace: The namespace of the installation.
    """

    def __init__(self, server: ApiServer, namespace: str) -> None:
        self._server = server
        self._collection = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps"

    async def read(self) -> Mapping[str, str]:
        """See `shared.ports.State`."""
        return _texts(await self._get())

    async def write(self, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Mapping[str, str]:
        """See `shared.ports.State`. The precondition of a write is the resourceVersion that was read."""
        for attempt in range(STATE_WRITES_MAX):
            present = await self._get()
            before = _texts(present)
            after = dict(change(before))
            if after == before:
                return after
            try:
                await self._put(present, after)
            except ConflictError:
                await asyncio.sleep(random.uniform(0, STATE_PAUSE_SECONDS * 2**attempt))  # noqa: S311 - no secret
                continue
            return after
        raise ConflictError(f"ConfigMap {NAME}: {STATE_WRITES_MAX} attempts to write conflicted with other writers")

    async def _get(self) -> Any:
        answer = await self._server.request("GET", f"{self._collection}/{NAME}", missing_ok=True)
        return answer.body if answer else None

    async def _put(self, present: Any, data: Mapping[str, str]) -> None:
        body = {**(present or {"metadata": {"name": NAME}}), "apiVersion": "v1", "kind": "ConfigMap", "data": data}
        path = self._collection if present is None else f"{self._collection}/{NAME}"
        await self._server.request("POST" if present is None else "PUT", path, body=body)


@dataclass(frozen=True, slots=True)
class StateLocation:
    """Where an installation keeps its shared state.

    Attributes:
        cluster: The cluster; only an `ApiServer` can keep state.
        namespace: The namespace of the installation; empty for no shared state, so that each process counts alone.
        write_event: Writes a Kubernetes Event about the installation.
    """

    cluster: object
    namespace: str
    write_event: WriteEvent


def build_safeguards(
    location: StateLocation, limits: Callable[[], Limits], runtime: Runtime, *, namespace: str, horizon: timedelta
) -> Safeguards:
    """Build the safeguards of one process, which delay or deny DELETEs of due objects.

    Args:
        location: Where the shared state is.
        limits: Returns the limits in force.
        runtime: Clocks and telemetry.
        namespace: The only namespace that the process works in; empty for all.
        horizon: See `Safeguards`.
    """
    server = location.cluster if isinstance(location.cluster, ApiServer) else None

    async def count(rule: KindRule) -> int:
        if server is None:
            raise PermanentError(f"cannot count {rule.plural}: this process has no API server")
        return await count_objects(server, rule, namespace)

    state = ConfigMapState(server, location.namespace) if server and location.namespace else None
    shared_state = SharedState(state, runtime, write_event=location.write_event, namespace=location.namespace)
    return Safeguards(limits, shared_state, runtime, count_objects=count, horizon=horizon)


async def release(cluster: KubernetesCluster, namespace: str) -> Trip | None:
    """Release the breaker of an installation, and report it by an Event, for `release --breaker`.

    Args:
        cluster: The cluster, with the operator's rights.
        namespace: The namespace of the installation; for `run`, that of its Lease.

    Returns:
        The trip that opened the breaker; None if it was closed.

    Raises:
        TtlError: The state cannot be read or written.
    """
    return await release_breaker(ConfigMapState(cluster, namespace), _event_writer(cluster, namespace))


async def read_contents(cluster: ApiServer, namespace: str) -> StateContents:
    """Read the shared state of an installation.

    Raises:
        TtlError: The state cannot be read.
    """
    return parse_state(await ConfigMapState(cluster, namespace).read())


async def stop(cluster: KubernetesCluster, namespace: str, stop: BrakeStop) -> BrakeStop | None:
    """Set the brake of an installation, and report it by an Event; see `shared.safeguards.brake.stop_deletions`.

    Args:
        cluster: The cluster, with the operator's rights.
        namespace: The namespace of the installation; for `run`, that of its Lease.
        stop: The operator who stops deletions, the time and the reason.
    """
    return await stop_deletions(ConfigMapState(cluster, namespace), _event_writer(cluster, namespace), stop)


async def start(cluster: KubernetesCluster, namespace: str, *, by: str) -> BrakeStop | None:
    """Release the brake of an installation, and report it by an Event; see `shared.safeguards.brake.start_deletions`.

    Args:
        cluster: The cluster, with the operator's rights.
        namespace: The namespace of the installation; for `run`, that of its Lease.
        by: The operator.
    """
    return await start_deletions(ConfigMapState(cluster, namespace), _event_writer(cluster, namespace), by=by)


async def remember_archive(
    cluster: ApiServer, namespace: str, name: str, known: KnownArchive, *, replaces: bool = False
) -> str:
    """Remember an archive of an installation, for `archive init` and `archive adopt`.

    Args:
        cluster: The cluster, with the operator's rights.
        namespace: The namespace of the installation; for `run`, that of its Lease.
        name: The name of the archive in the policy.
        known: The archive.
        replaces: Whether it takes the place of another one that is remembered, and of what cannot be read.

    Returns:
        The id that was remembered before; empty if none was.

    Raises:
        TtlError: The state cannot be read or written.
    """
    before = [""]

    def write(data: Mapping[str, str]) -> Mapping[str, str]:
        archives = parse_state(data).archives or {}
        before[0] = archives[name].id if name in archives else ""
        return with_archive(data, name, known, replaces=replaces)

    await ConfigMapState(cluster, namespace).write(write)
    return before[0]


def _event_writer(cluster: KubernetesCluster, namespace: str) -> WriteEvent:
    """Return a function that writes Events about the installation in a namespace."""

    async def write_event(reason: str, message: str, level: EventLevel) -> None:
        about = ObjectRef(api_version="v1", kind="Namespace", namespace=namespace, name=namespace, uid="")
        await cluster.record_event(about, reason, message, level=level)

    return write_event


async def count_objects(server: ApiServer, rule: KindRule, namespace: str = "") -> int:
    """Count the objects of a kind without listing them.

    Args:
        server: The API server.
        rule: The kind.
        namespace: The only namespace to count in; empty for all.

    Raises:
        TryLaterError: The API server is overloaded or unreachable.
        PermanentError: This process may not list the objects, or the API server does not return their number.
    """
    path = resource_path(rule, namespace, {"limit": "1"})
    answer = await server.request("GET", path, accept=_METADATA_ONLY)
    body = answer.body if answer else {}
    remaining = get_in(body, "metadata.remainingItemCount")
    if remaining is None and get_text(body, "metadata.continue"):
        raise PermanentError(f"cannot count {rule.plural}: the API server returned no remainingItemCount")
    return len(list(list_mappings(body, "items"))) + (remaining if isinstance(remaining, int) else 0)


def _texts(config_map: Any) -> dict[str, str]:
    data = get_in(config_map, "data")
    return {name: text for name, text in data.items() if isinstance(text, str)} if isinstance(data, dict) else {}
