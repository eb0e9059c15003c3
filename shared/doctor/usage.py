"""Check the deletion of unused Secrets and ConfigMaps: the rights to list all carriers, and the rules of the policy."""

import asyncio
from collections.abc import Iterator, Sequence

from shared.adapters.config.carrier_files import read_carriers
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.core.objects import get_text
from shared.core.policy.policy import Policy
from shared.core.ttl.durations import format_duration
from shared.doctor.findings import Finding, fail, ok, unknown, warn
from shared.doctor.rights import REVIEWS_IN_FLIGHT_MAX, is_allowed
from shared.errors import TtlError
from shared.evaluation.usage import UsageReader
from shared.installation.inventory import Inventory, name_of
from shared.installation.place import Place
from shared.installation.rbac import Right
from shared.ports import ListableKind

WORKLOADS = ("usage", "standalone")
"""The workloads that delete unused objects."""

_NAMES_SHOWN = 5


async def check_usage(cluster: KubernetesCluster, found: Inventory, policy: Policy, place: Place) -> list[Finding]:
    """Check what the rules with `unused` of a policy need; nothing if it has none.

    Args:
        cluster: The cluster, with the operator's credentials.
        found: The inventory of the installation.
        policy: The installed policy.
        place: The installation.
    """
    if not any(rule.unused for rule in policy.rules):
        return []
    findings = list(_check_rules(policy, place))
    accounts = sorted(_accounts(found))
    if not accounts:
        detail = f"the policy has rules with unused, and no workload {' or '.join(WORKLOADS)} acts on them"
        return [*findings, warn("unused objects", detail, place.apply())]
    try:
        served = await cluster.list_kinds()
    except TtlError as error:
        return [*findings, unknown("carriers", str(error), place)]
    if served.problem:
        command = f"{place.kubectl} get apiservices"
        findings.append(warn("carriers", f"{served.problem}; nothing unused is deleted until then", command))
    kinds = UsageReader(cluster, read_carriers()).find_carriers(served)
    return findings + [await _check_account(cluster, account, kinds, place) for account in accounts]


def _check_rules(policy: Policy, place: Place) -> Iterator[Finding]:
    for rule in policy.rules:
        if rule.unused is None:
            continue
        what, ttl = f"policy rule {rule.name or 'with unused'}", format_duration(rule.unused.ttl)
        if rule.unused.audit:
            yield ok(what, f"audit only: unused objects are marked, and not deleted after {ttl}")
        else:
            detail = f"deletes what is unused for {ttl}, without audit: check what it would delete"
            yield warn(what, detail, f"{place.kubectl} ttl plan    # or set audit: true in the rule for the first week")


def _accounts(found: Inventory) -> set[str]:
    """The ServiceAccounts of the workloads that delete unused objects."""
    ours = (one for _, one in found.workloads() if name_of(one) in WORKLOADS)
    return {get_text(one, "spec.template.spec.serviceAccountName") or "default" for one in ours}


async def _check_account(
    cluster: KubernetesCluster, account: str, kinds: Sequence[ListableKind], place: Place
) -> Finding:
    """Check the right to list each carrier: without one of them, it is unknown what is unused."""
    limit = asyncio.Semaphore(REVIEWS_IN_FLIGHT_MAX)

    async def ask(kind: ListableKind) -> bool:
        async with limit:
            right = Right(kind.group, kind.plural, "list")
            return await is_allowed(cluster, right, namespace=place.namespace, account=account)

    what = f"rights of {account} on carriers"
    try:
        allowed = await asyncio.gather(*map(ask, kinds))
    except TtlError as error:
        return unknown(what, str(error), place)
    missing = [kind.name for kind, is_listed in zip(kinds, allowed, strict=True) if not is_listed]
    if not missing:
        return ok(what, f"list on all {len(kinds)} kinds that may refer to Secrets and ConfigMaps")
    some = ", ".join(missing[:_NAMES_SHOWN])
    more = f" and {len(missing) - _NAMES_SHOWN} more" if len(missing) > _NAMES_SHOWN else ""
    detail = f"may not list {some}{more}: it is unknown what is unused, so nothing unused is deleted"
    return fail(what, detail, _grant(account, missing, place))


def _grant(account: str, missing: Sequence[str], place: Place) -> str:
    """Return the command that grants the right to list kinds."""
    name = f"ttl-after-finished-{account}-carriers"
    return (
        f"{place.kubectl} create clusterrole {name} --verb=list --resource={','.join(missing)} && "
        f"{place.kubectl} create clusterrolebinding {name} --clusterrole={name} "
        f"--serviceaccount={place.namespace}:{account}"
    )
