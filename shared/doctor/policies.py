"""The policy that is mounted: whether what the functions would read is one."""

from collections.abc import Iterator

from shared.adapters.policyfile import parse_policy
from shared.core.kinds import Catalogue
from shared.core.objects import get_in
from shared.doctor.findings import Finding, Place, fail, ok, warn
from shared.doctor.reading import Inventory, Obj, environment_of, name_of, volume_at
from shared.errors import TtlError


def check_policies(found: Inventory, kinds: Catalogue, place: Place, overlay: str) -> Iterator[Finding]:
    """The ConfigMaps that TTL_POLICY leads to; nothing where no workload names one."""
    named: dict[tuple[str, str], list[str]] = {}
    for workload in (*(one for _, one in found.workloads()), *found.all("ContainerSource")):
        if mounted := _mounted(workload):
            named.setdefault(mounted, []).append(name_of(workload))
    if len({name for name, _ in named}) > 1:
        detail = "; ".join(f"{', '.join(users)} by {name}" for (name, _), users in named.items())
        yield warn("policy", f"not all decide by the same: {detail}", place.apply(overlay))
    for (name, key), users in named.items():
        yield _check(found, name, key, users, kinds, place)


def _check(  # noqa: PLR0913, PLR0917 - what was found, and where it goes
    found: Inventory, name: str, key: str, users: list[str], kinds: Catalogue, place: Place
) -> Finding:
    what, mend = f"policy {name}", place.command("edit", "configmap", name)
    text = get_in(found.get("ConfigMap", name) or {}, "data")
    text = text.get(key) if isinstance(text, dict) else None
    if not isinstance(text, str):
        return fail(what, f"there is no {key} in it, and {', '.join(users)} cannot start without", mend)
    try:
        policy = parse_policy(text, kinds, name=key)
    except TtlError as error:
        return fail(what, f"the last good one stays in force, and nothing starts anew: {error}", mend)
    return ok(what, f"rules: {', '.join(rule.name for rule in policy.rules) or 'none'}")


def _mounted(workload: Obj) -> tuple[str, str] | None:
    """The ConfigMap and its key that a workload's TTL_POLICY leads to."""
    folder, _, key = environment_of(workload).get("TTL_POLICY", "").rpartition("/")
    name = volume_at(workload, folder)
    return (name, key) if name else None
