"""Check the kind rules that are mounted in addition to the shipped rules."""

from dataclasses import dataclass

from shared.adapters.config.kind_files import read_rule_files
from shared.core.kinds.catalogue import Catalogue
from shared.doctor.findings import Finding, fail, ok, unknown, warn
from shared.errors import TtlError
from shared.installation.inventory import Inventory
from shared.installation.mounted import as_catalogue, find_rules, most_used, read_rules
from shared.installation.place import Place


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


def read_known(found: Inventory, place: Place, overlay: str) -> Known:
    """Read the shipped rules and those of the ConfigMap that is mounted at TTL_KINDS_DIR."""
    named = find_rules(found)
    shipped = read_rule_files()
    if not named:
        return Known(as_catalogue(shipped))
    name = most_used(named)
    fix = place.apply(overlay, "after you fix the rule in it")
    findings = []
    if len(named) > 1:
        detail = "; ".join(f"{one}: {', '.join(users)}" for one, users in named.items())
        findings.append(warn("rules", f"the workloads use different ConfigMaps: {detail}", place.apply(overlay)))
    if problem := found.parts["ConfigMap"].problem:
        return Known(as_catalogue(shipped), findings=(*findings, unknown(f"rules {name}", problem, place)))
    if found.is_absent("ConfigMap", name):
        detail = f"the ConfigMap does not exist, and {', '.join(named[name])} cannot start without it"
        return Known(as_catalogue(shipped), findings=(*findings, fail(f"rules {name}", detail, place.apply(overlay))))
    try:
        files = read_rules(found, name)
    except TtlError as error:
        detail = f"no new process can start with these rules: {error}"
        return Known(as_catalogue(shipped), findings=(*findings, fail(f"rules {name}", detail, fix)))
    mounted = [one for one in files if not one.is_shipped]
    names = (f"{one.rule.name}{' (replaces the shipped rule)' if one.replaces else ''}" for one in mounted)
    findings.append(ok(f"rules {name}", ", ".join(names) or "none"))
    return Known(as_catalogue(files), frozenset(one.rule.name for one in mounted), tuple(findings))
