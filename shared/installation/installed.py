"""What an installation decides by: its kinds, its policy, and whether it deletes at all."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shared.adapters.config.settings import SettingsError
from shared.core.kinds.catalogue import Catalogue
from shared.core.policy.policy import NO_POLICY, Policy
from shared.errors import TtlError
from shared.installation.inventory import Inventory, name_of, read_inventory
from shared.installation.mounted import READ, find_settings, most_used, parse_settings, read_catalogue, read_policy

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands need none
    from shared.adapters.kubernetes.cluster import KubernetesCluster


@dataclass(frozen=True, slots=True)
class Installed:
    """An installation, as its manifests and its ConfigMaps have it.

    Attributes:
        namespace: Where it is.
        kinds: All that it knows: the shipped ones, and those that are mounted.
        policy: In force; NO_POLICY where it has none, or that cannot be told.
        policy_name: `ConfigMap ttl-after-finished/policy-x`; empty where it has none, or that cannot be told.
        problem: Why it cannot be told which policy is in force.
        kinds_named: What TTL_KINDS names; nothing for all kinds that can finish, and where the settings cannot be read.
        enabled: The names of the kinds that it may delete; None where the settings cannot be read.
        dry_run: Whether it deletes nothing.
        is_alone: Whether it is one Deployment, which deletes nothing unless it has its Lease.
    """

    namespace: str
    kinds: Catalogue
    policy: Policy
    policy_name: str = ""
    problem: str = ""
    kinds_named: tuple[str, ...] = ()
    enabled: frozenset[str] | None = None
    dry_run: bool = False
    is_alone: bool = False


async def read_installed(cluster: "KubernetesCluster", namespace: str) -> Installed | None:
    """What is installed in a namespace; None where nothing is.

    Raises:
        TtlError: It may not be told whether anything is.
    """
    return find_installed(await read_inventory(cluster, namespace, READ), namespace)


def find_installed(found: Inventory, namespace: str) -> Installed | None:
    """The same, of what was read.

    Raises:
        TtlError: As above.
    """
    for kind, problem in found.problems():
        if kind != "ConfigMap":
            raise TtlError(f"what is installed in namespace {namespace} cannot be told: {problem}")
    if not any(found.workloads()):
        return None
    kinds = read_catalogue(found)
    problem, name, policy = "", "", NO_POLICY
    try:
        name, policy = read_policy(found, kinds, namespace)
    except TtlError as error:
        problem = str(error)
    is_alone = {name_of(obj) for _, obj in found.workloads()} == {"standalone"}
    installed = Installed(namespace, kinds, policy, name, problem, is_alone=is_alone)
    users = find_settings(found)
    config = found.get("ConfigMap", most_used(users)) if users else None
    if config is None:
        return installed
    try:
        settings, rules = parse_settings(config, kinds)
    except (ValueError, SettingsError):
        return installed
    enabled = frozenset(rule.name for rule in rules)
    return replace(installed, kinds_named=settings.kinds, enabled=enabled, dry_run=settings.dry_run)
