"""The policy of `run`: the one that the operator names, else the installed one."""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from shared.adapters.config.settings import Settings
from shared.adapters.kubernetes.access import get_access
from shared.adapters.kubernetes.connect import own_namespace
from shared.bootstrap.archives import OpenedArchives
from shared.cli.deleters.in_force import InForce, PolicyInForce, read_in_force
from shared.cli.deleters.reachable_archives import ReachableArchives
from shared.cli.input.options import NONE, Options
from shared.core.policy.policy import NO_POLICY
from shared.errors import TtlError
from shared.installation.installed import FollowedPolicy, read_installed
from shared.ports import Telemetry

if TYPE_CHECKING:
    from shared.adapters.kubernetes.cluster import KubernetesCluster

_KEPT = "the installed policy could not be read: its last version stays in force"


@dataclass(frozen=True, slots=True)
class InstalledPolicy:
    """The installed policy as `run` applies it.

    Attributes:
        force: What is in force on the cluster.
        chosen: The policy at the start, with its name.
        followed: The policy while the process runs.
    """

    force: InForce
    chosen: PolicyInForce
    followed: FollowedPolicy

    def reachable_archives(self, at_end: AsyncExitStack) -> ReachableArchives:
        """Return the archives as far as this machine can reach them: a folder of the installation's Pods it cannot."""
        return ReachableArchives(OpenedArchives(self.force.identity), is_local=False, at_end=at_end)


def find_named_policy(options: Options, settings: Settings) -> PolicyInForce | None:
    """Return what the operator or the installation names for this process; None if the installed policy applies.

    A Pod of an installation has the policy of its own settings: it may not read Deployments, and needs not.
    """
    if NONE in (str(options.policy), str(settings.policy)):
        return PolicyInForce(NO_POLICY, why=f"--policy {NONE}" if options.policy else f"TTL_POLICY={NONE}")
    if settings.policy is not None:
        return PolicyInForce(NO_POLICY, str(settings.policy), is_local=True)
    is_named = options.kubeconfig is not None or options.context is not None or get_access(settings) is not None
    if not is_named and settings.home_namespace and own_namespace() == settings.home_namespace:
        return PolicyInForce(NO_POLICY)
    return None


async def read_policy_of_run(cluster: "KubernetesCluster", options: Options, telemetry: Telemetry) -> InstalledPolicy:
    """Read the installed policy, to apply it and to follow its changes.

    Raises:
        TtlError: The policy is unknown. A weaker one must not take its place.
    """
    force = await read_in_force(cluster, options)
    chosen = force.choose(None)
    if not chosen.is_known:
        expected = "expected a policy that can be read; set --policy FILE, or --policy none to delete without a policy"
        raise TtlError(f"the policy in force is unknown: {chosen.why}; {expected}")
    followed = FollowedPolicy(
        partial(read_installed, cluster, force.home),
        chosen.policy,
        lambda problem: telemetry.problem(_KEPT, error=problem),
        is_installed=force.installed is not None,
    )
    return InstalledPolicy(force, chosen, followed)
