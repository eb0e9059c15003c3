"""The policy that is mounted: whether what the functions would read is one."""

from collections.abc import Iterator

from shared.adapters.policyfile import parse_policy
from shared.core.kinds import Catalogue
from shared.core.objects import get_in
from shared.core.policy import NO_POLICY, Policy
from shared.doctor.findings import Finding, Place, fail, ok, unknown, warn
from shared.doctor.reading import Inventory, Obj, environment_of, name_of, volume_at
from shared.errors import TtlError

READ = ("Deployment", "StatefulSet", "Knative Service", "ContainerSource", "ConfigMap")
"""What has to be read to know which policy is in force."""


def check_policies(found: Inventory, kinds: Catalogue, place: Place, overlay: str) -> Iterator[Finding]:
    """The ConfigMaps that TTL_POLICY leads to; nothing where no workload names one."""
    named = _find_mounted(found)
    if len({name for name, _ in named}) > 1:
        detail = "; ".join(f"{', '.join(users)} by {name}" for (name, _), users in named.items())
        yield warn("policy", f"not all decide by the same: {detail}", place.apply(overlay))
    for (name, key), users in named.items():
        if problem := found.parts["ConfigMap"].problem:
            yield unknown(f"policy {name}", problem, place)
        elif found.is_absent("ConfigMap", name):
            detail = f"the ConfigMap is not there, and {', '.join(users)} cannot start without it"
            yield fail(f"policy {name}", detail, place.apply(overlay, "with a configMapGenerator that makes it"))
        else:
            yield _check(found, name, key, users, kinds, place)


def read_mounted(found: Inventory, kinds: Catalogue, namespace: str) -> tuple[str, Policy]:
    """What the installation calls its policy, and the policy; an empty name where its workloads name no file.

    Args:
        found: The installation.
        kinds: All that it knows.
        namespace: Where it is.

    Raises:
        TtlError: It cannot be read, or what its workloads name is no policy, or they differ.
    """
    named = list(_find_mounted(found))
    if not named:
        return "", NO_POLICY
    if len(named) > 1:
        raise TtlError(f"not all decide by the same: expected one policy, got {', '.join(name for name, _ in named)}")
    name, key = named[0]
    called = f"ConfigMap {namespace}/{name}"
    if problem := found.parts["ConfigMap"].problem:
        raise TtlError(f"{called}: {problem}")
    text = _text_of(found, name, key)
    if text is None:
        raise TtlError(f"{called}: expected {key} in it, got none")
    return called, parse_policy(text, kinds, name=f"{called}, {key}")


def _find_mounted(found: Inventory) -> dict[tuple[str, str], list[str]]:
    """The ConfigMaps and keys that TTL_POLICY leads to, and which workloads say so."""
    named: dict[tuple[str, str], list[str]] = {}
    for workload in (*(one for _, one in found.workloads()), *found.all("ContainerSource")):
        if mounted := _mounted(workload):
            named.setdefault(mounted, []).append(name_of(workload))
    return named


def _text_of(found: Inventory, name: str, key: str) -> str | None:
    data = get_in(found.get("ConfigMap", name) or {}, "data")
    text = data.get(key) if isinstance(data, dict) else None
    return text if isinstance(text, str) else None


def _check(  # noqa: PLR0913, PLR0917 - what was found, and where it goes
    found: Inventory, name: str, key: str, users: list[str], kinds: Catalogue, place: Place
) -> Finding:
    what, mend = f"policy {name}", place.command("edit", "configmap", name)
    text = _text_of(found, name, key)
    if text is None:
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
