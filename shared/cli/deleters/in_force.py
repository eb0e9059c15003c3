"""What is in force on a cluster: the installation and its policy, each `run`, stops, breakers and recreate loops.

The archives of a policy are those that a command can reach with the credentials of its environment.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from shared.adapters.clock import SystemClock
from shared.adapters.config.settings import read_settings
from shared.bootstrap.archives import OpenedArchives
from shared.cli.input.options import NONE, Options, home_namespace, known_kinds, read_policy
from shared.core.archive.identity import ArchiveCluster
from shared.core.kinds.rule import Catalogue
from shared.core.policy.archives import ArchiveDestination
from shared.core.policy.policy import NO_POLICY, Policy
from shared.errors import PermanentError, TtlError
from shared.evaluation.archive_identity import ClusterIdentity, IdentifiedArchives
from shared.installation.installed import Installed, find_other_namespaces, read_installed
from shared.installation.leader import LEASE_NAMESPACES_MAX, Leader, list_leaders, read_leader
from shared.installation.place import LEASE, RUN
from shared.ports import Archive, Archives, Cluster
from shared.safeguards.archive_ids import ReadArchiveIds
from shared.safeguards.state_schema import StateContents

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands need none
    from shared.adapters.kubernetes.cluster import KubernetesCluster


CLUSTER = "cluster"
"""The value of --against for the installed policy; an error if there is none."""


UNKNOWN_POLICY = "; its policy is unknown, and may change this"
"""The end of a decision that is unsure, because the policy in force is unknown."""

NAME_POLICY = "name the policy of the process that deletes: repeat the command with `--policy FILE`"
"""What to do then."""


@dataclass(frozen=True, slots=True)
class PolicyInForce:
    """A policy with its name.

    Attributes:
        policy: The policy.
        name: A file, or `ConfigMap ttl-after-finished/policy-x`; empty if there is none.
        why: Why there is no policy, or why it is unknown.
        is_known: Whether this is the policy in force, or the one that the operator named.
        differs: That the leading `run` uses another policy; empty if it does not, or if its Lease does not say.
        is_local: Whether it is a file of this machine: then a folder that it names is one of this machine, too.
        leads: That the leading `run` uses this policy, by the hash on its Lease; empty if that is not known.
    """

    policy: Policy
    name: str = ""
    why: str = ""
    is_known: bool = True
    differs: str = ""
    is_local: bool = False
    leads: str = ""

    def __str__(self) -> str:
        """Return its name, or `no policy`."""
        return self.name or "no policy"

    @property
    def message(self) -> str:
        """Name it in one line, with the reason if there is none."""
        return "; ".join(part for part in (self._description, self.differs or self.leads) if part)

    @property
    def _description(self) -> str:
        if self.name:
            return self.name
        return f"none: {self.why}" if self.is_known else f"unknown: {self.why}; set --policy FILE or --policy none"


@dataclass(frozen=True, slots=True)
class NamespaceState:
    """The Lease and the shared state in one namespace.

    Attributes:
        contents: The shared state; empty if it could not be read.
        leader: The holder of the Lease, now or before; None if there is no Lease.
        problem: What could not be read, and why.
        leader_problem: Why the Lease could not be read; empty if it could.
        unread: Why the shared state could not be read; empty if it could.
    """

    namespace: str
    contents: StateContents
    leader: Leader | None = None
    problem: str = ""
    leader_problem: str = ""
    unread: str = ""


@dataclass(frozen=True, slots=True)
class InForce:
    """What was found on a cluster.

    Attributes:
        home: The namespace in which an installation was expected.
        kinds: All kind rules: of the user's directory if one is given, else of the installation.
        installed: The installation; None if there is none, or if it could not be read.
        problem: Why the installation could not be read; empty if it could.
        states: The state of that namespace, of the namespace of a `run`, and of the one where that `run` has its state;
            then of each `run` that leads by a Lease in another namespace.
        leaders_problem: Why there may be a `run` by a Lease in another namespace; empty if all are known.
        flags: The flags that make kubectl use the same cluster.
        cluster: The cluster; None in a test that asks for no archive.
    """

    home: str
    kinds: Catalogue
    installed: Installed | None = None
    problem: str = ""
    states: Sequence[NamespaceState] = ()
    flags: tuple[str, ...] = ()
    cluster: "KubernetesCluster | None" = None
    leaders_problem: str = ""

    @property
    def policy_problem(self) -> str:
        """Why the installed policy is unknown; empty if it is known."""
        return self.problem or (self.installed.problem if self.installed else "")

    @property
    def cluster_name(self) -> str:
        """The name of the cluster in the archives: of $TTL_CLUSTER if it is set, else of the installation."""
        settings = read_settings()
        if self.installed is None or "cluster_name" in settings.model_fields_set:
            return settings.cluster_name
        return self.installed.cluster_name

    @property
    def enabled(self) -> Catalogue | None:
        """The kinds that the installation deletes; None if they are unknown, or if a `run` leads, which may differ."""
        names = self.installed.enabled if self.installed and not self.leaders else None
        return None if names is None else Catalogue(tuple(rule for rule in self.kinds.rules if rule.name in names))

    @property
    def identity(self) -> ClusterIdentity:
        """The cluster, as the archives name it."""
        return ClusterIdentity.of(self.cluster_name, cast("Cluster", self.cluster))

    @property
    def archive_ids(self) -> ReadArchiveIds:
        """The ids of the archives, as the processes remember them."""
        return ReadArchiveIds(tuple(one.contents for one in self.usual_states))

    @property
    def usual_states(self) -> Sequence[NamespaceState]:
        """The states without those that only a Lease in another namespace names: any user may create such a Lease."""
        usual = (self.home, RUN)
        return [one for one in self.states if {one.namespace, one.leader and one.leader.namespace} & {*usual}]

    @property
    def leaders(self) -> Sequence[Leader]:
        """Each `run` that leads, as far as known. The Lease of the installation itself does not count."""
        others = [one.leader for one in self.states if not (self.installed and one.namespace == self.home)]
        return [one for one in others if one and one.leads]

    @property
    def leader(self) -> Leader | None:
        """The leading `run`; None if none is known."""
        return next(iter(self.leaders), None)

    def choose(self, asked: Path | None) -> PolicyInForce:
        """Choose the policy to apply: the file or `none` that is asked for, else $TTL_POLICY, else the installed one.

        Raises:
            TtlError: The file is not a valid policy; or `cluster` is asked for, and no policy is installed or readable.
        """
        chosen = self._choose(asked)
        scopes = [(one.holder, one.scope) for one in self.leaders if one.scope is not None]
        if not scopes or not chosen.is_known:
            return chosen
        for holder, scope in scopes:
            if scope.policy != chosen.policy.digest:
                digest = f"sha256:{chosen.policy.digest}" if chosen.policy.digest else "none"
                differs = f"`run` {holder} leads with {scope.named_policy}, not with this one ({digest})"
                return replace(chosen, differs=differs)
        leads = f"`run` {scopes[0][0]} leads with this policy (sha256:{chosen.policy.digest})"
        return replace(chosen, leads=leads if chosen.policy.digest else "")

    def _choose(self, asked: Path | None) -> PolicyInForce:
        if asked == Path(NONE):
            return PolicyInForce(NO_POLICY, why="set by the operator")
        path = None if asked == Path(CLUSTER) else asked or read_settings().policy
        if path is not None:
            return PolicyInForce(read_policy(path, self.kinds), str(path), is_local=True)
        problem = self.policy_problem
        if asked and (problem or self.installed is None):
            raise TtlError(problem or f"nothing is installed in namespace {self.home}: expected a file, or none")
        if problem:
            return PolicyInForce(NO_POLICY, why=f"the installed policy could not be read: {problem}", is_known=False)
        if self.installed is None:
            return self._policy_of_run()
        why = "" if self.installed.policy_name else f"the installation in namespace {self.home} has no policy"
        return PolicyInForce(self.installed.policy, self.installed.policy_name, why)

    def _policy_of_run(self) -> PolicyInForce:
        """Describe the policy if nothing is installed: the policy of a `run` is a file on another machine."""
        why = f"nothing is installed in namespace {self.home}"
        for leader in self.leaders:
            if leader.scope is None:
                why = f"{why}, and the Lease of `run` {leader.holder} does not name its policy"
                return PolicyInForce(NO_POLICY, why=why, is_known=False)
            if leader.scope.policy:
                why = f"{why}, and `run` {leader.holder} leads with {leader.scope.named_policy}"
                return PolicyInForce(NO_POLICY, why=why, is_known=False)
        problems = (self.leaders_problem, *(one.leader_problem for one in self.states))
        if problem := next(filter(None, problems), ""):
            why = f"{why}, and whether a `run` leads could not be read: {problem}"
            return PolicyInForce(NO_POLICY, why=why, is_known=False)
        if self.leader is not None:
            why = f"{why}, and `run` {self.leader.holder} leads with no policy"
        return PolicyInForce(NO_POLICY, why=why)


async def read_in_force(cluster: "KubernetesCluster", options: Options) -> InForce:
    """Read the installation and each `run` of a cluster. What may not be read is reported in the result.

    Args:
        cluster: The cluster.
        options: They select the cluster. The kind rules of their directory apply instead of the installation's.

    Raises:
        TtlError: A rule of the directory is invalid.
    """
    home, kinds = home_namespace(), known_kinds(options.kinds_dir)
    (installed, problem), states, (others, leaders_problem) = await asyncio.gather(
        _read_installed(cluster, home),
        read_states(cluster, home),
        _read_other_states(cluster, home, options.namespace),
    )
    if installed and options.kinds_dir is None and read_settings().kinds_dir is None:
        kinds = installed.kinds
    return InForce(home, kinds, installed, problem, [*states, *others], options.flags, cluster, leaders_problem)


async def _read_installed(cluster: "KubernetesCluster", namespace: str) -> tuple[Installed | None, str]:
    try:
        installed = await read_installed(cluster, namespace)
    except TtlError as error:
        return None, str(error)
    if installed or read_settings().home_namespace:
        return installed, ""
    nothing = f"nothing is installed in namespace {namespace}"
    fix = "set TTL_NAMESPACE to the namespace of the installation"
    try:
        others = await find_other_namespaces(cluster)
    except TtlError as error:
        return None, f"{nothing}, and whether it is installed in another one is unknown: {error}; {fix}"
    return None, f"{nothing}, but in {', '.join(others)}; {fix}" if others else ""


async def read_states(cluster: "KubernetesCluster", home: str) -> list[NamespaceState]:
    """Read the states of an installation, of a `run`, and of another namespace where the `run` keeps its state."""
    states = await asyncio.gather(*(_read_state(cluster, one) for one in dict.fromkeys((home, RUN))))
    elsewhere = [one.leader for one in states if one.leader and one.leader.state not in (home, RUN)]
    others = await asyncio.gather(*(_read_state(cluster, one.state) for one in elsewhere))
    return [
        *states,
        *(replace(one, leader=leader, leader_problem="") for one, leader in zip(others, elsewhere, strict=True)),
    ]


async def _read_other_states(
    cluster: "KubernetesCluster", home: str, namespace: str
) -> tuple[Sequence[NamespaceState], str]:
    """Read the state of each `run` that leads by a Lease in another namespace.

    Args:
        cluster: The cluster.
        home: The namespace of the installation.
        namespace: The namespace that matters; empty for all. A `run` that handles only another one is left out.

    Returns:
        The states, and why there may be more of them.
    """
    usual = (home, RUN)
    try:
        found = await list_leaders(cluster)
    except TtlError as error:
        return (), str(error)
    leaders = [
        one
        for one in found
        if one.leads
        and one.namespace not in usual
        and (not namespace or one.scope is None or one.scope.handles_namespace(namespace))
    ]
    read = leaders[:LEASE_NAMESPACES_MAX]
    states = await asyncio.gather(*(_read_state_of(one, cluster, usual) for one in read))
    return states, f"only {len(read)} of {len(leaders)} Leases {LEASE} were read" if len(leaders) > len(read) else ""


async def _read_state_of(leader: Leader, cluster: "KubernetesCluster", usual: Sequence[str]) -> NamespaceState:
    if leader.state in usual:  # that state is read anyway
        return NamespaceState(leader.namespace, StateContents(), leader)
    contents, unread = await _read_contents(cluster, leader.state)
    return NamespaceState(leader.state, contents, leader, unread, unread=unread)


async def _read_contents(cluster: "KubernetesCluster", namespace: str) -> tuple[StateContents, str]:
    """Read the shared state of a namespace; if that fails, why."""
    from shared.adapters.kubernetes.state_configmap import read_contents  # noqa: PLC0415 - loads the client

    try:
        return await read_contents(cluster, namespace), ""
    except TtlError as error:
        return StateContents(), str(error)


async def _read_state(cluster: "KubernetesCluster", namespace: str) -> NamespaceState:
    leader, unled = None, ""
    contents, unread = await _read_contents(cluster, namespace)
    try:
        leader = await read_leader(cluster, namespace)
    except TtlError as error:
        unled = str(error)
    return NamespaceState(namespace, contents, leader, unread or unled, unled, unread)


@dataclass(frozen=True, slots=True)
class ReachableArchives:
    """Archives of which folders can be read only if the policy is a file of this machine: implements `Archives`.

    Attributes:
        opened: Opens the archives.
        is_local: Whether the policy is a file of this machine.
        at_end: Closes their connections.
    """

    opened: OpenedArchives
    is_local: bool
    at_end: AsyncExitStack
    _to_close: dict[int, Archive] = field(default_factory=dict)

    def now(self) -> datetime:
        """See `shared.ports.Archives`."""
        return self.opened.now()

    async def find_cluster(self) -> ArchiveCluster:
        """See `shared.ports.Archives`."""
        return await self.opened.find_cluster()

    async def open(self, name: str, destination: ArchiveDestination) -> Archive:
        """See `shared.ports.Archives`."""
        check_reachable(name, destination, is_local=self.is_local)
        archive = await self.opened.open(name, destination)
        if id(archive) not in self._to_close and (close := getattr(archive, "close", None)):  # of a webhook
            self._to_close[id(archive)] = archive
            self.at_end.push_async_callback(close)
        return archive


@asynccontextmanager
async def opened_archives(force: InForce, *policies: PolicyInForce) -> AsyncIterator[Archives | None]:
    """Open the archives of the first policy that has any, and close them at the end of the block; None if none has."""
    async with AsyncExitStack() as at_end:
        chosen = next((one for one in policies if one.policy.archives), None)
        if chosen is None:
            yield None
            return
        reachable = ReachableArchives(OpenedArchives(force.identity), chosen.is_local, at_end)
        yield IdentifiedArchives(reachable, force.archive_ids, SystemClock().now)


def check_reachable(name: str, destination: ArchiveDestination, *, is_local: bool) -> None:
    """Check that a folder is one of this machine.

    Raises:
        PermanentError: It is a folder of the Pods of an installation.
    """
    if destination.url is not None and urlsplit(destination.url).scheme == "file" and not is_local:
        raise PermanentError(
            f"archive {name}: {destination.url} is a folder of the Pods of the installation, which this command cannot"
            " read; run it in such a Pod, or set --policy FILE if this machine has that folder"
        )
