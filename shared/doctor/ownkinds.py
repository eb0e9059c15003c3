"""The kind rules that are mounted beside the shipped ones: whether what the functions would read are rules."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from shared.adapters.catalogue import RuleFile, read_rule_files
from shared.core.kinds import Catalogue
from shared.core.objects import get_in
from shared.doctor.findings import Finding, Place, fail, ok, unknown, warn
from shared.doctor.reading import Inventory, environment_of, name_of, volume_at
from shared.errors import TtlError


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
    named: dict[str, list[str]] = {}
    for workload in (*(one for _, one in found.workloads()), *found.all("ContainerSource")):
        if name := volume_at(workload, environment_of(workload).get("TTL_KINDS_DIR", "")):
            named.setdefault(name, []).append(name_of(workload))
    shipped = read_rule_files()
    if not named:
        return Known(_catalogue(shipped))
    name = max(named, key=lambda one: len(named[one]))
    mend = place.apply(overlay, "with that mended")
    findings = []
    if len(named) > 1:
        detail = "; ".join(f"{', '.join(users)} by {one}" for one, users in named.items())
        findings.append(warn("rules", f"not all know the same kinds: {detail}", place.apply(overlay)))
    if problem := found.parts["ConfigMap"].problem:
        return Known(_catalogue(shipped), findings=(*findings, unknown(f"rules {name}", problem, place)))
    if found.is_absent("ConfigMap", name):
        detail = f"the ConfigMap is not there, and {', '.join(named[name])} cannot start without it"
        return Known(_catalogue(shipped), findings=(*findings, fail(f"rules {name}", detail, place.apply(overlay))))
    try:
        files = _read(get_in(found.get("ConfigMap", name), "data"))
    except TtlError as error:
        detail = f"nothing starts anew with them: {error}"
        return Known(_catalogue(shipped), findings=(*findings, fail(f"rules {name}", detail, mend)))
    own = [one for one in files if not one.is_shipped]
    said = (f"{one.rule.name}{' in place of the shipped one' if one.replaces else ''}" for one in own)
    findings.append(ok(f"rules {name}", ", ".join(said) or "none"))
    return Known(_catalogue(files), frozenset(one.rule.name for one in own), tuple(findings))


def _read(data: object) -> list[RuleFile]:
    """What a function makes of the ConfigMap: each key a file of a directory."""
    with TemporaryDirectory() as folder:
        for key, text in data.items() if isinstance(data, dict) else ():
            Path(folder, Path(key).name).write_text(str(text))
        return read_rule_files(Path(folder))


def _catalogue(files: list[RuleFile]) -> Catalogue:
    return Catalogue(tuple(one.rule for one in files))
