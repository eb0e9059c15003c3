"""Check the rights to mark and delete Secrets and ConfigMaps, in the namespaces in which a policy needs them."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import islice

from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.core.decision.namespaces import Namespace
from shared.core.policy.policy import Policy
from shared.core.policy.policy_rule import PolicyRule
from shared.core.policy.usage import USAGE_KINDS
from shared.core.usage.passes import collected_by
from shared.doctor.findings import Finding, fail, ok, unknown
from shared.doctor.rights import REVIEWS_IN_FLIGHT_MAX, is_allowed
from shared.errors import TtlError
from shared.evaluation.namespaces import Namespaces
from shared.installation.place import Place
from shared.installation.rbac import OBJECTS_ROLE, Right, object_needs

NAMESPACES_ASKED_MAX = 100
"""The most namespaces of which each right is checked, if it is not granted in all namespaces."""

_NAMES_SHOWN = 5
_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


async def check_object_rights(
    cluster: KubernetesCluster, accounts: Sequence[str], policy: Policy, place: Place
) -> list[Finding]:
    """Check for each account that it may write to the objects that the rules with `unused` take, and delete them.

    Args:
        cluster: The cluster, with the operator's credentials.
        accounts: The ServiceAccounts that mark and delete.
        policy: The installed policy.
        place: The installation.
    """
    try:
        needed = await _find_needed(cluster, policy)
    except TtlError as error:
        return [unknown("rights on unused objects", str(error), place)]
    return [await _check_account(cluster, account, needed, place) for account in accounts if needed]


async def _find_needed(cluster: KubernetesCluster, policy: Policy) -> dict[Right, set[str]]:
    """Return the needed rights, each with its namespaces."""
    rules = [(_needs_of(rule), collected_by([rule])) for rule in policy.rules if rule.unused and not rule.audit]
    needed: defaultdict[Right, set[str]] = defaultdict(set)

    def note(namespace: Namespace) -> bool:
        rights = {right for some, is_collected in rules if is_collected(namespace) for right in some}
        for right in rights:
            needed[right].add(namespace.ref.name)
        return bool(rights)

    await Namespaces(cluster).find_names(note)
    return needed


def _needs_of(rule: PolicyRule) -> frozenset[Right]:
    """The rights that one rule with `unused` needs."""
    return object_needs(filter(rule.match.names, USAGE_KINDS.rules), is_audit=rule.audits_unused)


async def _check_account(
    cluster: KubernetesCluster, account: str, needed: dict[Right, set[str]], place: Place
) -> Finding:
    limit = asyncio.Semaphore(REVIEWS_IN_FLIGHT_MAX)

    async def ask(right: Right) -> bool:
        async with limit:
            return await is_allowed(cluster, right, namespace=place.namespace, account=account)

    async def find_missing(rights: Collection[Right]) -> list[Right]:
        allowed = await asyncio.gather(*map(ask, rights))
        return [right for right, is_granted in zip(rights, allowed, strict=True) if not is_granted]

    what = f"rights of {account} on unused objects"
    try:
        not_everywhere = await find_missing(sorted(needed))
        missing = await find_missing(
            [
                replace(right, namespace=name)
                for right in not_everywhere
                for name in islice(sorted(needed[right]), NAMESPACES_ASKED_MAX)
            ]
        )
        if not missing:
            return ok(what, ", ".join(sorted({f"{right.verb} {right.resource}" for right in needed})))
        has_role = await cluster.request("GET", f"{_ROLES}/{OBJECTS_ROLE}", missing_ok=True)
    except TtlError as error:
        return unknown(what, str(error), place)
    names = sorted({right.namespace for right in missing})
    verbs = ", ".join(sorted({f"{right.verb} {right.resource}" for right in missing}))
    detail = f"may not {verbs} in {_some(names)}: unused objects are kept there"
    fix = _grant(account, names, place) if has_role else place.apply(components=["usage-rights"])
    return fail(what, detail, fix)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return f"namespace{'s' * (len(names) > 1)} {', '.join(names[:_NAMES_SHOWN])}{more}"


def _grant(account: str, names: Sequence[str], place: Place) -> str:
    """Return the commands that grant the role in the first of some namespaces."""
    return " && ".join(
        f"{place.kubectl} -n {name} create rolebinding ttl-after-finished-{account} --clusterrole={OBJECTS_ROLE} "
        f"--serviceaccount={place.namespace}:{account}"
        for name in names[:_NAMES_SHOWN]
    )
