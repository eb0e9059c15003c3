"""Check what deletes on a cluster: the Lease, the last sweep, dead letters, safeguards, a `run`, other installations.

The API server keeps the Events about sweeps and dead letters for an hour. The safeguards that keep due objects are the
brake, the breaker, and names in a recreate loop.
"""

import shlex
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.core.values.objects import get_in, get_text, parse_instant
from shared.core.values.scope import parse_scope
from shared.core.values.timing import format_duration
from shared.doctor.findings import Finding, Level, fail, ok, unknown, warn
from shared.doctor.server import check_knative
from shared.errors import TtlError
from shared.installation.installed import READ
from shared.installation.inventory import (
    OURS,
    Inventory,
    Listed,
    find_last_sweep,
    name_of,
    read_inventory,
    read_list,
    time_of,
)
from shared.installation.leader import LEASE_AGE_MAX, read_leader, read_state_namespace
from shared.installation.place import HOME, LEASE, RUN, Place
from shared.installation.rbac import DELETERS
from shared.ports import EventReason
from shared.safeguards.state_schema import NAME, StateContents, parse_state

_NAMES_SHOWN = 3


def check_lease(found: Inventory, now: datetime, place: Place) -> Finding:
    """Check that a Pod of `standalone` holds the Lease."""
    if found.parts["Lease"].problem:
        return unknown("Lease", found.parts["Lease"].problem, place)
    lease = found.get("Lease", LEASE)
    holder = get_text(lease, "spec.holderIdentity")
    logs = place.command("logs", "deployment/standalone", "--tail=20")
    if not holder:
        return fail("Lease", "no Pod holds it, so nothing is deleted", logs)
    try:
        age = now - parse_instant(get_text(lease, "spec.renewTime"))
    except ValueError as error:
        return warn("Lease", f"held by {holder}; renewTime: {error}", logs)
    if age > LEASE_AGE_MAX:
        detail = f"{holder} has not renewed it for {age.total_seconds():.0f} s, so nothing is deleted"
        return fail("Lease", detail, logs)
    scope = parse_scope(lease)
    return ok("Lease", f"{holder} leads" + (f"; it handles {scope}" if scope else ""))


KEPT_FOR = timedelta(hours=1)
"""How long the API server keeps an Event: the default of --event-ttl."""

