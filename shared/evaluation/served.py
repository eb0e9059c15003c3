"""Which kinds a cluster serves, and which rule it goes by for each."""

from collections.abc import Sequence

from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.rule import KindRule
from shared.errors import AbsentKindError
from shared.ports import Cluster


async def list_served(kinds: Catalogue, *, cluster: Cluster, namespace: str = "") -> tuple[KindRule, ...]:
    """The rules of the kinds that are served, as they are; in one namespace those that have objects in namespaces.

    Raises:
        TryLaterError: The API server tells of none of them now.
        PermanentError: It does not tell us.
    """
    served = await cluster.served(kinds.rules)
    return tuple(rule for rule in served if rule.scope == "Namespaced" or not namespace)


def list_unserved(words: Sequence[str], served: Sequence[KindRule]) -> list[str]:
    """Of words that name kinds, those that name none which is served."""
    return [word for word in words if not any(rule.is_named(word) for rule in served)]


async def find_served(group: str, kind: str, *, cluster: Cluster, kinds: Catalogue) -> KindRule:
    """The rule of a kind, as the cluster serves it.

    Args:
        group: Empty for the core group.
        kind: One that has a rule.
        cluster: Asked what it serves.
        kinds: All kinds that count.

    Raises:
        AbsentKindError: It is not served.
        TryLaterError: That cannot be told now.
    """
    rules = kinds.of(group, kind)
    for rule in await cluster.served(rules):
        return rule
    names = ", ".join(dict.fromkeys(rule.name for rule in rules))
    raise AbsentKindError(f"this cluster does not serve {names or kind} in a version that is known")
