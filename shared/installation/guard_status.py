"""Whether the delete guard of a kind is in force on a cluster, and is the one that this version makes."""

import asyncio
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from shared.core.kinds.rule import KindRule
from shared.core.objects import get_in
from shared.errors import AbsentKindError, TtlError
from shared.installation.delete_guard import VERSION, binds, guard, guard_name
from shared.installation.inventory import Obj

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands need none
    from shared.adapters.kubernetes.cluster import KubernetesCluster


GROUP = "admissionregistration.k8s.io/v1"
PLURALS = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
OURS = "app.kubernetes.io/component=delete-guard"


class GuardState(StrEnum):
    """What a cluster has of a kind's guard."""

    CURRENT = "current"
    MISSING = "missing"
    STALE = "stale"
    OTHERS = "of others"
    ALTERED = "altered"


def compare_guard(rules: Sequence[KindRule], namespace: str, policy: Obj | None, binding: Obj | None) -> GuardState:
    """Compare what a cluster has with what is made of the rules.

    Args:
        rules: All rules of one kind.
        namespace: Of the installation.
        policy: As it was read; None where there is none.
        binding: Likewise.
    """
    if policy is None or binding is None:
        return GuardState.MISSING
    wanted, bound = guard(rules, namespace)
    if get_in(policy, "metadata.annotations") is None or _version(policy) != _version(wanted):
        return GuardState.STALE
    (condition,) = wanted["spec"]["matchConditions"]
    conditions = get_in(policy, "spec.matchConditions")
    expression = conditions[0].get("expression", "") if isinstance(conditions, list) and conditions else ""
    ours = binds(namespace)
    if expression != ours and not expression.startswith(f"{ours} || "):
        return GuardState.OTHERS if expression else GuardState.ALTERED
    as_wanted = {**wanted["spec"], "matchConditions": [{**condition, "expression": expression}]}
    is_same = policy.get("spec") == as_wanted and binding.get("spec") == bound["spec"]
    return GuardState.CURRENT if is_same else GuardState.ALTERED


def _version(policy: Mapping[str, Any]) -> Any:
    return policy["metadata"]["annotations"].get(VERSION)


async def read_guard(cluster: "KubernetesCluster", rules: Sequence[KindRule], namespace: str) -> GuardState | None:
    """What a cluster has of a kind's guard; None where it may not be read.

    Args:
        cluster: Where to look.
        rules: All rules of the kind.
        namespace: Of the installation.
    """
    paths = [f"/apis/{GROUP}/{plural}/{guard_name(rules[0])}" for plural in PLURALS]
    try:
        answers = await asyncio.gather(*(cluster.request("GET", path, missing_ok=True) for path in paths))
    except AbsentKindError:
        return GuardState.MISSING
    except TtlError:
        return None
    policy, binding = (answer.body if answer else None for answer in answers)
    return compare_guard(rules, namespace, policy, binding)
