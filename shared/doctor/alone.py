"""Where nothing is installed: whether a `run` does the work, and what it keeps of what stands."""

from dataclasses import replace
from datetime import datetime

from shared.adapters.cluster import KubernetesCluster
from shared.doctor.findings import Finding, Level, Place, fail, ok, unknown
from shared.doctor.homes import HOME, RUN
from shared.doctor.leader import CHECK as RUN_CHECK
from shared.doctor.leader import check_run, read_state_namespace
from shared.doctor.policies import READ
from shared.doctor.reading import Inventory, read_inventory
from shared.doctor.restraints import check_breaker, check_loops, check_stop
from shared.doctor.server import check_knative
from shared.usecases.standing import NAME


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
    overlay = "standalone" if any(one.mend for one in knative) else "knative"
    return fail("installation", detail, place.apply(overlay, "or an overlay of your own"))
