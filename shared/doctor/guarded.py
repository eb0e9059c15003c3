"""Whether the delete guard of a kind is in force on a cluster, and is the one that this version makes."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from shared.core.kinds import Catalogue, KindRule
from shared.core.objects import get_in
from shared.doctor.findings import Finding, Place, ok, unknown, warn
from shared.doctor.guarding import ACCOUNTS, VERSION, binds, guard, guard_name, not_checked
from shared.doctor.needs import DELETERS
from shared.doctor.reading import Obj, name_of, read_list
from shared.doctor.rights import Account
from shared.doctor.server import list_served
from shared.errors import AbsentKindError, TtlError

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands need none
    from shared.adapters.cluster import KubernetesCluster


_GROUP = "admissionregistration.k8s.io/v1"
_PLURALS = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
_OURS = "app.kubernetes.io/component=delete-guard"


class State(StrEnum):
    """What a cluster has of a kind's guard."""

    CURRENT = "current"
    MISSING = "missing"
    STALE = "stale"
    OTHERS = "of others"
    ALTERED = "altered"


_WRONG = {
    State.MISSING: "without it, the API server accepts the DELETE of an unfinished or held object by our accounts:",
    State.STALE: "made from another version of the rule: it may refuse a due object or allow an unfinished one:",
    State.OTHERS: "binds other accounts than those of this namespace:",
    State.ALTERED: "differs from the guard of this version, and may refuse less:",
}


def judge_guard(rules: Sequence[KindRule], namespace: str, policy: Obj | None, binding: Obj | None) -> State:
    """Compare what a cluster has with what is made of the rules.

    Args:
        rules: All rules of one kind.
        namespace: Of the installation.
        policy: As it was read; None where there is none.
        binding: Likewise.
    """
    if policy is None or binding is None:
        return State.MISSING
    wanted, bound = guard(rules, namespace)
    if get_in(policy, "metadata.annotations") is None or _version(policy) != _version(wanted):
        return State.STALE
    (condition,) = wanted["spec"]["matchConditions"]
    conditions = get_in(policy, "spec.matchConditions")
    expression = conditions[0].get("expression", "") if isinstance(conditions, list) and conditions else ""
    ours = binds(namespace)
    if expression != ours and not expression.startswith(f"{ours} || "):
        return State.OTHERS if expression else State.ALTERED
    as_wanted = {**wanted["spec"], "matchConditions": [{**condition, "expression": expression}]}
    is_same = policy.get("spec") == as_wanted and binding.get("spec") == bound["spec"]
    return State.CURRENT if is_same else State.ALTERED


def _version(policy: Mapping[str, Any]) -> Any:
    return policy["metadata"]["annotations"].get(VERSION)


async def read_guard(cluster: "KubernetesCluster", rules: Sequence[KindRule], namespace: str) -> State | None:
    """What a cluster has of a kind's guard; None where it may not be read.

    Args:
        cluster: Where to look.
        rules: All rules of the kind.
        namespace: Of the installation.
    """
    paths = [f"/apis/{_GROUP}/{plural}/{guard_name(rules[0])}" for plural in _PLURALS]
    try:
        answers = await asyncio.gather(*(cluster.request("GET", path, missing_ok=True) for path in paths))
    except AbsentKindError:
        return State.MISSING
    except TtlError:
        return None
    policy, binding = (answer.body if answer else None for answer in answers)
    return judge_guard(rules, namespace, policy, binding)


async def check_guard(
    cluster: "KubernetesCluster", rules: Iterable[KindRule], known: Catalogue, accounts: Iterable[Account], place: Place
) -> list[Finding]:
    """Check the guard of all enabled kinds.

    Args:
        cluster: As its operator reaches it.
        rules: The enabled kinds that count.
        known: All rules of the installation: a kind's guard is made from all rules of the kind.
        accounts: Those of what runs here.
        place: The installation.
    """
    kinds = {rule.name: known.of(rule.group, rule.kind) for rule in rules}
    deleters = [account for account in accounts if account.role in DELETERS]
    if not kinds or not deleters:  # on Cloud Run they have accounts of Google's
        return []
    try:
        if not set(_PLURALS) <= await list_served(cluster, _GROUP):
            detail = "the API server has no ValidatingAdmissionPolicies: it cannot refuse a DELETE itself"
            return [warn("delete guard", detail, "upgrade the cluster to Kubernetes 1.30 or later")]
    except TtlError as error:
        return [unknown("delete guard", str(error), place)]
    policies, bindings = [await read_list(cluster, f"/apis/{_GROUP}/{one}", labelSelector=_OURS) for one in _PLURALS]
    if problem := policies.problem or bindings.problem:
        return [unknown("delete guard", problem, place)]
    found, bound = ({name_of(one): one for one in listed.items} for listed in (policies, bindings))
    states: defaultdict[State, list[str]] = defaultdict(list)
    for name, of_kind in kinds.items():
        guarded_by = guard_name(of_kind[0])
        states[judge_guard(of_kind, place.namespace, found.get(guarded_by), bound.get(guarded_by))].append(name)
    return [*_findings(states, kinds, place), *_unbound(deleters, list(kinds), place)]


def _findings(
    states: Mapping[State, Sequence[str]], kinds: Mapping[str, Sequence[KindRule]], place: Place
) -> Iterator[Finding]:
    for state, names in states.items():
        if state is State.CURRENT:
            less = "; ".join(dict.fromkeys(not_checked(kinds[name]) for name in names))
            yield ok("delete guard", f"{', '.join(names)}; not checked by the API server: {less}")
        else:
            yield warn(f"delete guard {state}", f"{_WRONG[state]} {', '.join(names)}", place.guard(names))


def _unbound(accounts: Iterable[Account], names: Sequence[str], place: Place) -> Iterator[Finding]:
    """Accounts that delete and that no guard binds, since they have other names."""
    for account in accounts:
        if account.name not in ACCOUNTS:
            user = f"system:serviceaccount:{place.namespace}:{account.name}"
            detail = f"does not bind {user}, which deletes here"
            yield warn(f"delete guard of {account.name}", detail, place.guard(names, user))
