"""The connection of a command to its cluster."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from shared.adapters.config.settings import read_settings
from shared.adapters.kubernetes.access import get_access
from shared.adapters.kubernetes.watched_versions import Memory
from shared.evaluation.served import list_served, list_unserved

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands need none
    from shared.adapters.kubernetes.cluster import KubernetesCluster
    from shared.bootstrap.config import ProcessConfig


@asynccontextmanager
async def connected(
    kubeconfig: str | None, context: str | None, *, memory: Memory | None = None
) -> AsyncIterator["KubernetesCluster"]:
    """Connect to the cluster, and disconnect at the end of the block."""
    from shared.adapters.kubernetes.connect import connect  # noqa: PLC0415 - `--help` and offline commands need no client

    access = get_access(read_settings()) if kubeconfig is None and context is None else None
    cluster = await connect(access=access, kubeconfig=kubeconfig, context=context, memory=memory)
    try:
        yield cluster
    finally:
        await cluster.close()


def context_namespace(kubeconfig: str | None, context: str | None) -> str:
    """Return the namespace of the kubeconfig's context, else `default`."""
    from shared.adapters.kubernetes.connect import get_namespace  # noqa: PLC0415 - as above

    return get_namespace(kubeconfig=kubeconfig, context=context) or "default"


async def name_served(config: "ProcessConfig", cluster: "KubernetesCluster") -> str:
    """Name the enabled kinds that the cluster serves, and the kinds in TTL_KINDS that it does not serve."""
    served = await list_served(config.catalogue, cluster=cluster, namespace=config.namespace)
    groups = Counter(plural for plural, _ in {(rule.plural, rule.group) for rule in served})
    names = dict.fromkeys(rule.plural if groups[rule.plural] == 1 else rule.name for rule in served)
    plurals = ", ".join(names) or "nothing yet"
    absent = list_unserved(config.settings.kinds, served)
    return f"{plurals} (not served yet: {', '.join(absent)})" if absent else plurals
