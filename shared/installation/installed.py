"""The kinds, the policy and the settings that an installation decides with, from the ConfigMaps of its workloads.

A process outside the installation reads its policy again while it runs.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from shared.adapters.config.carrier_files import read_carriers
from shared.adapters.config.kind_files import RuleFile, as_catalogue, read_rule_files
from shared.adapters.config.policy_file import parse_policy
from shared.adapters.config.settings import Settings, SettingsError, read_settings
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.references.carrier import Carriers
from shared.core.values.objects import get_in, get_text, list_mappings
from shared.errors import TtlError
from shared.installation.inventory import (
    OURS,
    PARTS,
    Inventory,
    Obj,
    environment_of,
    name_of,
    read_inventory,
    read_list,
    volume_at,
)

if TYPE_CHECKING:
    from shared.adapters.kubernetes.cluster import KubernetesCluster

READ = ("Deployment", "StatefulSet", "Knative Service", "ContainerSource", "ConfigMap")
"""The parts of an inventory that these functions need."""

Users = Mapping[str, list[str]]
"""Names of ConfigMaps, each with the names of the workloads that read it."""


def find_settings(found: Inventory) -> Users:
    """Find the ConfigMaps that the workloads take environment variables from."""
    users: dict[str, list[str]] = {}
    for _, workload in found.workloads():
        for name in config_maps_of(workload):
            users.setdefault(name, []).append(name_of(workload))
    return users


def find_rules(found: Inventory) -> Users:
    """Find the ConfigMaps that are mounted where TTL_KINDS_DIR points."""
    users: dict[str, list[str]] = {}
    for workload in _readers(found):
        if name := volume_at(workload, environment_of(workload).get("TTL_KINDS_DIR", "")):
            users.setdefault(name, []).append(name_of(workload))
    return users


def find_policies(found: Inventory) -> dict[tuple[str, str], list[str]]:
    """Find the ConfigMaps and keys that TTL_POLICY points to, each with the workloads that read it."""
    users: dict[tuple[str, str], list[str]] = {}
    for workload in _readers(found):
        folder, _, key = environment_of(workload).get("TTL_POLICY", "").rpartition("/")
        if name := volume_at(workload, folder):
            users.setdefault((name, key), []).append(name_of(workload))
    return users


def most_used(users: Users) -> str:
    """The ConfigMap that most workloads read.

    Raises:
        ValueError: No workload reads any.
    """
    return max(users, key=lambda name: len(users[name]))


def parse_settings(config: Obj, kinds: Catalogue) -> tuple[Settings, tuple[KindRule, ...]]:
    """Read settings and the enabled kinds from a ConfigMap.

    Args:
        config: The ConfigMap.
        kinds: All kinds that the installation knows.

    Raises:
        SettingsError: A variable cannot be read.
        ValueError: TTL_KINDS names an unknown kind.
    """
    settings = read_settings(environment=get_in(config, "data") or {})
    return settings, kinds.parse_names(settings.kinds).rules


def read_rules(found: Inventory, name: str) -> list[RuleFile]:
    """Read the shipped rules and those of a ConfigMap, as a function reads its TTL_KINDS_DIR.

    Raises:
        TtlError: A rule cannot be read.
    """
    with _folder_of(found, name) as folder:
        return read_rule_files(folder)


def read_installed_carriers(found: Inventory) -> Carriers:
    """Read the shipped carrier rules, and those of the ConfigMap that is mounted where TTL_REFERENCES_DIR points.

    Raises:
        TtlError: A rule cannot be read.
    """
    named = ((one, environment_of(one).get("TTL_REFERENCES_DIR", "")) for _, one in found.workloads())
    mounted = sorted({*filter(None, (volume_at(workload, folder) for workload, folder in named))})
    if not mounted:
        return read_carriers()
    with _folder_of(found, mounted[0]) as folder:
        return read_carriers(folder)


@contextmanager
def _folder_of(found: Inventory, name: str) -> Iterator[Path]:
    """A folder with the files of a ConfigMap, as a workload mounts it."""
    data = get_in(found.get("ConfigMap", name) or {}, "data")
    with TemporaryDirectory() as folder:
        for key, text in data.items() if isinstance(data, dict) else ():
            Path(folder, Path(key).name).write_text(str(text))
        yield Path(folder)


def read_catalogue(found: Inventory) -> Catalogue:
    """Read all kinds that an installation knows: only the shipped ones if the mounted rules cannot be read."""
    if users := find_rules(found):
        name = most_used(users)
        try:
            if found.get("ConfigMap", name) is not None:
                return as_catalogue(read_rules(found, name))
        except TtlError:
            pass
    return as_catalogue(read_rule_files())


def read_policy_text(found: Inventory, name: str, key: str) -> str | None:
    """Read one key of a ConfigMap; None if there is no text."""
    data = get_in(found.get("ConfigMap", name) or {}, "data")
    text = data.get(key) if isinstance(data, dict) else None
    return text if isinstance(text, str) else None


def read_policy(found: Inventory, kinds: Catalogue, namespace: str) -> tuple[str, Policy]:
    """Read the policy in force and its name; the name is empty if no workload names a policy file.

    Args:
        found: The installation.
        kinds: All kinds that the installation knows.
        namespace: The namespace of the installation.

    Raises:
        TtlError: The policy cannot be read or is invalid, or the workloads name different policies.
    """
    named = list(find_policies(found))
    for workload in _readers(found):
        file = environment_of(workload).get("TTL_POLICY", "")
        if file and not volume_at(workload, file.rpartition("/")[0]):
            what = f"TTL_POLICY of {name_of(workload)} in namespace {namespace}"
            raise TtlError(f"{what}: expected a file of a mounted ConfigMap, got {file}")
    if not named:
        return "", NO_POLICY
    if len(named) > 1:
        names = ", ".join(name for name, _ in named)
        raise TtlError(f"TTL_POLICY: expected one policy for all workloads, got {names}")
    name, key = named[0]
    full_name = f"ConfigMap {namespace}/{name}"
    if problem := found.parts["ConfigMap"].problem:
        raise TtlError(f"{full_name}: {problem}")
    text = read_policy_text(found, name, key)
    if text is None:
        raise TtlError(f"{full_name}: expected {key} in its data, got none")
    return full_name, parse_policy(text, kinds, name=f"{full_name}, {key}")


def _readers(found: Inventory) -> Iterator[Obj]:
    """All parts of an installation that read kind rules and policies."""
    yield from (workload for _, workload in found.workloads())
    yield from found.all("ContainerSource")


def config_maps_of(workload: Obj) -> Iterator[str]:
    """The names of the ConfigMaps from which a workload takes environment variables."""
    for container in list_mappings(workload, "spec.template.spec.containers"):
        for source in list_mappings(container, "envFrom"):
            if name := get_text(source, "configMapRef.name"):
                yield name


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
