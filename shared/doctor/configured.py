"""Check the settings of the workloads, and the installed version."""

from collections.abc import Iterator
from dataclasses import dataclass

from shared.adapters.config.settings import Settings, SettingsError
from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.rule import KindRule
from shared.core.ttl.durations import format_duration
from shared.doctor.findings import Finding, fail, ok, unknown, warn
from shared.installation.inventory import Inventory, Obj, environment_of, labels_of, name_of
from shared.installation.mounted import find_settings, most_used, parse_settings
from shared.installation.place import Place

_OF_ONE = ("TTL_CALLERS", "TTL_KINDS_DIR", "TTL_POLICY")
"""Variables that a manifest may set on a single workload: not every workload needs them, or the values differ."""

_WITHOUT_KINDS = ("timers", "deadletter")
"""Workloads that use no kinds. components/kinds sets TTL_KINDS=all on them, as they do not read the mounted rules."""

_VERSION = "app.kubernetes.io/version"


@dataclass(frozen=True, slots=True)
class Configured:
    """The result of the check of the settings.

    Attributes:
        findings: The findings.
        settings: The settings; None if they cannot be read.
        rules: The rules of the enabled kinds.
    """

    findings: tuple[Finding, ...]
    settings: Settings | None = None
    rules: tuple[KindRule, ...] = ()


def check_settings(found: Inventory, kinds: Catalogue, place: Place, overlay: str) -> Configured:
    """Check the ConfigMap that the workloads take their settings from.

    Args:
        found: The inventory of the installation.
        kinds: All kinds that the installation knows.
        place: The installation.
        overlay: The shipped overlay that fits the installation.
    """
    named = find_settings(found)
    apply = place.apply(overlay)
    if not named:
        return Configured((fail("settings", "no workload takes its settings from a ConfigMap", apply),))
    if found.parts["ConfigMap"].problem:
        return Configured((unknown("settings", found.parts["ConfigMap"].problem, place),))
    name = most_used(named)
    findings = [
        fail(f"settings {one}", f"the ConfigMap does not exist, and {', '.join(users)} cannot start without it", apply)
        for one, users in named.items()
        if found.is_absent("ConfigMap", one)
    ]
    findings += _overrides(found, apply)
    if len(named) > 1:
        detail = "; ".join(f"{one}: {', '.join(users)}" for one, users in named.items())
        findings.append(warn("settings", f"the workloads use different ConfigMaps: {detail}", apply))
    config = found.get("ConfigMap", name)
    if config is None:
        return Configured(tuple(findings))
    return _check_values(config, kinds, findings, place, overlay)


def _overrides(found: Inventory, apply: str) -> Iterator[Finding]:
    """Report variables in a workload's own `env`: they take precedence over the ConfigMap, and doctor ignores them."""
    for _, workload in found.workloads():
        names = set(environment_of(workload)) - ({"TTL_KINDS"} if name_of(workload) in _WITHOUT_KINDS else set())
        if own := sorted(name for name in names if name.startswith("TTL_") and not name.startswith(_OF_ONE)):
            detail = f"{', '.join(own)} in its own env, which takes precedence over the ConfigMap"
            yield warn(f"settings of {name_of(workload)}", detail, apply)


def _check_values(config: Obj, kinds: Catalogue, findings: list[Finding], place: Place, overlay: str) -> Configured:
    what = f"settings {name_of(config)}"
    fix = place.apply(overlay, "after you fix the value in it")
    try:
        settings, rules = parse_settings(config, kinds)
    except ValueError as error:
        return Configured((*findings, fail(what, f"TTL_KINDS: {error}", fix)))
    except SettingsError as error:
        return Configured((*findings, fail(what, str(error), fix)))
    named = ", ".join(rule.plural for rule in rules) if settings.kinds else "all kinds that can finish"
    findings.append(ok(what, f"{named}; a sweep every {format_duration(settings.sweep_interval)}"))
    if settings.dry_run:
        detail = "TTL_DRY_RUN is on: nothing is deleted, and no Event is written, so doctor cannot see the sweeps"
        findings.append(warn("dry run", detail, place.apply(overlay, "with TTL_DRY_RUN=false")))
    elif settings.home_namespace != place.namespace:
        actual = settings.home_namespace or "no namespace"
        detail = f"TTL_NAMESPACE: expected {place.namespace} for the Events about this installation, got {actual}"
        findings.append(warn("settings", detail, place.apply(overlay, f"with TTL_NAMESPACE={place.namespace}")))
    return Configured(tuple(findings), settings, rules)


def check_version(found: Inventory, version: str, place: Place, overlay: str) -> Iterator[Finding]:
    """Check that all workloads and this program have the same version."""
    versions = {str(labels_of(obj).get(_VERSION)) for _, obj in found.workloads() if _VERSION in labels_of(obj)}
    if len(versions) > 1:
        detail = f"workloads of several versions run: {', '.join(sorted(versions))}"
        yield warn("version", detail, place.apply(overlay))
    elif versions and versions != {version}:
        detail = f"{versions.pop()} is installed, and this program is {version}: some checks may not apply"
        yield warn("version", detail, place.apply(overlay, "or run doctor of the installed version"))
    elif versions:
        yield ok("version", version)
