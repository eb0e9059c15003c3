"""A `run` on somebody's machine, as far as a cluster knows of it: its Lease."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import quote

from shared.adapters.cluster import KubernetesCluster
from shared.core.durations import format_duration
from shared.core.objects import get_text, parse_instant, printable
from shared.doctor.findings import Finding, Place, ok, unknown, warn
from shared.doctor.homes import LEASE, RUN
from shared.errors import AbsentKindError, TtlError

LEASE_AGE_MAX = timedelta(seconds=30)
"""Twice its duration."""

CHECK = "run"
"""What the check is called."""


@dataclass(frozen=True, slots=True)
class Leader:
    """What a Lease says.

    Attributes:
        namespace: Of the Lease.
        holder: Who leads: `host/process`; empty where the last one gave it back.
        renewed_at: When that was said last, by the holder's clock; None where it cannot be read.
        read_at: When the Lease was read, by the API server's clock.
    """

    namespace: str
    holder: str
    renewed_at: datetime | None
    read_at: datetime

    @property
    def leads(self) -> bool:
        """Whether it is somebody who still says so."""
        return bool(self.holder) and self.renewed_at is not None and self._age <= LEASE_AGE_MAX

    @property
    def _age(self) -> timedelta:
        """Whole seconds since the Lease was renewed."""
        age = self.read_at - (self.renewed_at or self.read_at)
        return timedelta(seconds=max(0, int(age.total_seconds())))

    def __str__(self) -> str:
        """`host/123, by Lease default/ttl-after-finished, renewed 3s ago`."""
        who = self.holder or "nobody, since the last one stopped"
        at = f"{format_duration(self._age)} ago" if self.renewed_at else "nobody can tell when"
        return f"{who}, by Lease {self.namespace}/{LEASE}, renewed {at}"


async def read_leader(cluster: KubernetesCluster, namespace: str) -> Leader | None:
    """The Lease that a `run` has, or had, in a namespace; None where there is none.

    Raises:
        TtlError: It may not be read.
    """
    path = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace, safe='')}/leases/{LEASE}"
    try:
        answer = await cluster.request("GET", path, missing_ok=True)
    except AbsentKindError:
        return None
    if answer is None:
        return None
    renewed_at = None
    with suppress(ValueError):  # anybody may have edited it
        renewed_at = parse_instant(get_text(answer.body, "spec.renewTime"))
    return Leader(namespace, printable(get_text(answer.body, "spec.holderIdentity")), renewed_at, answer.read_at)


async def check_run(cluster: KubernetesCluster, place: Place) -> Finding | None:
    """Whether a `run` works here; None where there is no trace of one.

    Args:
        cluster: As its operator reaches it.
        place: With the namespace of the Lease.
    """
    try:
        leader = await read_leader(cluster, place.namespace)
    except TtlError as error:
        return unknown(CHECK, str(error), place)
    if leader is None:
        return None
    if leader.leads:
        return ok(CHECK, f"on its own machine leads {leader}")
    again = "" if place.namespace == RUN else f" --lease-namespace={place.namespace}"
    detail = f"none leads, and nothing is deleted: {leader}"
    return warn(CHECK, detail, f"ttl-after-finished run{again}{''.join(f' {one}' for one in place.options)}")
