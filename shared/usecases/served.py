"""Which rule a cluster goes by for a kind."""

from shared.core.kinds import Catalogue, KindRule
from shared.errors import AbsentKindError
from shared.ports import Cluster


async def find_served(group: str, kind: str, *, cluster: Cluster, kinds: Catalogue) -> KindRule | None:
    """The rule of a kind, as the cluster serves it; None where there is no rule.

    Raises:
        AbsentKindError: It is not served.
        TryLaterError: That cannot be told now.
    """
    rules = kinds.of(group, kind)
    if not rules:
        return None
    for rule in await cluster.served(rules):
        return rule
    raise AbsentKindError(f"{rules[0].plural} of {group or 'the core group'} are not served by this cluster")
