"""The kinds, the policy and the settings that an installation decides with.

A process outside the installation reads its policy again while it runs.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shared.adapters.config.settings import SettingsError
from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.values.objects import get_text
from shared.errors import TtlError
from shared.installation.inventory import OURS, PARTS, Inventory, name_of, read_inventory, read_list
from shared.installation.mounted import READ, find_settings, most_used, parse_settings, read_catalogue, read_policy

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands do not need it
    from shared.adapters.kubernetes.cluster import KubernetesCluster

FOLLOW_SECONDS = 10.0
"""Time between two reads of the installation: less than the kubelet takes to update a mounted ConfigMap."""

_log = logging.getLogger("ttl")


@dataclass(frozen=True, slots=True)
class Installed:
    """An installation, read from its workloads and ConfigMaps.

    Attributes:
        namespace: The namespace of the installation.
        kinds: All kinds that the installation knows: the shipped kinds and the mounted kinds.
        policy: The policy in force; NO_POLICY if there is none or if it cannot be determined.
        policy_name: `ConfigMap ttl-after-finished/policy-x`; empty if there is none or if it cannot be determined.
        problem: Why the policy in force cannot be determined; empty if it can.
        kinds_named: The names in TTL_KINDS; empty for all kinds that can finish, and if the settings cannot be read.
        enabled: The names of the kinds that the installation may delete; None if the settings cannot be read.
        dry_run: Whether the installation deletes nothing.
        cluster_name: The name of the cluster in the archives.
        is_alone: Whether the installation is only the Deployment `standalone`, which needs its Lease to delete.
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
    cluster_name: str = "default"


async def read_installed(cluster: "KubernetesCluster", namespace: str) -> Installed | None:
    """Read the installation of a namespace; None if nothing is installed there.

    Raises:
        TtlError: The installation cannot be read.
    """
    return find_installed(await read_inventory(cluster, namespace, READ), namespace)


async def find_other_namespaces(cluster: "KubernetesCluster") -> tuple[str, ...]:
    """Find all namespaces with an installation.

    Raises:
        TtlError: The workloads of all namespaces may not be listed, so there may be an installation in any of them.
    """
    kinds = ("Knative Service", "StatefulSet", "Deployment")
    selector = ",".join(f"{name}={value}" for name, value in OURS.items())
    paths = [f"/apis/{PARTS[kind]}" for kind in kinds]
    lists = await asyncio.gather(*(read_list(cluster, path, labelSelector=selector) for path in paths))
    found = Inventory(dict(zip(kinds, lists, strict=True)))
    for kind, problem in found.problems():
        raise TtlError(f"could not list {kind}s of all namespaces: {problem}")
    return tuple(sorted({get_text(obj, "metadata.namespace") for _, obj in found.workloads()}))


def find_installed(found: Inventory, namespace: str) -> Installed | None:
    """Find the installation in an inventory; None if nothing is installed.

    Raises:
        TtlError: A list of the inventory could not be read.
    """
    for kind, problem in found.problems():
        if kind != "ConfigMap":
            raise TtlError(f"could not read the installation in namespace {namespace}: {problem}")
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
    return replace(
        installed,
        kinds_named=settings.kinds,
        enabled=enabled,
        dry_run=settings.dry_run,
        cluster_name=settings.cluster_name,
    )


class FollowedPolicy:
    """The policy of an installation: the last one that could be read, as a policy file keeps its last valid content.

    Args:
        read: Reads the installation; returns None if nothing is installed.
        policy: The policy in force at the start.
        is_installed: Whether there is an installation at the start.
        report: Called once with each problem.

    Attributes:
        problem: Why the policy now installed is unknown; empty if it is in force.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[Installed | None]],
        policy: Policy,
        report: Callable[[str], None],
        *,
        is_installed: bool,
    ) -> None:
        self._read, self._policy, self._report, self._is_installed = read, policy, report, is_installed
        self.problem = ""

    def policy(self) -> Policy:
        """Return the policy in force."""
        return self._policy

    @property
    def is_good(self) -> bool:
        """Whether the policy of the last read is in force."""
        return not self.problem

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """Read the installation again and again until the block ends."""
        task = asyncio.create_task(self._follow(), name="installed-policy")
        task.add_done_callback(self._report_end)
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):  # reported when it ended
                await task

    def _report_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            self.problem = f"it is not read any more: {error!r}; restart `run`"
            self._report(self.problem)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            await self.refresh()

    async def refresh(self) -> None:
        """Read the installation once. A policy that cannot be read, or is gone, keeps the last one in force."""
        try:
            self._apply(await self._read())
        except TtlError as error:
            if str(error) != self.problem:
                self._report(str(error))
            self.problem = str(error)
        else:
            self.problem = ""

    def _apply(self, installed: Installed | None) -> None:
        if installed is None and not self._is_installed:
            return
        if installed is None:
            raise TtlError("the installation does not exist any more: expected its policy, restart `run` to drop it")
        if installed.problem:
            raise TtlError(installed.problem)
        self._is_installed = True
        if installed.policy.digest != self._policy.digest:
            self._policy = installed.policy
            fields = {"file": installed.policy_name or "none", "rules": len(installed.policy.rules)}
            _log.info("policy loaded", extra={"fields": fields})
