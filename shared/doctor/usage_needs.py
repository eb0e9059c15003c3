"""Check what the deletion of unused Secrets and ConfigMaps needs.

The checks are of the guards, if a policy rule has unused objects deleted; of the rights to list all carriers; and of
the rules of the policy.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import islice

from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.core.decision.namespaces import Namespace
from shared.core.policy.policy import Policy
from shared.core.policy.policy_rule import PolicyRule
from shared.core.policy.usage import USAGE_KINDS
from shared.core.usage.passes import collected_by
from shared.core.values.objects import get_in, get_text
from shared.core.values.timing import format_duration
from shared.doctor.findings import Finding, fail, ok, unknown, warn
from shared.doctor.rights import REVIEWS_IN_FLIGHT_MAX, is_allowed
from shared.doctor.server import UPGRADE, list_served
from shared.errors import TtlError
from shared.evaluation.namespaces_and_owners import Namespaces
from shared.evaluation.usage_reader import UsageReader
from shared.installation.guard_status import GROUP, PLURALS, GuardState, compare_guard
from shared.installation.installed import read_installed_carriers
from shared.installation.inventory import Inventory, Obj, name_of, read_list
from shared.installation.place import Place
from shared.installation.rbac import OBJECTS_ROLE, Right, object_needs
from shared.installation.usage_guard import CHANGERS, usage_guards
from shared.ports import ListableKind
from shared.safeguards.state_schema import HOME, NAME, hash_unused_rules, parse_accepted_plan

_RUN = "standalone"
_NAMES_SHOWN = 5
_WHAT = "usage guard"
_OURS = "app.kubernetes.io/component in (delete-guard,mark-guard,attestation-guard)"
_TEXTS = {
    GuardState.MISSING: "without it, the API server lets our accounts delete or change a Secret or a ConfigMap in use:",
    GuardState.STALE: "made by another version, and may reject less:",
    GuardState.OTHERS: "binds the accounts of another namespace, not those of this one:",
    GuardState.ALTERED: "differs from the guard of this version, and may reject less:",
}


async def check_usage_guards(cluster: KubernetesCluster, policy: Policy, place: Place) -> list[Finding]:
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


async def check_usage(
    cluster: KubernetesCluster, found: Inventory, policy: Policy, place: Place, *, kinds: Sequence[str] = ()
) -> list[Finding]:
    """Check what the rules with `unused` of a policy need; nothing if it has none.

    Args:
        cluster: The cluster, with the operator's credentials.
        found: The inventory of the installation.
        policy: The installed policy.
        place: The installation.
        kinds: The kinds that TTL_KINDS names; empty for all.
    """
    if not any(rule.unused for rule in policy.rules):
        return []
    findings = list(_check_rules(found, policy, place))
    findings += _check_kinds(found, kinds, place)
    accounts = sorted(_accounts(found))
    if not accounts:
        detail = f"the policy has rules with unused, and no workload {' or '.join(CHANGERS)} acts on them"
        return [*findings, warn("unused objects", detail, place.apply())]
    findings += await check_usage_guards(cluster, policy, place)
    findings += await check_object_rights(cluster, accounts, policy, place)
    try:
        carriers = read_installed_carriers(found)
    except TtlError as error:
        return [*findings, fail("carrier rules", str(error), place.apply("after you fix the rule in it"))]
    try:
        served = await cluster.list_kinds()
    except TtlError as error:
        return [*findings, unknown("carriers", str(error), place)]
    reader = UsageReader(cluster, carriers)
    if problem := reader.find_problem(served):
        command = f"{place.kubectl} get apiservices"
        findings.append(warn("carriers", f"{problem}; nothing unused is deleted until then", command))
    carried = reader.find_carriers(served)
    findings += await _check_lists(cluster, carried)
    findings += await _check_references(cluster, reader, policy, place)
    return findings + [await _check_account(cluster, account, carried, place) for account in accounts]


def _check_kinds(found: Inventory, kinds: Sequence[str], place: Place) -> Iterator[Finding]:
    """Report rules without effect: `run` deletes nothing unused if its settings name the only kinds to delete."""
    if kinds and any(name_of(one) == _RUN for _, one in found.workloads()):
        detail = f"{_RUN} applies no rule with unused, since TTL_KINDS names the only kinds that it deletes"
        yield warn("unused objects", detail, place.apply(settings={"TTL_KINDS": "all"}))


def _check_rules(found: Inventory, policy: Policy, place: Place) -> Iterator[Finding]:
    """Check each rule with `unused`: it only reports, or an operator has accepted what it would delete."""
    data = get_in(found.get("ConfigMap", NAME), "data")
    accepted = parse_accepted_plan(data) if isinstance(data, dict) else None
    hashes = hash_unused_rules(policy)
    home = f"TTL_NAMESPACE={place.namespace} " if place.namespace != HOME else ""
    for rule in policy.rules:
        if rule.unused is None:
            continue
        what, ttl = f"policy rule {rule.name}", format_duration(rule.unused.ttl)
        deletes = f"deletes what is unused for {ttl}"
        if rule.unused.never_used:
            deletes += ", also what was never seen used"
        if rule.audits_unused:
            yield ok(what, f"audit only: unused objects are marked, and not deleted after {ttl}")
        elif accepted is not None and hashes[rule.name] in accepted.rules:
            yield ok(what, f"{deletes}; its plan was accepted {accepted}")
        else:
            detail = f"{deletes}, and no operator has accepted its plan"
            fix = f"{home}{place.kubectl} ttl plan --accept    # or set audit: true in the rule for the first week"
            yield warn(what, detail, fix)


def _accounts(found: Inventory) -> set[str]:
    """The ServiceAccounts of the workloads that delete unused objects."""
    ours = (one for _, one in found.workloads() if name_of(one) in CHANGERS)
    return {get_text(one, "spec.template.spec.serviceAccountName") or "default" for one in ours}


async def _check_lists(cluster: KubernetesCluster, kinds: Sequence[ListableKind]) -> list[Finding]:
    """Check that each LIST names the state that it shows; a LIST that fails is a question of rights."""
    limit = asyncio.Semaphore(REVIEWS_IN_FLIGHT_MAX)

    async def ask(kind: ListableKind) -> str:
        async with limit:
            try:
                return "" if (await cluster.list_objects(kind, limit=1)).resource_version else kind.name
            except TtlError:
                return ""

    without = [*filter(None, await asyncio.gather(*(ask(one) for one in kinds if one.target is None)))]
    if not without:
        return []
    detail = f"the list of {_some(without)} has no resourceVersion, so no pass is complete: nothing unused is deleted"
    advice = "if its objects refer to none, write a carrier rule with refersToNone; see docs/how-to/unused.md"
    return [fail("carriers", detail, advice)]


async def _check_references(
    cluster: KubernetesCluster, reader: UsageReader, policy: Policy, place: Place
) -> list[Finding]:
    """Make a pass, and name the objects that may refer to everything: they keep each Secret or each ConfigMap."""
    what = "references"
    try:
        within = await Namespaces(cluster).find_names(collected_by(policy.rules))
        if not within:
            return []
        held = await reader.hold_targets()
        found = await reader.look(held.names(within), held=held)
    except TtlError as error:
        return [unknown(what, str(error), place)]
    if problem := found.of.find_problem():
        return [unknown(what, problem, place)]
    fix = "correct the object that is named, or write a carrier rule for its kind; see docs/how-to/unused.md"
    if problem := found.find_problem():
        return [fail(what, f"nothing unused is deleted in any namespace: {problem}", fix)]
    causes = sorted(found.find_unknown().items())
    return [
        warn(f"references in {name}", f"nothing unused is deleted in this namespace: {cause}", fix)
        for name, cause in causes[:_NAMES_SHOWN]
    ]


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
    detail = f"may not list {_some(missing)}: it is unknown what is unused, so nothing unused is deleted"
    return fail(what, detail, _grant(account, missing, place))


def _some(names: Sequence[str]) -> str:
    """Name the first of some kinds or namespaces, and count the others."""
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more


def _grant(account: str, missing: Sequence[str], place: Place) -> str:
    """Return the command that grants the right to list kinds.

    The name of the role depends on the kinds: no installed role has it, and no role of an earlier command.
    """
    name = f"ttl-after-finished-{account}-kinds-{sha256(','.join(missing).encode()).hexdigest()[:8]}"
    return (
        f"{place.kubectl} create clusterrole {name} --verb=list --resource={','.join(missing)} && "
        f"{place.kubectl} create clusterrolebinding {name} --clusterrole={name} "
        f"--serviceaccount={place.namespace}:{account}"
    )


NAMESPACES_ASKED_MAX = 100
"""The most namespaces of which each right is checked, if it is not granted in all namespaces."""

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
    return [await _check_object_account(cluster, account, needed, place) for account in accounts if needed]


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


async def _check_object_account(
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
    detail = f"may not {verbs} in namespace{'s' * (len(names) > 1)} {_some(names)}: unused objects are kept there"
    fix = _grant_role(account, names, place) if has_role else place.apply(components=["usage-rights"])
    return fail(what, detail, fix)


def _grant_role(account: str, names: Sequence[str], place: Place) -> str:
    """Return the commands that grant the role in the first of some namespaces."""
    return " && ".join(
        f"{place.kubectl} -n {name} create rolebinding ttl-after-finished-{account} --clusterrole={OBJECTS_ROLE} "
        f"--serviceaccount={place.namespace}:{account}"
        for name in names[:_NAMES_SHOWN]
    )
