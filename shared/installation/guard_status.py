"""The guards of a kind on a cluster, compared with the guards that this version makes.

`GuardCheck` does so for a running process: whether the delete guard of a kind is in force for its own account.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.values.objects import get_in, get_text
from shared.errors import AbsentKindError, TtlError
from shared.installation.guards import VERSION, guard, guard_name, usernames
from shared.installation.inventory import Obj

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands do not need it
    from shared.adapters.kubernetes.cluster import KubernetesCluster

MakeGuard = Callable[[Sequence[KindRule], str], tuple[Obj, Obj]]
"""Makes the policy and the binding of the rules of one kind, for an installation in a namespace."""

GROUP = "admissionregistration.k8s.io/v1"
PLURALS = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
OURS = "app.kubernetes.io/component in (delete-guard,stop-guard)"

CHECKED_SECONDS = 60.0
"""How long a result counts, from the start of its read. A guard that is removed is noticed after this time."""

UNREAD_SECONDS = 5.0
"""How long an unreadable guard counts as not in force. `expire` reads each object meanwhile, so this time is short."""

_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


class GuardState(StrEnum):
    """The state of a guard of a kind on a cluster.

    Attributes:
        CURRENT: The guard is in force, and this version makes the same one.
        MISSING: The policy or the binding does not exist.
        STALE: The guard was made from another version of the rule.
        OTHERS: The guard binds the accounts of another namespace.
        ALTERED: The guard differs from what this version makes in some other way.
    """

    CURRENT = "current"
    MISSING = "missing"
    STALE = "stale"
    OTHERS = "of others"
    ALTERED = "altered"


def compare_guard(
    rules: Sequence[KindRule], namespace: str, policy: Obj | None, binding: Obj | None, *, make: MakeGuard = guard
) -> GuardState:
    """Compare the policy and the binding on a cluster with those made from the rules.

    Args:
        rules: All rules of one kind.
        namespace: The namespace of the installation.
        policy: The policy from the API server; None if it does not exist.
        binding: The binding from the API server; None if it does not exist.
        make: Makes the policy and the binding: of the delete guard, or of the stop guard.
    """
    if policy is None or binding is None:
        return GuardState.MISSING
    wanted, bound = make(rules, namespace)
    if get_in(policy, "metadata.annotations") is None or _version(policy) != _version(wanted):
        return GuardState.STALE
    (condition,) = wanted["spec"]["matchConditions"]
    conditions = get_in(policy, "spec.matchConditions")
    expression = conditions[0].get("expression", "") if isinstance(conditions, list) and conditions else ""
    ours = condition["expression"]
    if expression != ours and not expression.startswith(f"{ours} || "):
        return GuardState.OTHERS if expression else GuardState.ALTERED
    as_wanted = {**wanted["spec"], "matchConditions": [{**condition, "expression": expression}]}
    is_same = policy.get("spec") == as_wanted and binding.get("spec") == bound["spec"]
    return GuardState.CURRENT if is_same else GuardState.ALTERED


def _version(policy: Mapping[str, Any]) -> Any:
    return policy["metadata"]["annotations"].get(VERSION)


async def read_guard(cluster: "KubernetesCluster", rules: Sequence[KindRule], namespace: str) -> GuardState | None:
    """Read the state of a kind's delete guard; None if it cannot be read.

    Args:
        cluster: The cluster to read from.
        rules: All rules of the kind.
        namespace: The namespace of the installation.
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


class GuardCheck:
    """Reads the admission policies of a kind, and by which user name the API server knows this process.

    Args:
        cluster: The cluster.
        known: All known rules: a guard is made from all rules of a kind.
        namespace: The namespace of the installation.
        monotonic: A monotonic clock, in seconds.
    """

    def __init__(
        self, cluster: "KubernetesCluster", known: Catalogue, namespace: str, monotonic: Callable[[], float]
    ) -> None:
        self._cluster, self._known, self._namespace, self._monotonic = cluster, known, namespace, monotonic
        self._checked: dict[str, tuple[float, bool]] = {}  # until when, and the result
        self._lock = asyncio.Lock()
        self._username = ""

    async def is_in_force(self, rule: KindRule) -> bool:
        """Return whether the guard of a kind is the one that this version makes, and binds this process.

        False if that cannot be read.
        """
        async with self._lock:  # timers that are due at one instant share the read
            until, result = self._checked.get(rule.name, (float("-inf"), False))
            if (began := self._monotonic()) >= until:
                read = await self._read(rule)
                result = read is True
                # An error counts from its end: the timers that waited for a slow one share it.
                until = self._monotonic() + UNREAD_SECONDS if read is None else began + CHECKED_SECONDS
                self._checked[rule.name] = until, result
        return result

    async def _read(self, rule: KindRule) -> bool | None:
        """Read whether the guard is in force; None if it cannot be read."""
        rules = self._known.of(rule.group, rule.kind)
        state = await read_guard(self._cluster, rules, self._namespace) if rules else GuardState.MISSING
        if state is not GuardState.CURRENT:
            return None if state is None else False
        try:
            self._username = self._username or await self._read_username()
        except TtlError:
            return None
        return self._username in usernames(self._namespace)

    async def _read_username(self) -> str:
        answer = await self._cluster.request("POST", _REVIEWS, body=_REVIEW)
        return get_text(answer.body, "status.userInfo.username") if answer else ""
