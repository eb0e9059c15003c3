"""All checks, in the order in which one thing rests on another."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.core.objects import get_text, parse_instant
from shared.doctor.configured import Configured, check_settings, check_version
from shared.doctor.delete_guard import check_guard
from shared.doctor.event_checks import Rhythm, check_dead_letters, check_sweep
from shared.doctor.findings import Finding, Place, fail, warn
from shared.doctor.ownkinds import Known, read_known
from shared.doctor.policies import check_policies
from shared.doctor.rights import accounts_of, check_rights
from shared.doctor.run_check import check_alone
from shared.doctor.safeguards import check_breaker, check_loops, check_stop
from shared.doctor.server import check_kinds, check_knative, check_server
from shared.doctor.timing import check_lease, check_timers
from shared.doctor.wiring import check_brokers, check_coverage, check_sources, check_triggers, check_unread
from shared.doctor.workloads import check_workloads
from shared.errors import TtlError
from shared.installation.inventory import Inventory, environment_of, name_of, path_of, read_inventory, read_list
from shared.ports import Clock


@dataclass(frozen=True, slots=True)
class Sort:
    """What sort of installation it is: on Knative, in one Deployment, or, by mistake, both."""

    knative: bool
    standalone: bool

    @property
    def overlay(self) -> str:
        """The shipped overlay of this sort."""
        return "standalone" if self.standalone and not self.knative else "knative"


def sort_of(found: Inventory) -> Sort:
    """By what there is of it."""
    names = {name_of(obj) for kind, obj in found.workloads() if kind == "Deployment"}
    on_knative = any(found.all(kind) for kind in ("Broker", "Trigger", "Knative Service"))
    return Sort(knative=on_knative, standalone="standalone" in names)


def is_own(found: Inventory) -> bool:
    """Whether it has more than the two-minute starts: timers on a claim, our source, tokens, rules or a policy."""
    tokens = any(get_text(trigger, "spec.subscriber.audience") for trigger in found.all("Trigger"))
    files = any({"TTL_KINDS_DIR", "TTL_POLICY"} & environment_of(obj).keys() for _, obj in found.workloads())
    return tokens or files or bool(found.all("StatefulSet") or found.all("ContainerSource"))


@dataclass(frozen=True, slots=True)
class _Patient:
    """An installation, and what was found out about it before the checks that need it."""

    cluster: KubernetesCluster
    place: Place
    found: Inventory
    sort: Sort
    known: Known
    configured: Configured
    now: datetime


async def examine(cluster: KubernetesCluster, clock: Clock, place: Place, *, version: str) -> list[Finding]:
    """Check everything that applies.

    Args:
        cluster: As its operator reaches it.
        clock: This machine's.
        place: The installation.
        version: Of this program.
    """
    try:
        findings, now = await check_server(cluster, clock)
    except TtlError as error:
        return [fail("API server", str(error), f"{place.kubectl} cluster-info")]
    found = await read_inventory(cluster, place.namespace)
    sort = sort_of(found)
    if not sort.knative and not sort.standalone:
        return [*findings, *check_unread(found, place), *await check_alone(cluster, found, place, now)]
    place = replace(place, is_own=is_own(found))
    known = read_known(found, place, sort.overlay)
    place = replace(place, own_kinds=known.own)
    configured = check_settings(found, known.catalogue, place, sort.overlay)
    patient = _Patient(cluster, place, found, sort, known, configured, now)
    findings += [*_check_sort(sort, place), *check_version(found, version, place, sort.overlay)]
    return [*findings, *await _check_parts(patient), *await _check_life(patient)]


def _check_sort(sort: Sort, place: Place) -> Iterator[Finding]:
    if sort.knative and sort.standalone:
        detail = "on Knative and standalone at once: no harm, but everything is done twice"
        yield warn("installation", detail, place.command("delete", "deployment", "standalone"))


async def _check_parts(patient: _Patient) -> list[Finding]:
    """What it is made of."""
    cluster, place, found, rules = patient.cluster, patient.place, patient.found, patient.configured.rules
    findings = await check_knative(cluster, place) if patient.sort.knative else []
    findings += [*check_unread(found, place), *patient.known.findings, *patient.configured.findings]
    findings += check_policies(found, patient.known.catalogue, place, patient.sort.overlay)
    words = patient.configured.settings.kinds if patient.configured.settings else ()
    of_kinds, rules = await check_kinds(cluster, rules, words, place)
    findings += of_kinds
    if patient.sort.knative:
        findings += [*check_brokers(found, place), *check_triggers(found, place), *check_sources(found, place)]
        findings += check_coverage(found, rules, place)
    findings += check_workloads(found, place)
    accounts = tuple(accounts_of(found, rules, patient.known.catalogue, place.namespace))
    findings += await check_rights(cluster, accounts, place, is_named=bool(words))
    return findings + await check_guard(cluster, rules, patient.known.catalogue, accounts, place)


async def _check_life(patient: _Patient) -> list[Finding]:
    """What only one that runs can show."""
    cluster, place, found, now = patient.cluster, patient.place, patient.found, patient.now
    findings = [await check_timers(cluster, found, place)] if patient.sort.knative else []
    settings = patient.configured.settings
    if settings is None or settings.dry_run:
        return findings  # a dry run takes no Lease and writes no Event
    if patient.sort.standalone:
        findings.append(check_lease(found, now, place))
    if not settings.home_namespace:
        return findings
    findings += [check_stop(found, place), check_breaker(found, now, place), check_loops(found, now, place)]
    who = _SWEEP_LOGS if patient.sort.knative else ("deployment/standalone",)
    logs = place.command("logs", *who, "--tail=20")
    rhythm = Rhythm(settings.sweep_interval, _sweeps_since(found), logs)
    events = await read_list(cluster, path_of("v1/events", settings.home_namespace), fieldSelector=_ABOUT_US)
    findings.append(check_sweep(events, now, rhythm, place))
    buried = any(name_of(workload) == "deadletter" for _, workload in found.workloads())
    return [*findings, check_dead_letters(events, now, place)] if buried else findings


_SWEEP_LOGS = ("-l", "serving.knative.dev/service=sweep", "-c", "user-container")
_ABOUT_US = "involvedObject.kind=Namespace"


def _sweeps_since(found: Inventory) -> datetime | None:
    """When the last of what a sweep needs came to be: what asks for it, and the settings."""
    needed = [*found.all("PingSource"), *(obj for _, obj in found.workloads() if name_of(obj) == "standalone")]
    needed += [obj for obj in found.all("ConfigMap") if name_of(obj).startswith("settings")]
    return max((parse_instant(get_text(obj, "metadata.creationTimestamp")) for obj in needed), default=None)
