"""Run all checks of an installation, each after the checks of what it depends on."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from shared.adapters.config.kind_files import read_catalogue
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.adapters.kubernetes.state_configmap import read_contents
from shared.core.policy.policy import Policy
from shared.core.values.objects import get_in, get_text, parse_instant
from shared.doctor.activity import (
    Rhythm,
    check_dead_letters,
    check_lease,
    check_other_installations,
    check_run_only,
    check_safeguards,
    check_sweep,
)
from shared.doctor.archives import ArchivePolicy, check_archives
from shared.doctor.configured import Configured, Known, check_policies, check_settings, check_version, read_known
from shared.doctor.delete_guard import check_guard, check_guardrails
from shared.doctor.findings import Finding, fail, warn
from shared.doctor.proofs import check_proofs
from shared.doctor.rights import accounts_of, check_rights
from shared.doctor.server import check_kinds, check_knative, check_server
from shared.doctor.timer_engines import check_timers
from shared.doctor.usage_needs import check_usage
from shared.doctor.wiring import (
    check_brokers,
    check_coverage,
    check_sinks,
    check_sources,
    check_triggers,
    check_unread,
)
from shared.doctor.workloads import check_workloads
from shared.errors import TtlError
from shared.installation.installed import read_policy
from shared.installation.inventory import (
    ABOUT_INSTALLATION,
    Inventory,
    environment_of,
    name_of,
    path_of,
    read_inventory,
    read_list,
)
from shared.installation.place import RUN, Place
from shared.ports import Clock
from shared.safeguards.archive_ids import ReadArchiveIds


@dataclass(frozen=True, slots=True)
class Variant:
    """The variant of an installation: on Knative, as the Deployment `standalone`, or, by mistake, both."""

    knative: bool
    standalone: bool

    @property
    def overlay(self) -> str:
        """The shipped overlay of this variant."""
        return "standalone" if self.standalone and not self.knative else "knative"


def variant_of(found: Inventory) -> Variant:
    """Determine the variant from the inventory."""
    names = {name_of(obj) for kind, obj in found.workloads() if kind == "Deployment"}
    on_knative = any(found.all(kind) for kind in ("Broker", "Trigger", "Knative Service"))
    return Variant(knative=on_knative, standalone="standalone" in names)


def is_customized(found: Inventory) -> bool:
    """Return whether the installation has more than the overlays `knative` and `standalone`.

    That is: timers on a PersistentVolumeClaim, our own watch as the source, token checks, kind rules or a policy.
    """
    tokens = any(get_text(trigger, "spec.subscriber.audience") for trigger in found.all("Trigger"))
    files = any({"TTL_KINDS_DIR", "TTL_POLICY"} & environment_of(obj).keys() for _, obj in found.workloads())
    return tokens or files or bool(found.all("StatefulSet") or found.all("ContainerSource"))


def release_of(found: Inventory) -> str:
    """Return the name of the Helm release that made the workloads; empty if it was not Helm."""
    annotations = (get_in(workload, "metadata.annotations") for _, workload in found.workloads())
    return next((name for one in annotations if (name := (one or {}).get(_RELEASE))), "")


@dataclass(frozen=True, slots=True)
class _Installation:
    """An installation, with the results of the first checks, which later checks need."""

    cluster: KubernetesCluster
    place: Place
    found: Inventory
    variant: Variant
    known: Known
    configured: Configured
    now: datetime


async def examine(
    cluster: KubernetesCluster, clock: Clock, place: Place, *, version: str, local: ArchivePolicy | None = None
) -> list[Finding]:
    """Run all checks that apply to an installation.

    Args:
        cluster: The cluster, with the operator's credentials.
        clock: This machine's clock.
        place: The installation.
        version: The version of this program.
        local: A policy file of this machine, whose archives are checked instead of those of the installed policy.
    """
    try:
        findings, now = await check_server(cluster, clock)
    except TtlError as error:
        return [fail("API server", str(error), f"{place.kubectl} cluster-info")]
    found = await read_inventory(cluster, place.namespace)
    ids = await _read_archive_ids(cluster, place.namespace)
    local = replace(local, ids=ids) if local else None
    variant = variant_of(found)
    if not variant.knative and not variant.standalone:
        findings += [*check_unread(found, place), *await check_run_only(cluster, found, place, now=now)]
        findings += await check_guardrails(cluster, place)
        return findings + (await check_archives(cluster, read_catalogue(), local, clock, place=place) if local else [])
    place = replace(place, shipped=variant.overlay, is_customized=is_customized(found), release=release_of(found))
    known = read_known(found, place)
    place = replace(place, mounted_kinds=known.mounted)
    configured = check_settings(found, known.catalogue, place)
    installation = _Installation(cluster, place, found, variant, known, configured, now)
    findings += [*_check_variant(variant, place), *check_version(found, version, place)]
    findings += await check_other_installations(cluster, place)
    findings += [*await _check_objects(installation), *await _check_activity(installation)]
    if policy := _installed_policy(installation):
        kinds = configured.settings.kinds if configured.settings else ()
        findings += await check_usage(cluster, found, policy[1], place, kinds=kinds)
    given = local or _installed_archives(installation, ids)
    return findings + (await check_archives(cluster, known.catalogue, given, clock, place=place) if given else [])


def _installed_policy(installation: _Installation) -> tuple[str, Policy] | None:
    """Return the name of the installed policy, and the policy; None if it cannot be read: other checks report that."""
    try:
        return read_policy(installation.found, installation.known.catalogue, installation.place.namespace)
    except TtlError:
        return None


def _installed_archives(installation: _Installation, ids: ReadArchiveIds) -> ArchivePolicy | None:
    """Return the installed policy if it has archives."""
    settings = installation.configured.settings
    installed = _installed_policy(installation)
    if installed is None:
        return None
    name, policy = installed
    cluster = settings.cluster_name if settings else ""
    return ArchivePolicy(policy, name, is_local=False, cluster=cluster, ids=ids) if policy.archives else None


async def _read_archive_ids(cluster: KubernetesCluster, namespace: str) -> ReadArchiveIds:
    """Return the ids that the installation and a `run` remember; none of a state that cannot be read."""
    contents = []
    for one in dict.fromkeys((namespace, RUN)):
        with suppress(TtlError):
            contents.append(await read_contents(cluster, one))
    return ReadArchiveIds(tuple(contents))


def _check_variant(variant: Variant, place: Place) -> Iterator[Finding]:
    if variant.knative and variant.standalone:
        detail = "installed both on Knative and as standalone: this is safe, but all work is done twice"
        yield warn("installation", detail, place.command("delete", "deployment", "standalone"))


async def _check_objects(installation: _Installation) -> list[Finding]:
    """Check the objects of the installation, and what they depend on."""
    cluster, place, found = installation.cluster, installation.place, installation.found
    findings = await check_knative(cluster, place) if installation.variant.knative else []
    findings += [*check_unread(found, place), *installation.known.findings, *installation.configured.findings]
    findings += check_policies(found, installation.known.catalogue, place)
    settings = installation.configured.settings
    names = settings.kinds if settings else ()
    of_kinds, rules = await check_kinds(cluster, installation.configured.rules, names, place=place)
    findings += of_kinds
    if installation.variant.knative:
        findings += [*check_brokers(found, place), *check_triggers(found, place), *check_sources(found, place)]
        findings += check_sinks(found, place)
        findings += check_coverage(found, rules, place)
    findings += check_workloads(found, place)
    accounts = tuple(accounts_of(found, rules, installation.known.catalogue, namespace=place.namespace))
    findings += await check_rights(cluster, accounts, place, is_named=bool(names))
    known = installation.known.catalogue
    findings += await check_guard(cluster, rules, known=known, accounts=accounts, place=place)
    findings += await check_guardrails(cluster, place)
    return findings + await check_proofs(cluster, found, rules, known=known, place=place)


async def _check_activity(installation: _Installation) -> list[Finding]:
    """Check what an installation shows only while it runs: timers, Lease, safeguards, sweeps and dead letters."""
    cluster, place, found, now = installation.cluster, installation.place, installation.found, installation.now
    settings = installation.configured.settings
    findings = await check_timers(cluster, found, settings, place) if installation.variant.knative else []
    if settings is None or settings.dry_run:
        return findings  # a dry run takes no Lease and writes no Event
    if installation.variant.standalone:
        findings.append(check_lease(found, now, place))
    if not settings.home_namespace:
        return findings
    findings += check_safeguards(found, now, place)
    target = _SWEEP_LOGS if installation.variant.knative else ("deployment/standalone",)
    logs = place.command("logs", *target, "--tail=20")
    rhythm = Rhythm(settings.sweep_interval, _sweeps_since(found), logs)
    events = await read_list(cluster, path_of("v1/events", settings.home_namespace), fieldSelector=ABOUT_INSTALLATION)
    findings.append(check_sweep(events, now, rhythm, place=place))
    has_dead_letters = any(name_of(workload) == "deadletter" for _, workload in found.workloads())
    return [*findings, check_dead_letters(events, now, place)] if has_dead_letters else findings


_RELEASE = "meta.helm.sh/release-name"
_SWEEP_LOGS = ("-l", "serving.knative.dev/service=sweep", "-c", "user-container")


def _sweeps_since(found: Inventory) -> datetime | None:
    """Return when the sweeps can have begun: the newest creation time of their scheduler and of the settings."""
    needed = [*found.all("PingSource"), *(obj for _, obj in found.workloads() if name_of(obj) == "standalone")]
    needed += [obj for obj in found.all("ConfigMap") if name_of(obj).startswith("settings")]
    return max((parse_instant(get_text(obj, "metadata.creationTimestamp")) for obj in needed), default=None)