INTERVALS_MAX = 3
"""Sweep intervals without a sweep after which doctor reports a warning."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """The schedule of the sweeps.

    Attributes:
        interval: The time between two sweeps.
        since: When the schedule began; None if that is unknown.
        logs: The command that shows the log of `sweep`.
    """

    interval: timedelta
    since: datetime | None
    logs: str


def check_sweep(events: Listed, now: datetime, rhythm: Rhythm, *, place: Place) -> Finding:
    """Check that the last sweep of all objects is recent and complete.

    Args:
        events: The Events about the installation.
        now: The time, by the API server's clock.
        rhythm: The expected schedule.
        place: The installation.
    """
    if events.problem:
        return unknown("last sweep", events.problem, place)
    every = f"expected every {format_duration(rhythm.interval)}"
    age_max = INTERVALS_MAX * rhythm.interval
    if last := find_last_sweep(events.items):
        ago = f"{format_duration(_whole(now - last.at))} ago"
        if now - last.at > age_max:
            return warn("last sweep", f"{ago}; {every}", rhythm.logs)
        if not last.is_complete:
            return warn("last sweep", f"{ago}, but incomplete: {last.message}", rhythm.logs)
        return ok("last sweep", f"{ago}; {every}")
    if rhythm.since is not None and now - rhythm.since < age_max:
        return ok("last sweep", f"none yet; scheduled since {rhythm.since:%H:%M:%S} UTC, {every}")
    if age_max > KEPT_FOR:
        return warn("last sweep", f"unknown: Events are kept for an hour, and a sweep is {every}", rhythm.logs)
    return warn("last sweep", f"none in the last hour; {every}", rhythm.logs)


def check_dead_letters(events: Listed, now: datetime, place: Place) -> Finding:
    """Check the dead letters of the last hour. The same problem is reported in one Event an hour."""
    if events.problem:
        return unknown("dead letters", events.problem, place)
    letters = [
        event
        for event in events.items
        if get_text(event, "reason") == EventReason.DEAD_LETTER and (at := time_of(event)) and now - at < KEPT_FOR
    ]
    if not letters:
        return ok("dead letters", "none in the last hour")
    last = max(letters, key=lambda event: time_of(event) or now)
    show = place.command("get", "events", "--field-selector", f"reason={EventReason.DEAD_LETTER}")
    count = f"{len(letters)} different problems" if len(letters) > 1 else "one problem"
    return warn("dead letters", f"{count} in the last hour; the latest: {get_text(last, 'message')}", show)


def _whole(age: timedelta) -> timedelta:
    return timedelta(seconds=max(0, int(age.total_seconds())))


def check_safeguards(found: Inventory, now: datetime, place: Place) -> list[Finding]:
    """Check the safeguards in the shared state of a namespace.

    Args:
        found: The inventory of the namespace.
        now: The time, by the API server's clock.
        place: The namespace.
    """
    if problem := found.parts["ConfigMap"].problem:
        return [unknown(one, problem, place) for one in ("stop", "breaker", "recreate loops")]
    data = get_in(found.get("ConfigMap", NAME), "data")
    texts = {name: text for name, text in data.items() if isinstance(text, str)} if isinstance(data, dict) else {}
    contents = parse_state(texts)
    return [_check_stop(contents, place), _check_breaker(contents, now, place), _check_loops(contents, now, place)]


def _check_stop(contents: StateContents, place: Place) -> Finding:
    """Check the brake: whether a person stopped all deletions."""
    stop = contents.stop
    if stop is None:
        return ok("stop", "not set")
    start = shlex.join(("kubectl", "ttl", "start", "-n", place.namespace, *place.options))
    return fail("stop", f"nothing is deleted {stop}", start)


def _check_breaker(contents: StateContents, now: datetime, place: Place) -> Finding:
    """Check the breaker: whether it is open, and so stops all deletions."""
    trip = contents.trip
    if trip is None:
        return ok("breaker", "closed")
    since = ""
    if trip.at:
        ago = now.replace(microsecond=0) - trip.at.replace(microsecond=0)
        since = f" since {trip.at:%Y-%m-%d %H:%M:%S} UTC ({format_duration(ago)} ago)"
    by = f", reported by {trip.by}" if trip.by else ""
    words = ("kubectl", "ttl", "release", "--breaker", "-n", place.namespace, *place.options)
    release = f"{shlex.join(words)}    # first see what would be deleted: kubectl ttl plan"
    kept = contents.name_kept(_NAMES_SHOWN)
    return fail("breaker", f"open: nothing is deleted{since}: {trip.why}{by}{kept}", release)


def _check_loops(contents: StateContents, now: datetime, place: Place) -> Finding:
    """Check the names in a recreate loop: their objects come back after each deletion, so they are kept for a while."""
    names = sorted(name for name, until in contents.loops.items() if until > now)
    if not names:
        return ok("recreate loops", "none")
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    shown = ", ".join(names[:_NAMES_SHOWN])
    detail = f"recreated after each deletion, and kept for a while: {shown}{more}"
    show = f"{place.kubectl} get events -A --field-selector reason=RecreateLoop"
    return warn("recreate loops", detail, show)


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


async def check_run(cluster: KubernetesCluster, place: Place) -> Finding | None:
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


_OTHERS = "other installations"
_ACCOUNTS = "/api/v1/serviceaccounts"
_OTHERS_SHOWN = 5


async def check_other_installations(cluster: KubernetesCluster, place: Place) -> list[Finding]:
    """Look for accounts of ours that delete, in other namespaces; nothing if there are none.

    Args:
        cluster: The cluster, with the operator's credentials.
        place: The installation.
    """
    labels = ",".join(f"{key}={value}" for key, value in OURS.items())
    found = await read_list(cluster, _ACCOUNTS, labelSelector=labels)
    if found.problem:
        return [unknown(_OTHERS, found.problem, place)]
    deleting = {get_text(one, "metadata.namespace") for one in found.items if name_of(one) in DELETERS}
    others = sorted(deleting - {place.namespace})
    if not others:
        return []
    shown = ", ".join(others[:_OTHERS_SHOWN]) + (", …" if len(others) > _OTHERS_SHOWN else "")
    detail = (
        f"in namespace {shown}: each deletes by its own policy, also what the policy of another one keeps, and the "
        "cluster roles and guards bind the accounts of one of them only; remove all but one"
    )
    return [warn(_OTHERS, detail, f"{place.kubectl} get serviceaccounts,deployments -A -l {labels}")]
