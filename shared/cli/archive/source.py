"""The archive of a command: named in a policy, opened with the credentials of the environment.

Before a command uses a destination, it checks which archive that is, as the processes do.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shared.adapters.config.settings import SettingsError, read_settings
from shared.cli.deleters.in_force import InForce, NamespaceState, check_reachable, read_in_force, read_states
from shared.cli.input.options import (
    CallableT,
    Options,
    cluster_options,
    home_namespace,
    kinds_dir_option,
    known_kinds,
    read_policy,
)
from shared.cli.input.target import connected
from shared.cli.output.printing import inform
from shared.core.archive.identity import ArchiveCluster, parse_cluster_part
from shared.core.archive.layout import prefix_of
from shared.core.kinds.rule import Catalogue
from shared.core.policy.archives import ArchiveDestination
from shared.core.policy.policy import Policy
from shared.core.values.objects import printable
from shared.errors import OtherArchiveError, TtlError
from shared.evaluation.archive_identity import ClusterIdentity, IdentifiedArchive
from shared.ports.archive import Archive
from shared.safeguards.archive_ids import ReadArchiveIds

if TYPE_CHECKING:  # the clients of the stores take long to load
    from shared.adapters.archive.archive import StoreArchive
    from shared.adapters.kubernetes.cluster import KubernetesCluster

_NONE_REMEMBERS = "no installation and no `run` on this cluster remembers an archive of this name or destination"

NO_CLUSTER = "no cluster is configured"
"""Why it is unknown which cluster this is, and which archive a destination is."""

archive_option = click.option(
    "--archive", metavar="NAME", default="", help="One of the policy's archives. Default: its only archive with a url."
)
archive_cluster_option = click.option(
    "--cluster",
    metavar="NAME",
    default="",
    help="A cluster in the archive: its name, or NAME.ID if several have the name. Default: this cluster.",
)

archive_policy_option = click.option(
    "--policy",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The policy that names the archives. Default: $TTL_POLICY, else the installed policy.",
)


@dataclass(frozen=True, slots=True)
class IdentityCheck:
    """Whether a destination is the archive that an installation or a `run` remembers.

    Attributes:
        ids: What it remembers, for a check at each later use; None if that is unknown.
        unchecked: Why it is unknown which archive the destination is; empty if it is the one that the first state that
            remembers an archive remembers, and each state before it can be read.
    """

    ids: ReadArchiveIds | None = None
    unchecked: str = ""


async def check_identity(archive: "StoreArchive", states: Sequence[NamespaceState]) -> IdentityCheck:
    """Compare the marker of an archive with the shared states of a cluster.

    The destination may be the archive that an installation remembers, or that of a `run`: both may use one name. The
    state of the installation comes first.

    Raises:
        OtherArchiveError: None of those that remember an archive remembers this one.
        TryLaterError: The store is away.
        PermanentError: The store refuses, or what is remembered is damaged.
    """
    other: OtherArchiveError | None = None
    unread = ""
    for state in states:
        unread = unread or (f"the shared state cannot be read: {state.unread}" if state.unread else "")
        ids = ReadArchiveIds((state.contents,))
        if not await ids.find(archive.name, archive.location):
            continue
        try:
            await IdentifiedArchive(archive, ids).identify()
        except OtherArchiveError as error:
            other = other or error
        else:
            # Anyone may leave a state in the namespace of `run`: it is no word about the archive of the installation.
            return IdentityCheck(ids, unread or (str(other) if other is not None else ""))
    if other is not None:
        raise other
    return IdentityCheck(unchecked=unread or _NONE_REMEMBERS)


def archive_options(command: CallableT) -> CallableT:
    """Add the options that name an archive to a command, except --namespace."""
    command = kinds_dir_option(cluster_options(archive_cluster_option(command)))
    return archive_option(archive_policy_option(command))


@dataclass(frozen=True, slots=True)
class ArchiveSource:
    """An open archive, and what a command needs to read it.

    Attributes:
        archive: The archive.
        name: Its name in the policy.
        destination: Its part of the policy.
        cluster: The cluster that is selected, as in the keys; empty if the archive has none.
        kinds: All known kinds.
        policy: The policy.
        own_name: The name of this cluster in the settings or the installation.
        here: This cluster; None if its id is unknown.
        unknown: Why the id of this cluster is unknown; empty if it is known.
    """

    archive: "StoreArchive"
    name: str
    destination: ArchiveDestination
    cluster: str
    kinds: Catalogue
    policy: Policy
    own_name: str
    here: ArchiveCluster | None = None
    unknown: str = ""

    @property
    def this_cluster(self) -> str:
        """This cluster, for people."""
        return f"this cluster, {self.here or f'{self.own_name} (id unknown)'}"

    def report_cluster(self) -> None:
        """Say which cluster is selected, unless it is this one."""
        if not self.cluster or (self.here is not None and parse_cluster_part(self.cluster).is_of(self.here.id)):
            return
        if not parse_cluster_part(self.cluster).short_id:
            why = "a version before ids stored its documents, so it is unknown whether they are of"
            inform(printable(f"note: archive {self.name}: cluster {self.cluster}; {why} {self.this_cluster}"))
            return
        reason = "" if self.unknown == NO_CLUSTER else f": {self.unknown}"
        why = f"not {self.this_cluster}" if not self.unknown else f"the id of this cluster is unknown{reason}"
        inform(printable(f"note: archive {self.name}: cluster {self.cluster}; {why}"))


@dataclass(frozen=True, slots=True)
class NamedArchive:
    """An archive of a policy, before it is opened.

    Attributes:
        name: Its name in the policy.
        destination: Its part of the policy.
        kinds: All known kinds.
        policy: The policy.
        cluster: The name of this cluster in the settings or the installation.
        is_local: Whether the policy is a file of this machine.
        states: The shared states of the cluster; None if they have not been read.
    """

    name: str
    destination: ArchiveDestination
    kinds: Catalogue
    policy: Policy
    cluster: str
    is_local: bool
    states: Sequence[NamespaceState] | None = None


async def find_archive(options: Options, cluster: "KubernetesCluster | None" = None) -> NamedArchive:
    """Find the archive that the options name.

    Args:
        options: They name the policy and the archive.
        cluster: A connected cluster, if the command has one; it is needed for the installed policy only.

    Raises:
        TtlError: There is no such archive.
    """
    settings = read_settings()
    path: Path | None = options.policy or settings.policy
    if path is not None:
        kinds = known_kinds(options.kinds_dir)
        policy = read_policy(path, kinds)
        name = choose_archive(policy.archives, options.archive, f"policy {path}")
        return NamedArchive(name, policy.archives[name], kinds, policy, settings.cluster_name, is_local=True)
    if cluster is not None:
        return _installed(await read_in_force(cluster, options), options.archive)
    async with connected(options) as found:
        return _installed(await read_in_force(found, options), options.archive)


def _installed(force: InForce, asked: str) -> NamedArchive:
    chosen = force.choose(None)
    if not chosen.name:
        raise TtlError(f"no policy names an archive: {printable(chosen.why)}; set --policy FILE")
    name = choose_archive(chosen.policy.archives, asked, chosen.name)
    destination = chosen.policy.archives[name]
    return NamedArchive(
        name, destination, force.kinds, chosen.policy, force.cluster_name, is_local=False, states=force.usual_states
    )


async def open_source(options: Options, cluster: "KubernetesCluster | None" = None) -> ArchiveSource:
    """Open the archive that the options name; see `find_archive`.

    A command that only reads the archive needs no cluster: without one, the id of this cluster is unknown.

    Raises:
        TtlError: There is no such archive, or it cannot be read.
    """
    if cluster is not None:
        return await _open_source(options, cluster)
    async with reached(options) as found:
        return await _open_source(options, found)


async def _open_source(options: Options, cluster: "KubernetesCluster | None") -> ArchiveSource:
    named = await find_archive(options, cluster)
    archive = open_named(named)
    if unchecked := (await check_named(named, archive, cluster)).unchecked:
        inform(printable(f"note: which archive {archive.location} is was not checked: {unchecked}"))
    here, unknown = None, NO_CLUSTER
    if cluster is not None:
        try:
            here, unknown = await ClusterIdentity.of(named.cluster, cluster).find(), ""
        except TtlError as error:
            unknown = str(error)
    found = await find_cluster(archive, options.cluster, usual=named.cluster, here=here, name=named.name)
    source = ArchiveSource(
        archive=archive,
        name=named.name,
        destination=named.destination,
        cluster=found,
        kinds=named.kinds,
        policy=named.policy,
        own_name=named.cluster,
        here=here,
        unknown=unknown,
    )
    if found:
        await _report_others(source, options.cluster)
    return source


async def check_named(
    named: NamedArchive, archive: "StoreArchive", cluster: "KubernetesCluster | None"
) -> IdentityCheck:
    """Check that an archive is the remembered one; see `check_identity`.

    Args:
        named: The archive.
        archive: The open archive.
        cluster: The cluster whose shared states count; None if no cluster is configured.
    """
    states = named.states
    if states is None and cluster is None:
        return IdentityCheck(unchecked=NO_CLUSTER)
    if states is None and cluster is not None:
        states = await read_states(cluster, home_namespace())
    return await check_identity(archive, states or ())


@asynccontextmanager
async def reached(options: Options) -> AsyncIterator["KubernetesCluster | None"]:
    """Connect to the cluster, if a cluster is configured; nothing is sent yet."""
    async with AsyncExitStack() as stack:
        try:
            cluster = await stack.enter_async_context(connected(options))
        except SettingsError:
            raise
        except TtlError:
            cluster = None
        yield cluster


async def _report_others(source: ArchiveSource, asked: str) -> None:
    """Say which documents that can be of this cluster are not selected: under another name, or without an id.

    Args:
        source: The archive.
        asked: The cluster that a person has named; empty for none.
    """
    parts = [one async for one in source.archive.folders(prefix_of()) if one != source.cluster]
    parsed = [(one, parse_cluster_part(one)) for one in parts]
    renamed = [one for one, part in parsed if source.here is not None and part.is_of(source.here.id)]
    without = [one for one, part in parsed if not part.short_id]
    has_named_id = asked == source.cluster and bool(parse_cluster_part(asked).short_id)
    found = [
        (renamed if not has_named_id else [], "of this cluster under another name"),
        (without, "without the id of a cluster, of a version before ids"),
    ]
    for names, what in found:
        if names:
            listed = ", ".join(names)
            inform(
                printable(f"note: archive {source.name} also has documents {what}; --cluster selects them: {listed}")
            )


def open_named(named: NamedArchive) -> "StoreArchive":
    """Open an archive, for a command that needs no name of a cluster.

    Raises:
        TtlError: It cannot be read.
    """
    check_reachable(named.name, named.destination, is_local=named.is_local)
    return open_destination(named.name, named.destination)


def choose_archive(archives: Mapping[str, ArchiveDestination], asked: str, policy: str) -> str:
    """Choose the archive that is asked for, or the only one that this program can read.

    Args:
        archives: The archives of the policy.
        asked: The name that is asked for; empty for none.
        policy: The name of the policy, for messages.

    Raises:
        TtlError: There is no such archive, or there are several.
    """
    if not archives:
        raise TtlError(f"{policy} has no archives; expected `archives: {{NAME: {{url: …}}}}`: set --policy FILE")
    readable = [name for name, one in archives.items() if one.url is not None]
    if asked and asked not in archives:
        raise TtlError(f"--archive: unknown archive {asked!r}; expected one of {', '.join(archives)}, as in {policy}")
    if asked and asked not in readable:
        raise TtlError(f"--archive: {_describe_foreign(asked, archives[asked])}")
    if asked:
        return asked
    if not readable:
        name, one = next(iter(archives.items()))
        raise TtlError(f"{policy}: {_describe_foreign(name, one)}")
    if len(readable) > 1:
        raise TtlError(f"{policy} has several archives: choose one with --archive: {', '.join(readable)}")
    return readable[0]


def _describe_foreign(name: str, destination: ArchiveDestination) -> str:
    where = "its webhook" if destination.webhook else "Tekton Results"
    return f"archive {name} is stored by {where}, which this program cannot read; use the tools of that archiver"


def open_destination(name: str, destination: ArchiveDestination) -> "StoreArchive":
    """Open an archive with a URL; nothing is sent before its first use.

    Raises:
        TtlError: The credentials are missing, or the URL cannot be used.
    """
    from shared.adapters.archive.open_archive import open_archive  # noqa: PLC0415 - loads the clients of all stores

    encryption = destination.encryption
    given = encryption.model_dump(by_alias=True, exclude_none=True) if encryption else None
    return open_archive(name, destination.url or "", given)


async def find_cluster(archive: Archive, asked: str, *, usual: str, here: ArchiveCluster | None, name: str) -> str:
    """Find the cluster in the archive: the one that is asked for, else this one, else the only one.

    Args:
        archive: The archive.
        asked: The name that is asked for, with or without an id; empty for none.
        usual: The name of the installation or of the settings.
        here: This cluster; None if its id is unknown.
        name: The name of the archive, for messages.

    Returns:
        The cluster as in the keys; empty if nothing is archived.

    Raises:
        TtlError: The archive does not have the cluster, or has several.
    """
    parts = [one async for one in archive.folders(prefix_of())]
    if not parts:
        return ""
    if asked in parts:
        return asked
    if here is not None and (own := _of_id(parts, here, asked)):
        return _only(own, here.name, name)
    named = [one for one in parts if parse_cluster_part(one).name == (asked or usual)]
    if asked and not named:
        raise TtlError(f"archive {name} has no cluster {asked!r}; expected one of {', '.join(parts)}")
    return _only(named if asked or (named and here is None) else parts, "", name)


async def find_own(archive: Archive, here: ArchiveCluster, *, name: str) -> str:
    """Find this cluster in the archive; return it as in the keys, or empty text if it has archived nothing.

    Raises:
        TtlError: The archive has several names of this cluster.
    """
    own = _of_id([one async for one in archive.folders(prefix_of())], here, "")
    return _only(own, here.name, name) if own else ""


def _of_id(parts: Sequence[str], here: ArchiveCluster, asked: str) -> Sequence[str]:
    """Return the clusters in an archive with the id of this one, and with a name if one is asked for."""
    parsed = [(one, parse_cluster_part(one)) for one in parts]
    return [one for one, part in parsed if part.is_of(here.id) and asked in ("", part.name)]


def _only(parts: Sequence[str], preferred: str, name: str) -> str:
    """Return the cluster with a name, or the only one.

    Raises:
        TtlError: There are several.
    """
    for one in parts:
        if len(parts) == 1 or parse_cluster_part(one).name == preferred:
            return one
    raise TtlError(f"archive {name} has several clusters: choose one with --cluster: {', '.join(parts)}")
