"""A `run` on somebody's machine, as far as a cluster knows of it: its Lease."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from shared.core.objects import get_text, parse_instant, printable
from shared.core.scope import Scope, parse_scope
from shared.core.ttl.durations import format_duration
from shared.errors import AbsentKindError, TtlError
from shared.installation.defaults import LEASE

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands need none
    from shared.adapters.kubernetes.cluster import KubernetesCluster


LEASE_AGE_MAX = timedelta(seconds=30)
"""Twice its duration."""


@dataclass(frozen=True, slots=True)
class Leader:
    """What a Lease says.

    Attributes:
        namespace: Of the Lease.
        holder: Who leads: `host/process`; empty where the last one gave it back.
        renewed_at: When that was said last, by the holder's clock; None where it cannot be read.
        read_at: When the Lease was read, by the API server's clock.
        scope: What the holder handles; None where it does not say so, as a version before this one.
    """

    namespace: str
    holder: str
    renewed_at: datetime | None
    read_at: datetime
    scope: Scope | None = None

    @property
    def leads(self) -> bool:
        """Whether it is somebody who still says so."""
        return bool(self.holder) and self.renewed_at is not None and self._age <= LEASE_AGE_MAX

    @property
    def state(self) -> str:
        """The namespace of its brake and shared state; that of the Lease where the holder does not say another."""
        return (self.scope.state if self.scope and self.leads else "") or self.namespace

    @property
    def _age(self) -> timedelta:
        """Whole seconds since the Lease was renewed."""
        age = self.read_at - (self.renewed_at or self.read_at)
        return timedelta(seconds=max(0, int(age.total_seconds())))

    def __str__(self) -> str:
        """`host/123, by Lease default/ttl-after-finished, renewed 3s ago`."""
        who = self.holder or "nobody, since the last one stopped"
        at = f"{format_duration(self._age)} ago" if self.renewed_at else "nobody can tell when"
        handles = f"; it handles {self.scope}" if self.scope and self.leads else ""
        return f"{who}, by Lease {self.namespace}/{LEASE}, renewed {at}{handles}"


async def read_leader(cluster: "KubernetesCluster", namespace: str) -> Leader | None:
    """The Lease that a `run` has, or had, in a namespace; None where there is none.

    Raises:
        TtlError: It may not be read.
    """
    path = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace, safe='')}/leases/{LEASE}"
    try:
        answer = await cluster.request("GET", path, missing_ok=True)
    except AbsentKindError:
        return None
    return parse_leader(namespace, answer.body, answer.read_at) if answer else None


def parse_leader(namespace: str, lease: Any, read_at: datetime) -> Leader:
    """What a Lease says of the `run` that holds it.

    Args:
        namespace: Of the Lease.
        lease: As the API server gave it.
        read_at: By the API server's clock.
    """
    renewed_at = None
    with suppress(ValueError):  # anybody may have edited it
        renewed_at = parse_instant(get_text(lease, "spec.renewTime"))
    holder = printable(get_text(lease, "spec.holderIdentity"))
    return Leader(namespace, holder, renewed_at, read_at, parse_scope(lease))


async def read_state_namespace(cluster: "KubernetesCluster", namespace: str) -> str:
    """Where the `run` that has its Lease in a namespace keeps its brake and shared state: there, unless it says so."""
    try:
        leader = await read_leader(cluster, namespace)
    except TtlError:
        return namespace
    return leader.state if leader else namespace
