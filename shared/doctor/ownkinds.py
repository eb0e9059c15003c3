"""The kind rules that are mounted beside the shipped ones: whether what the functions would read are rules."""

from dataclasses import dataclass

from shared.adapters.config.kind_files import read_rule_files
from shared.core.kinds.catalogue import Catalogue
from shared.doctor.findings import Finding, Place, fail, ok, unknown, warn
from shared.errors import TtlError
from shared.installation.inventory import Inventory
from shared.installation.mounted import as_catalogue, find_rules, most_used, read_rules


@dataclass(frozen=True, slots=True)
class Known:
    """All kinds that the installation knows.

    Attributes:
        catalogue: The shipped rules, and those that are mounted, as far as they can be read.
        own: The names of the kinds whose rules are mounted.
        findings: About the mounted ones; none where there are none.
    """

    catalogue: Catalogue
    own: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()


def read_known(found: Inventory, place: Place, overlay: str) -> Known:
    """The shipped rules and those of the ConfigMap that TTL_KINDS_DIR leads to."""
    named = find_rules(found)
    shipped = read_rule_files()
    if not named:
        return Known(as_catalogue(shipped))
    name = most_used(named)
    fix = place.apply(overlay, "with that mended")
    findings = []
    if len(named) > 1:
        detail = "; ".join(f"{', '.join(users)} by {one}" for one, users in named.items())
        findings.append(warn("rules", f"not all know the same kinds: {detail}", place.apply(overlay)))
    if problem := found.parts["ConfigMap"].problem:
        return Known(as_catalogue(shipped), findings=(*findings, unknown(f"rules {name}", problem, place)))
    if found.is_absent("ConfigMap", name):
        detail = f"the ConfigMap is not there, and {', '.join(named[name])} cannot start without it"
        return Known(as_catalogue(shipped), findings=(*findings, fail(f"rules {name}", detail, place.apply(overlay))))
    try:
        files = read_rules(found, name)
    except TtlError as error:
        detail = f"nothing starts anew with them: {error}"
        return Known(as_catalogue(shipped), findings=(*findings, fail(f"rules {name}", detail, fix)))
    own = [one for one in files if not one.is_shipped]
    said = (f"{one.rule.name}{' in place of the shipped one' if one.replaces else ''}" for one in own)
    findings.append(ok(f"rules {name}", ", ".join(said) or "none"))
    return Known(as_catalogue(files), frozenset(one.rule.name for one in own), tuple(findings))
