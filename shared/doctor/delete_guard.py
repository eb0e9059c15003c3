"""Check that the delete guard of each enabled kind is in force."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.rule import KindRule
from shared.doctor.findings import Finding, ok, unknown, warn
from shared.doctor.rights import Account
from shared.doctor.server import list_served
from shared.errors import TtlError
from shared.installation.delete_guard import ACCOUNTS, guard_name, not_checked
from shared.installation.guard_status import GROUP, OURS, PLURALS, GuardState, compare_guard
from shared.installation.inventory import name_of, read_list
from shared.installation.place import Place
from shared.installation.rbac import DELETERS

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands do not need it
    from shared.adapters.kubernetes.cluster import KubernetesCluster


_WRONG = {
    GuardState.MISSING: "without it, the API server lets our accounts delete an unfinished or held object:",
    GuardState.STALE: "made from another version of the rule: it may reject a due object or allow an unfinished one:",
    GuardState.OTHERS: "binds the accounts of another namespace, not those of this one:",
    GuardState.ALTERED: "differs from the guard of this version, and may reject less:",
}


async def check_guard(
    cluster: "KubernetesCluster",
    rules: Iterable[KindRule],
    *,
    known: Catalogue,
    accounts: Iterable[Account],
    place: Place,
) -> list[Finding]:
    """Check the guard of all enabled kinds.

    Args:
        cluster: The cluster, with the operator's credentials.
        rules: The rules of the enabled kinds to check.
        known: All rules of the installation: a kind's guard is made from all rules of the kind.
        accounts: The accounts of the workloads and sources.
        place: The installation.
    """
    kinds = {rule.name: known.of(rule.group, rule.kind) for rule in rules}
    deleters = [account for account in accounts if account.role in DELETERS]
    if not kinds or not deleters:  # on Cloud Run the functions use Google accounts
        return []
    try:
        if not set(PLURALS) <= await list_served(cluster, GROUP):
            detail = "the API server does not serve ValidatingAdmissionPolicies, so it cannot reject a DELETE itself"
            return [warn("delete guard", detail, "upgrade the cluster to Kubernetes 1.30 or later")]
    except TtlError as error:
        return [unknown("delete guard", str(error), place)]
    policies, bindings = [await read_list(cluster, f"/apis/{GROUP}/{one}", labelSelector=OURS) for one in PLURALS]
    if problem := policies.problem or bindings.problem:
        return [unknown("delete guard", problem, place)]
    found, bound = ({name_of(one): one for one in listed.items} for listed in (policies, bindings))
    states: defaultdict[GuardState, list[str]] = defaultdict(list)
    for name, of_kind in kinds.items():
        guarded_by = guard_name(of_kind[0])
        states[compare_guard(of_kind, place.namespace, found.get(guarded_by), bound.get(guarded_by))].append(name)
    return [*_findings(states, kinds, place), *_unbound(deleters, list(kinds), place)]


def _findings(
    states: Mapping[GuardState, Sequence[str]], kinds: Mapping[str, Sequence[KindRule]], place: Place
) -> Iterator[Finding]:
    for state, names in states.items():
        if state is GuardState.CURRENT:
            less = not_checked([rule for name in names for rule in kinds[name]])
            yield ok("delete guard", f"{', '.join(names)}; not checked by the API server: {less}")
        else:
            yield warn(f"delete guard {state}", f"{_WRONG[state]} {', '.join(names)}", place.guard(names))


def _unbound(accounts: Iterable[Account], names: Sequence[str], place: Place) -> Iterator[Finding]:
    """Report accounts that delete, but that no guard binds because they have other names."""
    for account in accounts:
        if account.name not in ACCOUNTS:
            user = f"system:serviceaccount:{place.namespace}:{account.name}"
            detail = f"the guard does not bind {user}, and that account may delete"
            yield warn(f"delete guard of {account.name}", detail, place.guard(names, user))
