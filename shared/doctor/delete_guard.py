"""Check that the delete guard and the stop guard of each enabled kind are in force, and the guard rails as a whole."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from shared.adapters.config.yaml_file import SafeLoader
from shared.core.kinds.rule import Catalogue, KindRule
from shared.doctor.findings import Finding, ok, unknown, warn
from shared.doctor.rights import Account
from shared.doctor.server import UPGRADE, list_served
from shared.errors import TtlError
from shared.installation.guard_status import GROUP, OURS, PLURALS, GuardState, MakeGuard, compare_guard
from shared.installation.guards import (
    ACCOUNTS,
    STOP_NOT_CHECKED,
    can_stop,
    guard,
    guard_name,
    not_checked,
    stop_guard,
    stop_guard_name,
)
from shared.installation.inventory import Obj, name_of, read_list
from shared.installation.place import Place
from shared.installation.rbac import WRITERS

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands do not need it
    from shared.adapters.kubernetes.cluster import KubernetesCluster


@dataclass(frozen=True, slots=True)
class _Type:
    """A type of guard.

    Attributes:
        name: The name of the check.
        name_of: Returns the name of the guard of a kind.
        make: Makes the guard of a kind.
        unguarded: What the API server lets our accounts do without it.
        not_checked: What the API server does not check, of the rules of the kinds.
    """

    name: str
    name_of: Callable[[KindRule], str]
    make: MakeGuard
    unguarded: str
    not_checked: Callable[[Sequence[KindRule]], str]

    def describe(self, state: GuardState) -> str:
        """Describe what is wrong with a guard."""
        return {
            GuardState.MISSING: f"without it, the API server lets our accounts {self.unguarded}:",
            GuardState.STALE: "made from another version of the rule: it may reject or allow the wrong objects:",
            GuardState.OTHERS: "binds the accounts of another namespace, not those of this one:",
        }.get(state, "differs from the guard of this version, and may reject less:")


_DELETE_GUARD = _Type("delete guard", guard_name, guard, "delete an unfinished or held object", not_checked)
_STOP_GUARD = _Type(
    "stop guard",
    stop_guard_name,
    stop_guard,
    "stop a held object, or change more than a stop does",
    lambda _: STOP_NOT_CHECKED,
)


async def check_guard(
    cluster: "KubernetesCluster",
    rules: Iterable[KindRule],
    *,
    known: Catalogue,
    accounts: Iterable[Account],
    place: Place,
) -> list[Finding]:
    """Check the guards of all enabled kinds.

    Args:
        cluster: The cluster, with the operator's credentials.
        rules: The rules of the enabled kinds to check.
        known: All rules of the installation: a kind's guard is made from all rules of the kind.
        accounts: The accounts of the workloads and sources.
        place: The installation.
    """
    kinds = {rule.name: known.of(rule.group, rule.kind) for rule in rules}
    writers = [account for account in accounts if account.role in WRITERS]
    if not kinds or not writers:  # on Cloud Run the functions use Google accounts
        return []
    try:
        if not set(PLURALS) <= await list_served(cluster, GROUP):
            detail = "the API server does not serve ValidatingAdmissionPolicies, so it cannot reject a DELETE itself"
            return [warn("delete guard", detail, UPGRADE)]
    except TtlError as error:
        return [unknown("delete guard", str(error), place)]
    policies, bindings = [await read_list(cluster, f"/apis/{GROUP}/{one}", labelSelector=OURS) for one in PLURALS]
    if problem := policies.problem or bindings.problem:
        return [unknown("delete guard", problem, place)]
    found, bound = ({name_of(one): one for one in listed.items} for listed in (policies, bindings))
    findings: list[Finding] = []
    stopped = {name: of_kind for name, of_kind in kinds.items() if can_stop(of_kind)}
    for one, guarded in ((_DELETE_GUARD, kinds), (_STOP_GUARD, stopped)):
        states: defaultdict[GuardState, list[str]] = defaultdict(list)
        for name, of_kind in guarded.items():
            by = one.name_of(of_kind[0])
            state = compare_guard(of_kind, place.namespace, found.get(by), bound.get(by), make=one.make)
            states[state].append(name)
        findings += _findings(one, states, guarded, place)
    return [*findings, *_unbound(writers, list(kinds), place)]


def _findings(
    one: _Type, states: Mapping[GuardState, Sequence[str]], kinds: Mapping[str, Sequence[KindRule]], place: Place
) -> Iterator[Finding]:
    for state, names in states.items():
        if state is GuardState.CURRENT:
            less = one.not_checked([rule for name in names for rule in kinds[name]])
            yield ok(one.name, f"{', '.join(names)}; not checked by the API server: {less}")
        else:
            yield warn(f"{one.name} {state}", f"{one.describe(state)} {', '.join(names)}", place.guard(names))


def _unbound(accounts: Iterable[Account], names: Sequence[str], place: Place) -> Iterator[Finding]:
    """Report accounts that delete or stop, but that no guard binds because they have other names."""
    for account in accounts:
        if account.name not in ACCOUNTS:
            user = f"system:serviceaccount:{place.namespace}:{account.name}"
            detail = f"the guard does not bind {user}, and that account may write"
            yield warn(f"delete guard of {account.name}", detail, place.guard(names, user))


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
