"""The brakes of a cluster: the namespaces whose shared state can stop deletions, and the user who asks."""

import asyncio
import getpass
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from shared.adapters.clock import SystemClock
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.adapters.kubernetes.state_configmap import ConfigMapState, read_contents
from shared.bootstrap.installation_events import write_event
from shared.cli.input.options import home_namespace
from shared.core.values.objects import get_text
from shared.errors import ForbiddenError, TtlError
from shared.installation.leader import LEASE_NAMESPACES_MAX, Leader, list_leaders, read_leader
from shared.installation.place import LEASE, RUN
from shared.ports import WriteEvent
from shared.safeguards.state_schema import NAME

BRAKE_READ_SECONDS_MAX = 2.0
"""The longest time for reads that only add information: setting the brake must not wait for them."""


@dataclass(frozen=True, slots=True)
class BrakeNamespaces:
    """The namespaces whose brake a command sets.

    Attributes:
        namespaces: Their names.
        leaders: The holders of the Leases that could be read.
        is_named: Whether the operator named the namespace.
        problem: Why there may be more namespaces; empty if all are known.
    """

    namespaces: Sequence[str]
    leaders: Sequence[Leader]
    is_named: bool
    problem: str = ""


async def find_stop(cluster: KubernetesCluster, namespace: str, *, is_dry_run: bool) -> str:
    """Return a message for the start of `run` if deletions are stopped, else an empty text.

    Raises:
        TtlError: The brake may not be read, so `stop` could not stop this process. A dry run needs no brake.
    """
    try:
        stopped = (await read_contents(cluster, namespace)).stop
    except ForbiddenError as error:
        if is_dry_run:
            return ""
        raise TtlError(
            f"cannot read whether deletions are stopped: {error}; grant get on ConfigMap {namespace}/{NAME}, or name "
            "another namespace with --lease-namespace"
        ) from None
    if stopped is None:
        return ""
    return f"deletions are stopped {stopped}; to start deletions again: `kubectl ttl start -n {namespace}`"


def shared_state(cluster: KubernetesCluster, namespace: str) -> tuple[ConfigMapState, WriteEvent]:
    """Return the shared state in a namespace, and what writes Events about it, both with the operator's rights."""
    return ConfigMapState(cluster, namespace), partial(write_event, cluster, namespace)


async def find_brake_namespaces(cluster: KubernetesCluster, named: str) -> BrakeNamespaces:
    """Find the namespaces to stop: the one that the operator names, else the default ones and those of each `run`."""
    if named:
        return BrakeNamespaces((named,), await _read_leaders(cluster, (named,)), is_named=True)
    usual = (home_namespace(), RUN)
    problem = ""
    try:
        async with asyncio.timeout(BRAKE_READ_SECONDS_MAX):
            leaders = await list_leaders(cluster)
    except (TimeoutError, TtlError) as error:
        problem = str(error) or f"no list of Leases within {BRAKE_READ_SECONDS_MAX:.0f} s"
        leaders = await _read_leaders(cluster, usual)
    found = sorted({name for leader in leaders for name in (leader.namespace, leader.state)})
    others = [name for name in found if name not in usual]
    if len(others) > LEASE_NAMESPACES_MAX:
        problem = f"Leases {LEASE} name {len(others)} namespaces"
    namespaces = tuple(dict.fromkeys((*usual, *others[:LEASE_NAMESPACES_MAX])))
    return BrakeNamespaces(namespaces, leaders, is_named=False, problem=problem)


async def _read_leaders(cluster: KubernetesCluster, namespaces: Iterable[str]) -> list[Leader]:
    """Read the Leases one by one, as many as the time allows."""
    leaders: list[Leader] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(BRAKE_READ_SECONDS_MAX):
            for namespace in dict.fromkeys(namespaces):
                with suppress(TtlError):
                    leaders.extend(filter(None, [await read_leader(cluster, namespace)]))
    return leaders


async def find_user(cluster: KubernetesCluster) -> tuple[str, datetime]:
    """Return the user's name and the time, by the API server if it answers, else by this machine."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        async with asyncio.timeout(BRAKE_READ_SECONDS_MAX):
            answer = await cluster.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=body)
    except (TimeoutError, TtlError):
        answer = None
    user = get_text(answer and answer.body, "status.userInfo.username")
    now = answer.read_at if answer else SystemClock().now()
    return user or f"{_local_user()}@{socket.gethostname()}", now.replace(microsecond=0)


def _local_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a uid without a name, as in many containers
        return "unknown"
