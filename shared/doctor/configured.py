"""The settings that the functions run with, and the version that is installed."""

from collections.abc import Iterator
from dataclasses import dataclass

from shared.adapters.config.settings import Settings, SettingsError
from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.rule import KindRule
from shared.core.ttl.durations import format_duration
from shared.doctor.findings import Finding, Place, fail, ok, unknown, warn
from shared.installation.inventory import Inventory, Obj, environment_of, labels_of, name_of
from shared.installation.mounted import find_settings, most_used, parse_settings

_OF_ONE = ("TTL_CALLERS", "TTL_KINDS_DIR", "TTL_POLICY")
"""What only some of the workloads are told, or each in its own way."""

_WITHOUT_KINDS = ("timers", "deadletter")
"""Who starts with whatever kinds: components/kinds tells them of none."""

_VERSION = "app.kubernetes.io/version"


@dataclass(frozen=True, slots=True)
class Configured:
    """What the settings come to.

    Attributes:
        settings: None where they cannot be read.
        rules: The enabled kinds.
    """

    findings: tuple[Finding, ...]
    settings: Settings | None = None
    rules: tuple[KindRule, ...] = ()


def check_settings(found: Inventory, kinds: Catalogue, place: Place, overlay: str) -> Configured:
    """The ConfigMap that the workloads name.

    Args:
        found: What there is.
        kinds: All that the installation knows.
        place: The installation.
        overlay: Which of the shipped ones it would be.
    """
    named = find_settings(found)
    apply = place.apply(overlay)
    if not named:
        return Configured((fail("settings", "nothing that runs names a ConfigMap with settings", apply),))
    if found.parts["ConfigMap"].problem:
        return Configured((unknown("settings", found.parts["ConfigMap"].problem, place),))
    name = most_used(named)
    findings = [
        fail(f"settings {one}", f"the ConfigMap is not there, and {', '.join(users)} cannot start without it", apply)
        for one, users in named.items()
        if found.is_absent("ConfigMap", one)
    ]
    findings += _overrides(found, apply)
    if len(named) > 1:
        detail = "; ".join(f"{', '.join(users)} by {one}" for one, users in named.items())
        findings.append(warn("settings", f"not all run by the same: {detail}", apply))
    config = found.get("ConfigMap", name)
    if config is None:
        return Configured(tuple(findings))
    return _evaluator(config, kinds, findings, place, overlay)


def _overrides(found: Inventory, apply: str) -> Iterator[Finding]:
    """What a workload sets by itself counts before the ConfigMap, and is not looked into here."""
    for _, workload in found.workloads():
        names = set(environment_of(workload)) - ({"TTL_KINDS"} if name_of(workload) in _WITHOUT_KINDS else set())
        if own := sorted(name for name in names if name.startswith("TTL_") and not name.startswith(_OF_ONE)):
            detail = f"{', '.join(own)} set by itself, which counts before the ConfigMap"
            yield warn(f"settings of {name_of(workload)}", detail, apply)


def _evaluator(config: Obj, kinds: Catalogue, findings: list[Finding], place: Place, overlay: str) -> Configured:
    what = f"settings {name_of(config)}"
    try:
        settings, rules = parse_settings(config, kinds)
    except ValueError as error:
        return Configured((*findings, fail(what, f"TTL_KINDS: {error}", place.apply(overlay, "with that mended"))))
    except SettingsError as error:
        return Configured((*findings, fail(what, str(error), place.apply(overlay, "with that mended"))))
    named = ", ".join(rule.plural for rule in rules) if settings.kinds else "all kinds that can finish"
    findings.append(ok(what, f"{named}; a sweep every {format_duration(settings.sweep_interval)}"))
    if settings.dry_run:
        detail = "TTL_DRY_RUN is on: nothing is deleted, no Event is written, and so no sweep is seen"
        findings.append(warn("dry run", detail, place.apply(overlay, "with TTL_DRY_RUN=false")))
    elif settings.home_namespace != place.namespace:
        where = settings.home_namespace or "nowhere"
        detail = f"TTL_NAMESPACE: Events about this installation go to {where}, not here"
        findings.append(warn("settings", detail, place.apply(overlay, f"with TTL_NAMESPACE={place.namespace}")))
    return Configured(tuple(findings), settings, rules)


def check_version(found: Inventory, version: str, place: Place, overlay: str) -> Iterator[Finding]:
    """Whether all of it is of one version, and this program too."""
    versions = {str(labels_of(obj).get(_VERSION)) for _, obj in found.workloads() if _VERSION in labels_of(obj)}
    if len(versions) > 1:
        detail = f"half an upgrade: {', '.join(sorted(versions))} run side by side"
        yield warn("version", detail, place.apply(overlay))
    elif versions and versions != {version}:
        detail = f"installed is {versions.pop()}, and this program is {version}: it may look for what is not there"
        yield warn("version", detail, place.apply(overlay, "or doctor of the installed version"))
    elif versions:
        yield ok("version", version)
