"""What an installation decides by: its kinds, its policy, and whether it deletes at all."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.core.kinds import Catalogue
from shared.core.policy import NO_POLICY, Policy
from shared.doctor.configured import check_settings
from shared.doctor.findings import Place
from shared.doctor.ownkinds import read_known
from shared.doctor.policies import READ, read_mounted
from shared.doctor.reading import Inventory, name_of, read_inventory
from shared.errors import TtlError

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands need none
    from shared.adapters.cluster import KubernetesCluster


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
    place = Place(namespace, manifests="")
    kinds = read_known(found, place, "").catalogue
    configured = check_settings(found, kinds, place, "")
    problem, name, policy = "", "", NO_POLICY
    try:
        name, policy = read_mounted(found, kinds, namespace)
    except TtlError as error:
        problem = str(error)
    settings = configured.settings
    is_alone = {name_of(obj) for _, obj in found.workloads()} == {"standalone"}
    if settings is None:
        return Installed(namespace, kinds, policy, name, problem, is_alone=is_alone)
    enabled = frozenset(rule.name for rule in configured.rules)
    return Installed(namespace, kinds, policy, name, problem, settings.kinds, enabled, settings.dry_run, is_alone)
