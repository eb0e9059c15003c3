"""Read the Lease of a `run` outside the cluster: its holder, and what the holder handles."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from shared.core.values.objects import get_text, list_mappings, parse_instant, printable
from shared.core.values.scope import Scope, parse_scope
from shared.core.values.timing import format_duration
from shared.errors import AbsentKindError, TtlError
from shared.installation.place import LEASE

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands do not need it
    from shared.adapters.kubernetes.cluster import KubernetesCluster


LEASE_NAMESPACES_MAX = 50
"""The most namespaces with the Lease of a `run`, beside the default ones: any user may create a Lease."""

LEASE_AGE_MAX = timedelta(seconds=30)
"""The age of a renewal from which a Lease counts as lost: twice the duration of the Lease."""


@dataclass(frozen=True, slots=True)
class Leader:
    """The holder of a Lease.

    Attributes:
        namespace: The namespace of the Lease.
        holder: The process that leads, as `host/process`; empty if the last one released the Lease.
        renewed_at: The time of the last renewal, by the holder's clock; None if it cannot be read.
        read_at: When the Lease was read, by the API server's clock.
        scope: The objects that the holder handles; None if the Lease has no such annotations, as from an older version.
    """

    namespace: str
    holder: str
    renewed_at: datetime | None
    read_at: datetime
    scope: Scope | None = None

    @property
    def leads(self) -> bool:
        """Whether the Lease has a holder that renewed it recently."""
        return bool(self.holder) and self.renewed_at is not None and self._age <= LEASE_AGE_MAX

    @property
    def state(self) -> str:
        """The namespace of the holder's brake and shared state; by default that of the Lease."""
        return (self.scope.state if self.scope and self.leads else "") or self.namespace

    @property
    def _age(self) -> timedelta:
        """The time since the last renewal, in whole seconds."""
        age = self.read_at - (self.renewed_at or self.read_at)
        return timedelta(seconds=max(0, int(age.total_seconds())))

    def __str__(self) -> str:
        """`the leader is host/123, by Lease default/ttl-after-finished, renewed 3s ago`."""
        at = f"{format_duration(self._age)} ago" if self.renewed_at else "at an unknown time"
        handles = f"; it handles {self.scope}" if self.scope and self.leads else ""
        lease = f"Lease {self.namespace}/{LEASE}, renewed {at}"
        if not self.holder:
            return f"the last leader stopped, and released {lease}"
        return f"the {'' if self.leads else 'last '}leader is {self.holder}, by {lease}{handles}"


async def read_leader(cluster: "KubernetesCluster", namespace: str) -> Leader | None:
    """Read the Lease of a `run` in a namespace; None if the Lease does not exist.

    Raises:
        TtlError: The Lease cannot be read.
    """
    path = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace, safe='')}/leases/{LEASE}"
    try:
        answer = await cluster.request("GET", path, missing_ok=True)
    except AbsentKindError:
        return None
    return parse_leader(namespace, answer.body, answer.read_at) if answer else None


async def list_leaders(cluster: "KubernetesCluster") -> list[Leader]:
    """Read the Leases of each `run` in all namespaces.

    Raises:
        TtlError: The Leases cannot be listed.
    """
    path = f"/apis/coordination.k8s.io/v1/leases?fieldSelector=metadata.name%3D{LEASE}&resourceVersion=0"
    answer = await cluster.request("GET", path, missing_ok=True)
    if answer is None:
        return []
    leases = ((get_text(lease, "metadata.namespace"), lease) for lease in list_mappings(answer.body, "items"))
    return [parse_leader(namespace, lease, answer.read_at) for namespace, lease in leases if namespace]


def parse_leader(namespace: str, lease: Any, read_at: datetime) -> Leader:
    """Read the holder of a Lease.

    Args:
        namespace: The namespace of the Lease.
        lease: The Lease from the API server.
        read_at: When the Lease was read, by the API server's clock.
    """
    renewed_at = None
    with suppress(ValueError):  # any user with the right may have edited the Lease
        renewed_at = parse_instant(get_text(lease, "spec.renewTime"))
    holder = printable(get_text(lease, "spec.holderIdentity"))
    return Leader(namespace, holder, renewed_at, read_at, parse_scope(lease))


async def read_state_namespace(cluster: "KubernetesCluster", namespace: str) -> str:
    """Return the namespace of the brake and shared state of the `run` that holds the Lease in a namespace.

    If the Lease does not name a namespace for the state, or cannot be read, it is the namespace of the Lease.
    """
    try:
        leader = await read_leader(cluster, namespace)
    except TtlError:
        return namespace
    return leader.state if leader else namespace
