"""Check what an installation is configured with: its settings, kind rules and policy, and its version."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shared.adapters.config.kind_files import as_catalogue, read_catalogue
from shared.adapters.config.policy_file import parse_policy
from shared.adapters.config.settings import Settings, SettingsError
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.values.timing import format_duration
from shared.doctor.findings import Finding, fail, ok, unknown, warn
from shared.errors import TtlError
from shared.installation.installed import (
    find_policies,
    find_rules,
    find_settings,
    most_used,
    parse_settings,
    read_policy_text,
    read_rules,
)
from shared.installation.inventory import Inventory, Obj, environment_of, labels_of, name_of
from shared.installation.place import Place

_OF_ONE = ("TTL_CALLERS", "TTL_KINDS_DIR", "TTL_POLICY", "TTL_REFERENCES_DIR")
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


@dataclass(frozen=True, slots=True)
class Known:
    """All kinds that the installation knows.

    Attributes:
        catalogue: The shipped rules, and the mounted rules if they can be read.
        mounted: The names of the kinds whose rules are mounted.
        findings: The findings about the mounted rules; empty if no rules are mounted.
    """

    catalogue: Catalogue
    mounted: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()


def check_settings(found: Inventory, kinds: Catalogue, place: Place) -> Configured:
    """Check the ConfigMap that the workloads take their settings from.

    Args:
        found: The inventory of the installation.
        kinds: All kinds that the installation knows.
        place: The installation.
    """
    named = find_settings(found)
    if not named:
        return Configured((fail("settings", "no workload takes its settings from a ConfigMap", place.apply()),))
    if found.parts["ConfigMap"].problem:
        return Configured((unknown("settings", found.parts["ConfigMap"].problem, place),))
    problems = (_find_problem(found, "settings", one, users=users, place=place) for one, users in named.items())
    findings = [*filter(None, problems), *_overrides(found, place), *_differ("settings", named, place)]
    config = found.get("ConfigMap", most_used(named))
    if config is None:
        return Configured(tuple(findings))
    return _check_values(config, kinds, findings, place=place)


def _differ(what: str, named: Mapping[str, Sequence[str]], place: Place) -> Iterator[Finding]:
    """Report that the workloads use different ConfigMaps."""
    if len(named) > 1:
        detail = "; ".join(f"{one}: {', '.join(users)}" for one, users in named.items())
        yield warn(what, f"the workloads use different ConfigMaps: {detail}", place.apply())


def _find_problem(found: Inventory, word: str, name: str, *, users: Sequence[str], place: Place) -> Finding | None:
    """Report a ConfigMap that cannot be read, or does not exist and so stops its users; None if it can be read."""
    if problem := found.parts["ConfigMap"].problem:
        return unknown(f"{word} {name}", problem, place)
    if found.is_absent("ConfigMap", name):
        detail = f"the ConfigMap does not exist, and {', '.join(users)} cannot start without it"
        note = "after you add a configMapGenerator for it" if word == "policy" else ""
        return fail(f"{word} {name}", detail, place.apply(note))
    return None


def _overrides(found: Inventory, place: Place) -> Iterator[Finding]:
    """Report variables in a workload's own `env`: they take precedence over the ConfigMap, and doctor ignores them."""
    for _, workload in found.workloads():
        names = set(environment_of(workload)) - ({"TTL_KINDS"} if name_of(workload) in _WITHOUT_KINDS else set())
        if own := sorted(name for name in names if name.startswith("TTL_") and not name.startswith(_OF_ONE)):
            detail = f"{', '.join(own)} in its own env, which takes precedence over the ConfigMap"
            yield warn(f"settings of {name_of(workload)}", detail, place.apply())


def _check_values(config: Obj, kinds: Catalogue, findings: list[Finding], *, place: Place) -> Configured:
    what = f"settings {name_of(config)}"
    fix = place.apply("after you fix the value in it")
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
        findings.append(warn("dry run", detail, place.apply(settings={"TTL_DRY_RUN": "false"})))
    elif settings.home_namespace != place.namespace:
        actual = settings.home_namespace or "no namespace"
        detail = f"TTL_NAMESPACE: expected {place.namespace} for the Events about this installation, got {actual}"
        findings.append(warn("settings", detail, place.apply(settings={"TTL_NAMESPACE": place.namespace})))
    return Configured(tuple(findings), settings, rules)


def check_version(found: Inventory, version: str, place: Place) -> Iterator[Finding]:
    """Check that all workloads and this program have the same version."""
    versions = {str(labels_of(obj).get(_VERSION)) for _, obj in found.workloads() if _VERSION in labels_of(obj)}
    if len(versions) > 1:
        detail = f"workloads of several versions run: {', '.join(sorted(versions))}"
        yield warn("version", detail, place.apply())
    elif versions and versions != {version}:
        detail = f"{versions.pop()} is installed, and this program is {version}: some checks may not apply"
        yield warn("version", detail, place.apply("or run doctor of the installed version"))
    elif versions:
        yield ok("version", version)


def read_known(found: Inventory, place: Place) -> Known:
    """Read the shipped rules and those of the ConfigMap that is mounted at TTL_KINDS_DIR."""
    named, shipped = find_rules(found), read_catalogue()
    if not named:
        return Known(shipped)
    name = most_used(named)
    what, findings = f"rules {name}", list(_differ("rules", named, place))
    if problem := _find_problem(found, "rules", name, users=named[name], place=place):
        return Known(shipped, findings=(*findings, problem))
    try:
        files = read_rules(found, name)
    except TtlError as error:
        detail = f"no new process can start with these rules: {error}"
        return Known(shipped, findings=(*findings, fail(what, detail, place.apply("after you fix the rule in it"))))
    mounted = [one for one in files if not one.is_shipped]
    names = (f"{one.rule.name}{' (replaces the shipped rule)' if one.replaces else ''}" for one in mounted)
    findings.append(ok(what, ", ".join(names) or "none"))
    return Known(as_catalogue(files), frozenset(one.rule.name for one in mounted), tuple(findings))


def check_policies(found: Inventory, kinds: Catalogue, place: Place) -> Iterator[Finding]:
    """Check the ConfigMaps that TTL_POLICY points to; no finding if no workload sets TTL_POLICY."""
    named = find_policies(found)
    yield from _differ("policy", {name: users for (name, _), users in named.items()}, place)
    for (name, key), users in named.items():
        what, fix = f"policy {name}", place.command("edit", "configmap", name)
        if problem := _find_problem(found, "policy", name, users=users, place=place):
            yield problem
            continue
        text = read_policy_text(found, name, key)
        if text is None:
            detail = f"expected {key} in its data, got none; {', '.join(users)} cannot start without it"
            yield fail(what, detail, fix)
            continue
        try:
            policy = parse_policy(text, kinds, name=key)
        except TtlError as error:
            yield fail(what, f"running processes keep the last valid policy; no new process can start: {error}", fix)
        else:
            yield ok(what, f"rules: {', '.join(rule.name for rule in policy.rules) or 'none'}")
