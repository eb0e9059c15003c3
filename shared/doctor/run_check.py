"""Where nothing is installed: whether a `run` does the work, and what it keeps of what stands."""

from dataclasses import replace
from datetime import datetime

from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.doctor.findings import Finding, Level, Place, fail, ok, unknown, warn
from shared.doctor.safeguards import check_breaker, check_loops, check_stop
from shared.doctor.server import check_knative
from shared.errors import TtlError
from shared.installation.defaults import HOME, RUN
from shared.installation.inventory import Inventory, read_inventory
from shared.installation.leader import read_leader, read_state_namespace
from shared.installation.mounted import READ
from shared.safeguards.state_schema import NAME

RUN_CHECK = "run"
"""The name of the check of a `run`."""


async def check_alone(cluster: KubernetesCluster, found: Inventory, place: Place, now: datetime) -> list[Finding]:
    """A `run` in that namespace; where nobody named one, also in the one in which it has its Lease by default.

    Args:
        cluster: As its operator reaches it.
        found: What there is in the namespace of the place.
        place: Where an installation was looked for.
        now: By the API server's clock.
    """
    findings = await _check_home(cluster, found, place, now)
    if place.namespace == HOME:
        of_run = await read_inventory(cluster, RUN, ("ConfigMap",))
        findings += await _check_home(cluster, of_run, replace(place, namespace=RUN), now)
    if problem := next((problem for kind, problem in found.problems() if kind in READ), ""):
        return [*findings, unknown("installation", problem, place)]
    if any(one.what == RUN_CHECK and one.level is Level.OK for one in findings):
        return [*findings, ok("installation", f"none in namespace {place.namespace}; a run does the work")]
    return [*findings, await _check_absence(cluster, place)]


async def _check_home(cluster: KubernetesCluster, found: Inventory, place: Place, now: datetime) -> list[Finding]:
    run = await check_run(cluster, place)
    told = [run] if run else []
    if run is None and found.get("ConfigMap", NAME) is None:
        return told
    if run and run.level is Level.WARN and found.parts["ConfigMap"].problem:
        return told  # neither may be read, which is one trouble
    state = await read_state_namespace(cluster, place.namespace) if run else place.namespace
    if state != place.namespace:
        found, place = await read_inventory(cluster, state, ("ConfigMap",)), replace(place, namespace=state)
    return [*told, check_stop(found, place), check_breaker(found, now, place), check_loops(found, now, place)]


async def _check_absence(cluster: KubernetesCluster, place: Place) -> Finding:
    detail = f"there is none in namespace {place.namespace}; --namespace names another"
    knative = await check_knative(cluster, place)
    overlay = "standalone" if any(one.fix for one in knative) else "knative"
    return fail("installation", detail, place.apply(overlay, "or an overlay of your own"))


async def check_run(cluster: "KubernetesCluster", place: Place) -> Finding | None:
    """Whether a `run` works here; None where there is no trace of one.

    Args:
        cluster: As its operator reaches it.
        place: With the namespace of the Lease.
    """
    try:
        leader = await read_leader(cluster, place.namespace)
    except TtlError as error:
        return unknown(RUN_CHECK, str(error), place)
    if leader is None:
        return None
    if leader.leads:
        return ok(RUN_CHECK, f"on its own machine leads {leader}")
    again = "" if place.namespace == RUN else f" --lease-namespace={place.namespace}"
    detail = f"none leads, and nothing is deleted: {leader}"
    return warn(RUN_CHECK, detail, f"ttl-after-finished run{again}{''.join(f' {one}' for one in place.options)}")
