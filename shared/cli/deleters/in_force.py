"""What is in force on a cluster: the installation and its policy, a `run`, an open breaker, names in a loop."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from shared.adapters.config.settings import read_settings
from shared.cli.options.click_options import NONE
from shared.cli.options.values import cluster_flags, home_namespace, known_kinds, read_policy
from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import NO_POLICY, Policy
from shared.errors import TtlError
from shared.installation.defaults import RUN
from shared.installation.installed import Installed, read_installed
from shared.installation.leader import Leader, read_leader
from shared.safeguards.state_schema import StateContents

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands need none
    from shared.adapters.kubernetes.cluster import KubernetesCluster


CLUSTER = "cluster"
"""In place of a file: the policy that is installed, or an error."""


@dataclass(frozen=True, slots=True)
class PolicyInForce:
    """A policy, and what to call it.

    Attributes:
        policy: Its rules.
        name: A file, or `ConfigMap ttl-after-finished/policy-x`; empty where there is none.
        why: Why there is none, or why it is not known.
        is_known: Whether it is what is in force, or what was asked for.
        differs: That a `run` which leads uses another policy; empty where none does, as far as its Lease says.
    """

    policy: Policy
    name: str = ""
    why: str = ""
    is_known: bool = True
    differs: str = ""

    def __str__(self) -> str:
        """`no policy` where it has no name."""
        return self.name or "no policy"

    @property
    def message(self) -> str:
        """In one line, with the reason."""
        return "; ".join(part for part in (self._named, self.differs) if part)

    @property
    def _named(self) -> str:
        if self.name:
            return self.name
        return (
            f"none: {self.why}" if self.is_known else f"judged without one: {self.why}; --policy FILE|none says which"
        )


@dataclass(frozen=True, slots=True)
class NamespaceState:
    """A namespace in which who deletes may have a Lease, and keep what stands.

    Attributes:
        contents: What stands; nothing where that could not be read.
        leader: A `run` that has, or had, its Lease there.
        problem: What could not be read, and why.
    """

    namespace: str
    contents: StateContents
    leader: Leader | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class InForce:
    """What was found.

    Attributes:
        home: The namespace in which an installation was looked for.
        kinds: All that are known: with the rules of one's own directory, else with those of the installation.
        installed: The installation; None where there is none, or that cannot be told.
        problem: Why it cannot be told whether there is one.
        homes: That namespace, the one of a `run`, and that of its state if it is another.
        flags: What leads kubectl to the same cluster.
    """

    home: str
    kinds: Catalogue
    installed: Installed | None = None
    problem: str = ""
    homes: Sequence[NamespaceState] = ()
    flags: tuple[str, ...] = ()

    @property
    def policy_problem(self) -> str:
        """Why it cannot be told which policy is installed; empty where it can."""
        return self.problem or (self.installed.problem if self.installed else "")

    @property
    def leader(self) -> Leader | None:
        """The `run` that leads; None where none does, as far as can be told. An installation's own Lease is none."""
        others = [one.leader for one in self.homes if not (self.installed and one.namespace == self.home)]
        return next((one for one in others if one and one.leads), None)

    def choose(self, asked: Path | None) -> PolicyInForce:
        """The policy to judge by: the file, or `none`, that was asked for, else $TTL_POLICY, else the installed one.

        Raises:
            TtlError: The file is no policy; or `cluster` was asked for, and there is none to compare with.
        """
        named = self._choose(asked)
        leader = self.leader
        if leader is None or leader.scope is None or not named.is_known or leader.scope.policy == named.policy.digest:
            return named
        mine = f"sha256:{named.policy.digest}" if named.policy.digest else "none"
        theirs = f"`run` {leader.holder} leads with {leader.scope.named_policy}, not with this one ({mine})"
        return replace(named, differs=theirs)

    def _choose(self, asked: Path | None) -> PolicyInForce:
        if asked == Path(NONE):
            return PolicyInForce(NO_POLICY, why="as was asked for")
        path = None if asked == Path(CLUSTER) else asked or read_settings().policy
        if path is not None:
            return PolicyInForce(read_policy(path, self.kinds), str(path))
        problem = self.policy_problem
        if asked and (problem or self.installed is None):
            raise TtlError(problem or f"nothing is installed in namespace {self.home}: expected a file, or none")
        if problem:
            return PolicyInForce(NO_POLICY, why=f"the one in force is not known: {problem}", is_known=False)
        if self.installed is None:
            return self._of_run()
        why = "" if self.installed.policy_name else f"the installation in namespace {self.home} has no policy"
        return PolicyInForce(self.installed.policy, self.installed.policy_name, why)

    def _of_run(self) -> PolicyInForce:
        """Where nothing is installed: the policy of a `run` is a file on another machine."""
        why = f"nothing is installed in namespace {self.home}"
        leader = self.leader
        if leader is None:
            return PolicyInForce(NO_POLICY, why=why)
        if leader.scope is None:
            why = f"{why}, and what `run` goes by only {leader.holder} knows"
            return PolicyInForce(NO_POLICY, why=why, is_known=False)
        why = f"{why}, and `run` {leader.holder} leads with {leader.scope.named_policy}"
        return PolicyInForce(NO_POLICY, why=why, is_known=not leader.scope.policy)


async def read_in_force(
    cluster: "KubernetesCluster", kinds_dir: Path | None, *, kubeconfig: str | None, context: str | None
) -> InForce:
    """Look for an installation, and for a `run`. What may not be read is told, and keeps nobody from going on.

    Args:
        cluster: Where to look.
        kinds_dir: A directory of kind rules, which then count in place of the installation's.
        kubeconfig: How the cluster was named.
        context: Likewise.

    Raises:
        TtlError: A rule of the directory is none.
    """
    home, kinds = home_namespace(), known_kinds(kinds_dir)
    (installed, problem), homes = await asyncio.gather(
        _read_installed(cluster, home),
        _read_homes(cluster, home),
    )
    if installed and kinds_dir is None and read_settings().kinds_dir is None:
        kinds = installed.kinds
    return InForce(home, kinds, installed, problem, homes, cluster_flags(kubeconfig, context))


async def _read_installed(cluster: "KubernetesCluster", namespace: str) -> tuple[Installed | None, str]:
    try:
        return await read_installed(cluster, namespace), ""
    except TtlError as error:
        return None, str(error)


async def _read_homes(cluster: "KubernetesCluster", home: str) -> list[NamespaceState]:
    """That of an installation, that of a `run`, and another one in which the `run` that leads keeps its state."""
    homes = await asyncio.gather(*(_read_home(cluster, one) for one in dict.fromkeys((home, RUN))))
    elsewhere = [one.leader for one in homes if one.leader and one.leader.state not in (home, RUN)]
    others = await asyncio.gather(*(_read_home(cluster, one.state) for one in elsewhere))
    return [*homes, *(replace(one, leader=leader) for one, leader in zip(others, elsewhere, strict=True))]


async def _read_home(cluster: "KubernetesCluster", namespace: str) -> NamespaceState:
    from shared.adapters.kubernetes.state_configmap import read_contents  # noqa: PLC0415 - loads the client

    contents, leader, problem = StateContents(), None, ""
    try:
        contents = await read_contents(cluster, namespace)
        leader = await read_leader(cluster, namespace)
    except TtlError as error:
        problem = str(error)
    return NamespaceState(namespace, contents, leader, problem)
