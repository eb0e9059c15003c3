"""What a new policy is compared with: a file, what is installed, or nothing."""

from dataclasses import dataclass
from pathlib import Path

from shared.adapters.cluster import KubernetesCluster
from shared.adapters.settings import read_settings
from shared.cli import options
from shared.core.kinds import Catalogue
from shared.core.policy import NO_POLICY, Policy
from shared.doctor.policies import read_mounted
from shared.doctor.reading import read_inventory

CLUSTER = "cluster"
HOME = "ttl-after-finished"
"""The namespace of an installation, if it was not changed."""


@dataclass(frozen=True, slots=True)
class Against:
    """A policy, and what to call it."""

    name: str
    policy: Policy


async def find_against(asked: str | None, cluster: KubernetesCluster, kinds: Catalogue) -> Against:
    """The policy that is in force.

    Args:
        asked: A file, or `cluster`; $TTL_POLICY where nothing is, and none where that is not set.
        cluster: Where it is installed.
        kinds: All that are known.

    Raises:
        TtlError: It cannot be found, or cannot be read.
    """
    if asked == CLUSTER:
        name, policy = read_mounted(await read_inventory(cluster, HOME), kinds, HOME)
        return Against(name, policy)
    path = Path(asked) if asked else read_settings().policy
    if path is None:
        return Against("no policy", NO_POLICY)
    return Against(str(path), options.read_policy(path, kinds))
