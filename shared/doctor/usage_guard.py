"""Check that the guards for Secrets and ConfigMaps are in force, if a policy rule has unused objects deleted."""

from collections import defaultdict
from typing import TYPE_CHECKING

from shared.core.policy.policy import Policy
from shared.core.policy.unused import USAGE_KINDS
from shared.doctor.findings import Finding, ok, unknown, warn
from shared.doctor.server import UPGRADE, list_served
from shared.errors import TtlError
from shared.installation.guard_status import GROUP, PLURALS, GuardState, compare_guard
from shared.installation.inventory import Obj, name_of, read_list
from shared.installation.place import Place
from shared.installation.usage_guard import usage_guards

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands do not need it
    from shared.adapters.kubernetes.cluster import KubernetesCluster

_WHAT = "usage guard"
_OURS = "app.kubernetes.io/component in (delete-guard,mark-guard,attestation-guard)"
_TEXTS = {
    GuardState.MISSING: "without it, the API server lets our accounts delete or change a Secret or a ConfigMap in use:",
    GuardState.STALE: "made by another version, and may reject less:",
    GuardState.OTHERS: "binds the accounts of another namespace, not those of this one:",
    GuardState.ALTERED: "differs from the guard of this version, and may reject less:",
}


async def check_usage_guards(cluster: "KubernetesCluster", policy: Policy, place: Place) -> list[Finding]:
    """Compare the guards on a cluster with those that this version makes; nothing if the policy only audits.

    Args:
        cluster: The cluster, with the operator's credentials.
        policy: The installed policy.
        place: The installation.
    """
    if all(rule.unused is None or rule.audits_unused for rule in policy.rules):
        return []
    try:
        if not set(PLURALS) <= await list_served(cluster, GROUP):
            detail = "the API server does not serve ValidatingAdmissionPolicies, so it cannot reject a DELETE itself"
            return [warn(_WHAT, detail, UPGRADE)]
    except TtlError as error:
        return [unknown(_WHAT, str(error), place)]
    listed = [await read_list(cluster, f"/apis/{GROUP}/{one}", labelSelector=_OURS) for one in PLURALS]
    if problem := listed[0].problem or listed[1].problem:
        return [unknown(_WHAT, problem, place)]
    policies, bindings = ({name_of(one): one for one in some.items} for some in listed)
    states: defaultdict[GuardState, list[str]] = defaultdict(list)
    for wanted, bound in _pairs(place.namespace):
        name = name_of(wanted)
        states[_compare((wanted, bound), policies.get(name), bindings.get(name), place)].append(name)
    return [_describe(state, names, place) for state, names in states.items()]


def _pairs(namespace: str) -> list[tuple[Obj, Obj]]:
    """Each policy of this version, with its binding."""
    made = [one.body for one in usage_guards(namespace)]
    return [*zip(made[::2], made[1::2], strict=True)]


def _compare(made: tuple[Obj, Obj], policy: Obj | None, binding: Obj | None, place: Place) -> GuardState:
    return compare_guard(USAGE_KINDS.rules, place.namespace, policy, binding, make=lambda _rules, _namespace: made)


def _describe(state: GuardState, names: list[str], place: Place) -> Finding:
    if state is GuardState.CURRENT:
        return ok(_WHAT, f"{', '.join(names)}; not checked by the API server: references, the TTL and the policy")
    fix = place.apply(components=["usage-guard"])
    return warn(f"{_WHAT} {state}", f"{_TEXTS[state]} {', '.join(names)}", fix)
