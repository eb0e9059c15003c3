"""A `run` on somebody's machine, as far as a cluster knows of it: its Lease."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import quote

from shared.adapters.cluster import KubernetesCluster
from shared.core.durations import format_duration
from shared.core.objects import get_text, parse_instant
from shared.doctor.findings import Finding, Place, ok, unknown, warn
from shared.doctor.homes import LEASE, RUN
from shared.doctor.reading import Obj
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
    """

    namespace: str
    holder: str
    renewed_at: datetime | None

    def leads(self, now: datetime) -> bool:
        """Whether it is somebody who still says so."""
        return bool(self.holder) and self.renewed_at is not None and now - self.renewed_at <= LEASE_AGE_MAX

    def describe(self, now: datetime) -> str:
        """`host/123, by Lease default/ttl-after-finished, renewed 3s ago`."""
        who = self.holder or "nobody, since the last one stopped"
        at = "cannot be told when" if self.renewed_at is None else f"{_ago(now - self.renewed_at)} ago"
        return f"{who}, by Lease {self.namespace}/{LEASE}, renewed {at}"


def leader_of(lease: Obj, namespace: str) -> Leader:
    """What is written on a Lease, by whoever may."""
    try:
        renewed_at = parse_instant(get_text(lease, "spec.renewTime"))
    except ValueError:
        renewed_at = None
    return Leader(namespace, get_text(lease, "spec.holderIdentity"), renewed_at)


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
    return leader_of(answer.body, namespace) if answer else None


async def check_run(cluster: KubernetesCluster, place: Place, now: datetime) -> Finding | None:
    """Whether a `run` works here; None where there is no trace of one.

    Args:
        cluster: As its operator reaches it.
        place: With the namespace of the Lease.
        now: By the API server's clock.
    """
    try:
        leader = await read_leader(cluster, place.namespace)
    except TtlError as error:
        return unknown(CHECK, str(error), place)
    if leader is None:
        return None
    if leader.leads(now):
        return ok(CHECK, f"on its own machine leads {leader.describe(now)}")
    again = "" if place.namespace == RUN else f" --lease-namespace={place.namespace}"
    detail = f"none leads, and nothing is deleted: {leader.describe(now)}"
    return warn(CHECK, detail, f"ttl-after-finished run{again}{''.join(f' {one}' for one in place.options)}")


def _ago(age: timedelta) -> str:
    return format_duration(timedelta(seconds=max(0, int(age.total_seconds()))))
