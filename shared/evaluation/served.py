"""Find the kinds that a cluster serves, and the kind rule that applies to each."""

from collections.abc import Sequence

from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.rule import KindRule
from shared.errors import AbsentKindError
from shared.ports import Cluster


async def list_served(kinds: Catalogue, *, cluster: Cluster, namespace: str = "") -> tuple[KindRule, ...]:
    """List the rules of the kinds that the cluster serves; with a namespace, only those of namespaced kinds.

    Raises:
        TryLaterError: Discovery fails for all of the kinds now.
        PermanentError: The API server refuses discovery.
    """
    served = await cluster.served(kinds.rules)
    return tuple(rule for rule in served if rule.scope == "Namespaced" or not namespace)


def list_unserved(words: Sequence[str], served: Sequence[KindRule]) -> list[str]:
    """List the words that name no served kind."""
    return [word for word in words if not any(rule.has_name(word) for rule in served)]


async def find_served(group: str, kind: str, *, cluster: Cluster, kinds: Catalogue) -> KindRule:
    """Find the rule of a kind, with the version that the cluster serves.

    Args:
        group: The API group; empty for the core group.
        kind: A kind that has a rule.
        cluster: The cluster that serves it.
        kinds: The known kinds.

    Raises:
        AbsentKindError: The cluster does not serve the kind.
        TryLaterError: Discovery fails now.
    """
    rules = kinds.of(group, kind)
    for rule in await cluster.served(rules):
        return rule
    names = ", ".join(dict.fromkeys(rule.name for rule in rules))
    raise AbsentKindError(f"this cluster does not serve {names or kind} in a known version")
