"""Check that the guard rails are in force as a whole, if a part of them is applied."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from shared.adapters.config.yaml_file import SafeLoader
from shared.doctor.findings import Finding, ok, unknown, warn
from shared.installation.guard_status import GROUP, PLURALS
from shared.installation.inventory import Obj, name_of, read_list
from shared.installation.place import Place

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands do not need it
    from shared.adapters.kubernetes.cluster import KubernetesCluster

COMPONENT = "guardrails"
"""The component with the guard rails, and the value of their label."""

_WHAT = "guard rails"
_OURS = f"app.kubernetes.io/component={COMPONENT}"
_POLICY, _BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
_TEXTS = {
    "missing": "not on the cluster, so what they reject is admitted:",
    "without a binding": "a policy without its binding rejects nothing:",
    "of another version": "differ from the guard rails of this version:",
}
_MANIFESTS = Path(__file__).parents[2] / "knative" / "components" / COMPONENT
_WHO_MAY_HOLD = ("ttl-after-finished-holds", "spec", "variables", 0, "expression")
"""The value that an overlay may change, as docs/explanation/guard-rails.md says."""


async def check_guardrails(cluster: "KubernetesCluster", place: Place) -> list[Finding]:
    """Compare the guard rails on a cluster with those of this version; nothing if none is applied.

    Args:
        cluster: The cluster, with the operator's credentials.
        place: The installation.
    """
    shipped = list(_shipped())
    listed = [await read_list(cluster, f"/apis/{GROUP}/{one}", labelSelector=_OURS) for one in PLURALS]
    if problem := listed[0].problem or listed[1].problem:
        return [unknown(_WHAT, problem, place)] if shipped else []
    kinds = zip((_POLICY, _BINDING), listed, strict=True)
    found = {(kind, name_of(one)): one for kind, some in kinds for one in some.items}
    if not found or not shipped:
        return []
    names: defaultdict[str, list[str]] = defaultdict(list)
    for policy in (one for one in shipped if one["kind"] == _POLICY):
        name = name_of(policy)
        binding = next(one for one in shipped if one["kind"] == _BINDING and one["spec"]["policyName"] == name)
        live, bound = found.get((_POLICY, name)), found.get((_BINDING, name_of(binding)))
        if live is None:
            names["missing"].append(name)
        elif bound is None:
            names["without a binding"].append(name)
        elif not (_is_applied(policy, live) and _is_applied(binding, bound)):
            names["of another version"].append(name)
    if not names:
        return [ok(_WHAT, ", ".join(name for kind, name in found if kind == _POLICY))]
    fix = place.apply_component(COMPONENT)
    return [warn(f"{_WHAT} {state}", f"{_TEXTS[state]} {', '.join(some)}", fix) for state, some in names.items()]


def _shipped() -> Iterator[Obj]:
    """Yield the policies and bindings of this version; none if its manifests are not beside this program."""
    for path in sorted(_MANIFESTS.glob("*.yaml")):
        if path.name != "kustomization.yaml":
            yield from yaml.load_all(path.read_text(), SafeLoader)


def _is_applied(shipped: Obj, live: Obj) -> bool:
    """Return whether an object has the spec of the shipped one, beside what the API server adds to it."""
    return _has(shipped["spec"], live.get("spec"), (name_of(shipped), "spec"))


def _has(wanted: Any, got: Any, path: tuple[str | int, ...]) -> bool:
    if path == _WHO_MAY_HOLD:
        return isinstance(got, str)
    if isinstance(wanted, dict):
        return isinstance(got, dict) and all(_has(value, got.get(key), (*path, key)) for key, value in wanted.items())
    if isinstance(wanted, list):
        parts = isinstance(got, list) and len(wanted) == len(got)
        return parts and all(_has(a, b, (*path, place)) for place, (a, b) in enumerate(zip(wanted, got, strict=True)))
    return bool(wanted == got)
