"""`archive init` and `archive adopt`: which archive a destination is, and which one an installation means."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from shared.adapters.clock import SystemClock
from shared.adapters.kubernetes.state_configmap import ConfigMapState
from shared.cli.archive.source import NamedArchive, archive_option, archive_policy_option, find_archive, open_named
from shared.cli.deleters.in_force import InForce, read_in_force
from shared.cli.input.command import command
from shared.cli.input.options import Options, cluster_options, kinds_dir_option, namespace_option
from shared.cli.input.target import connected
from shared.cli.output.printing import confirm, echo, inform
from shared.core.archive.identity import MARKER, KnownArchive, Marker
from shared.core.values.objects import printable
from shared.errors import TtlError
from shared.evaluation.archive_identity import ClusterIdentity, new_id
from shared.installation.place import HOME, RUN
from shared.safeguards.archive_ids import remember_archive

if TYPE_CHECKING:  # the clients of the stores take long to load
    from shared.adapters.archive.archive import StoreArchive
    from shared.adapters.kubernetes.cluster import KubernetesCluster

_namespace_option = namespace_option(
    f"The namespace of the shared state. Default: $TTL_NAMESPACE (else {HOME}), and that of each `run`, else {RUN}."
)


@command()
@_namespace_option
@archive_option
@archive_policy_option
@kinds_dir_option
@cluster_options
async def init(options: Options) -> None:
    """Give an empty destination an id, which the installation remembers as that of its archive.

    The first object that is archived does the same. The id is in the marker archive.json. While the destination has
    another marker or none, nothing is stored there, and no object that has to be archived is deleted. A destination
    with a marker keeps it.
    """
    async with connected(options) as cluster:
        named = await find_archive(options, cluster)
        archive = open_named(named)
        marker = await archive.read_marker()
        if marker is None and not await archive.is_empty():
            raise TtlError(
                f"archive {named.name}: {archive.location} has documents and no marker {MARKER}: if it is the right "
                "archive, run `archive adopt`"
            )
        marker = marker or await archive.write_marker(await _new_marker(named, cluster))
        echo(_describe(named.name, archive, marker))
        known = KnownArchive(marker.id, archive.location)
        force = await read_in_force(cluster, options)
        for namespace in _namespaces(options, force, named.name):
            remembered = await remember_archive(ConfigMapState(cluster, namespace), named.name, known)
            if remembered and remembered != marker.id:
                raise TtlError(
                    f"namespace {namespace}: archive {named.name} is {printable(remembered)}, and stays it: to use "
                    f"{printable(marker.id)} from now on, run `archive adopt`"
                )
            echo(f"namespace {namespace}: archive {named.name} is {printable(marker.id)}")


@command()
@_namespace_option
@click.option("--yes", is_flag=True, help="Adopt without asking.")
@archive_option
@archive_policy_option
@kinds_dir_option
@cluster_options
async def adopt(options: Options, *, yes: bool) -> None:
    """Use the destination of an archive as it is from now on, whatever the installation remembers.

    Use it if the policy names another destination on purpose, or if a marker is lost. A destination without a marker
    gets one with a new id. What another archive has acknowledged does not count: finished objects that still exist are
    archived again before they are deleted.
    """
    async with connected(options) as cluster:
        named = await find_archive(options, cluster)
        archive = open_named(named)
        found = await archive.read_marker()
        force = await read_in_force(cluster, options)
        namespaces = _namespaces(options, force, named.name)
        before = _remembered(force, namespaces, named.name)
        what = f"{archive.location} is {f'archive {printable(found.id)}' if found else 'without a marker'}"
        instead = f"; until now, archive {named.name} was {' and '.join(before)}" if before else ""
        if not yes:
            _confirm(f"{what}{instead}", named.name)
        marker = found or await archive.write_marker(await _new_marker(named, cluster))
        echo(_describe(named.name, archive, marker))
        known = KnownArchive(marker.id, archive.location)
        for namespace in namespaces:
            replaced = await remember_archive(ConfigMapState(cluster, namespace), named.name, known, replaces=True)
            was = f" instead of {printable(replaced)}" if replaced not in ("", marker.id) else ""
            echo(f"namespace {namespace}: archive {named.name} is {printable(marker.id)}{was}")


async def _new_marker(named: NamedArchive, cluster: "KubernetesCluster") -> Marker:
    here = await ClusterIdentity.of(named.cluster, cluster).find()
    return Marker(new_id(), SystemClock().now().replace(microsecond=0), here.part)


def _describe(name: str, archive: "StoreArchive", marker: Marker) -> str:
    return f"archive {name}: {archive.location} is archive {printable(marker.id)}"


def _confirm(what: str, name: str) -> None:
    if not sys.stdin.isatty():
        raise TtlError(f"{what}; nothing was changed: set --yes to adopt it without a question")
    confirm(f"{what}. Use it as archive {name} from now on?")


def _namespaces(options: Options, force: InForce, name: str) -> Sequence[str]:
    """Return the namespaces whose shared state remembers the archive, or will.

    Those are the one that the operator names, else that of the installation, that of each `run`, and each that
    remembers an archive of this name already. None if nothing is installed and no `run` is known: the first process
    that stores an object remembers the marker.
    """
    if options.namespace:
        return (options.namespace,)
    found = [force.home] if force.installed else []
    for one in force.usual_states:
        if one.leader is not None:
            found.append(one.leader.state)
        if one.contents.archives is None or name in one.contents.archives:
            found.append(one.namespace)
    if not found:
        inform("nothing is installed, and no `run` is known: the first process that archives remembers the id")
    return tuple(dict.fromkeys(found))


def _remembered(force: InForce, namespaces: Sequence[str], name: str) -> Sequence[str]:
    """Return the ids that are remembered."""
    known = [one.contents.archives or {} for one in force.usual_states if one.namespace in namespaces]
    return sorted({printable(one[name].id) for one in known if name in one})
