"""Check the policy that is mounted into the workloads."""

from collections.abc import Iterator

from shared.adapters.config.policy_file import parse_policy
from shared.core.kinds.catalogue import Catalogue
from shared.doctor.findings import Finding, fail, ok, unknown, warn
from shared.errors import TtlError
from shared.installation.inventory import Inventory
from shared.installation.mounted import find_policies, read_policy_text
from shared.installation.place import Place


def check_policies(found: Inventory, kinds: Catalogue, place: Place, overlay: str) -> Iterator[Finding]:
    """Check the ConfigMaps that TTL_POLICY points to; no finding if no workload sets TTL_POLICY."""
    named = find_policies(found)
    if len({name for name, _ in named}) > 1:
        detail = "; ".join(f"{name}: {', '.join(users)}" for (name, _), users in named.items())
        yield warn("policy", f"the workloads use different ConfigMaps: {detail}", place.apply(overlay))
    for (name, key), users in named.items():
        if problem := found.parts["ConfigMap"].problem:
            yield unknown(f"policy {name}", problem, place)
        elif found.is_absent("ConfigMap", name):
            detail = f"the ConfigMap does not exist, and {', '.join(users)} cannot start without it"
            yield fail(f"policy {name}", detail, place.apply(overlay, "after you add a configMapGenerator for it"))
        else:
            yield _check(found, name, key, users, kinds, place)


def _check(  # noqa: PLR0913, PLR0917 - the ConfigMap's key and users, and what the check needs
    found: Inventory, name: str, key: str, users: list[str], kinds: Catalogue, place: Place
) -> Finding:
    what, fix = f"policy {name}", place.command("edit", "configmap", name)
    text = read_policy_text(found, name, key)
    if text is None:
        return fail(what, f"expected {key} in its data, got none; {', '.join(users)} cannot start without it", fix)
    try:
        policy = parse_policy(text, kinds, name=key)
    except TtlError as error:
        return fail(what, f"running processes keep the last valid policy; no new process can start: {error}", fix)
    return ok(what, f"rules: {', '.join(rule.name for rule in policy.rules) or 'none'}")
