"""Check for an active `run` if nothing is installed: its Lease and its shared state."""

from dataclasses import replace
from datetime import datetime

from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.doctor.activity import check_safeguards
from shared.doctor.findings import Finding, Level, fail, ok, unknown, warn
from shared.doctor.server import check_knative
from shared.errors import TtlError
from shared.installation.inventory import Inventory, read_inventory
from shared.installation.leader import read_leader, read_state_namespace
from shared.installation.mounted import READ
from shared.installation.place import HOME, RUN, Place
from shared.safeguards.state_schema import NAME

RUN_CHECK = "run"
"""The name of the check for a `run`."""


async def check_run_only(cluster: KubernetesCluster, found: Inventory, place: Place, *, now: datetime) -> list[Finding]:
    """Check for a `run` in the namespace; in the default namespace, also check where `run` has its Lease by default.

    Args:
        cluster: The cluster, with the operator's credentials.
        found: The inventory of the namespace.
        place: The namespace without an installation.
        now: The time, by the API server's clock.
    """
    findings = await _check_home(cluster, found, place, now=now)
    if place.namespace == HOME:
        of_run = await read_inventory(cluster, RUN, ("ConfigMap",))
        findings += await _check_home(cluster, of_run, replace(place, namespace=RUN), now=now)
    if problem := next((problem for kind, problem in found.problems() if kind in READ), ""):
        return [*findings, unknown("installation", problem, place)]
    if any(one.what == RUN_CHECK and one.level is Level.OK for one in findings):
        return [*findings, ok("installation", f"none in namespace {place.namespace}; a run is active")]
    return [*findings, await _check_absence(cluster, place)]


async def _check_home(cluster: KubernetesCluster, found: Inventory, place: Place, *, now: datetime) -> list[Finding]:
    run = await check_run(cluster, place)
    findings = [run] if run else []
    if run is None and found.get("ConfigMap", NAME) is None:
        return findings
    if run and run.level is Level.WARN and found.parts["ConfigMap"].problem:
        return findings  # one finding is enough if neither the Lease nor the ConfigMap can be read
    state = await read_state_namespace(cluster, place.namespace) if run else place.namespace
    if state != place.namespace:
        found, place = await read_inventory(cluster, state, ("ConfigMap",)), replace(place, namespace=state)
    return [*findings, *check_safeguards(found, now, place)]


async def _check_absence(cluster: KubernetesCluster, place: Place) -> Finding:
    detail = f"none in namespace {place.namespace}; select another namespace with --namespace"
    knative = await check_knative(cluster, place)
    overlay = "standalone" if any(one.fix for one in knative) else "knative"
    return fail("installation", detail, place.apply("or your own overlay", shipped=overlay))


async def check_run(cluster: "KubernetesCluster", place: Place) -> Finding | None:
    """Check whether a `run` holds its Lease in a namespace; None if the Lease does not exist.

    Args:
        cluster: The cluster, with the operator's credentials.
        place: The namespace of the Lease.
    """
    try:
        leader = await read_leader(cluster, place.namespace)
    except TtlError as error:
        return unknown(RUN_CHECK, str(error), place)
    if leader is None:
        return None
    if leader.leads:
        return ok(RUN_CHECK, str(leader))
    option = "" if place.namespace == RUN else f" --lease-namespace={place.namespace}"
    detail = f"not active, so nothing is deleted; {leader}"
    return warn(RUN_CHECK, detail, f"ttl-after-finished run{option}{''.join(f' {one}' for one in place.options)}")
