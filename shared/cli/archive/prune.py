"""`archive prune` and `archive lifecycle`: the retention of an archive."""

import os
import shlex
import sys
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from shared.cli.archive.source import (
    archive_option,
    archive_policy_option,
    check_named,
    find_archive,
    open_named,
    reached,
)
from shared.cli.input.command import command
from shared.cli.input.options import Options, cluster_options, duration_option, kinds_dir_option
from shared.cli.output.printing import confirm, echo, inform, plural
from shared.core.archive.destination import S3, Destination, parse_destination
from shared.core.archive.layout import prefix_of
from shared.core.archive.prune import find_prune_refusal, lifecycle_command, lifecycle_rule, lifecycle_scope
from shared.core.policy.archives import ArchiveDestination
from shared.core.values.objects import printable
from shared.core.values.timing import format_duration
from shared.errors import TtlError
from shared.evaluation.archive_identity import IdentifiedArchive
from shared.usecases.archives.retention import PruneReport, prune_archive

if TYPE_CHECKING:  # the clients of the stores take long to load
    from shared.adapters.archive.archive import StoreArchive

_keep_option = click.option(
    "--keep", callback=duration_option, metavar="TIME", help="How long documents are kept. Default: keep of the policy."
)


@command()
@_keep_option
@click.option("--all", "everything", is_flag=True, help="Delete all that has expired, even most of the archive.")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@click.option("--unchecked", is_flag=True, help="Delete although no shared state says which archive this is.")
@click.option("--dry-run", is_flag=True, help="Only count what has expired.")
@archive_option
@archive_policy_option
@kinds_dir_option
@cluster_options
async def prune(
    options: Options, *, keep: timedelta | None, everything: bool, yes: bool, unchecked: bool, dry_run: bool
) -> None:
    """Delete the documents and logs that are older than `keep` of the archive, of all clusters.

    The `keep` of this policy counts for all clusters that use the archive. Nothing is deleted if a list fails or comes
    back empty, or if more than half of the archive has expired. Nothing is deleted in a destination that is not the
    archive that the installation or a `run` remembers. If a bucket can do that itself, use its lifecycle rules instead:
    `archive lifecycle` prints them.
    """
    async with reached(options) as cluster:
        named = await find_archive(options, cluster)
        kept = _find_keep(named.name, named.destination, keep)
        archive = open_named(named)
        checked = await check_named(named, archive, cluster)
    if not [cluster async for cluster in archive.folders(prefix_of())]:
        inform(f"archive {named.name} is empty")
        return
    if checked.unchecked:
        _check_asked(f"which archive {archive.location} is was not checked: {checked.unchecked}", unchecked or dry_run)
    now = await _store_time(archive)
    found = await prune_archive(archive, kept, now, everything=True, dry_run=True)
    _check(found)
    expired = f"{_describe(found.count.expired, found.count.expired_bytes)} older than {format_duration(kept)}"
    if dry_run or not found.count.expired:
        echo(f"{expired}{'; dry run: nothing is deleted' if dry_run else ''}")
    if refusal := find_prune_refusal(found.count, everything=everything):
        raise TtlError(f"`archive prune` needs --all to delete them: {refusal}")
    if dry_run or not found.count.expired:
        return
    if not yes:
        _confirm(expired, named.name)
    identified = IdentifiedArchive(archive, checked.ids) if checked.ids else archive
    report = await prune_archive(identified, kept, now, everything=everything)
    _check(report)
    echo(f"{_describe(report.deleted, report.deleted_bytes)} deleted from archive {named.name}")


def _check_asked(problem: str, is_asked: bool) -> None:
    """Raise an error if nothing may be deleted in an archive of which it is unknown which one it is."""
    if not is_asked:
        raise TtlError(printable(f"{problem}; nothing was deleted: set --unchecked to delete nevertheless"))
    inform(printable(f"note: {problem}"))


def _describe(files: int, size: int) -> str:
    return f"{plural(files, 'file')} ({plural(size, 'byte')})"


def _with_region(command: str, destination: Destination) -> str:
    """Add the region of the bucket to a command of aws, which has its own default."""
    region = destination.options.get("region")
    return f"{command} --region {shlex.quote(region)}" if region and destination.scheme == S3 else command


def _find_keep(name: str, destination: ArchiveDestination, keep: timedelta | None) -> timedelta:
    """Return how long documents are kept.

    Raises:
        TtlError: Neither the policy nor the command says how long.
        UsageError: The time is 0.
    """
    kept = keep if keep is not None else destination.keep
    if kept is None:
        raise TtlError(f"archive {name} has no `keep`, so its documents are kept for ever; set --keep TIME")
    if not kept:
        raise click.UsageError("--keep: expected more than 0: everything would be deleted")
    return kept


async def _store_time(archive: "StoreArchive") -> datetime:
    """Return an instant that the clock of the store has reached.

    Raises:
        TtlError: The store accepts no write, so that its clock is unknown.
    """
    probe = await archive.probe(f"prune-{os.getpid()}-{time.time_ns()}")
    if probe.stored_at is None:
        raise TtlError(f"nothing was deleted: the clock of the store is unknown: {probe.problems['write']}")
    return probe.stored_at - timedelta(seconds=1)


def _check(report: PruneReport) -> None:
    """Raise an error if a round was skipped or has stopped."""
    if problem := report.skipped or report.problem:
        raise TtlError(printable(problem))


def _confirm(expired: str, name: str) -> None:
    if not sys.stdin.isatty():
        raise TtlError(f"{expired}; nothing was deleted: set --yes to delete them without a question")
    confirm(f"{expired}. Delete them from archive {name}?")


@command()
@_keep_option
@click.option("-o", "--output", type=click.Choice(["json", "xml"]), default="json", help="The format. Default: json.")
@archive_option
@archive_policy_option
@kinds_dir_option
@cluster_options
async def lifecycle(options: Options, *, keep: timedelta | None, output: str) -> None:
    """Print the lifecycle rule with which the bucket of an archive deletes old documents itself.

    Standard error has the command that applies the rule. It replaces all lifecycle rules of the bucket, and in Azure
    those of all containers of the storage account: add the rule to those that exist. In S3 with versioning, the rule
    deletes noncurrent versions after one day. `xml` is for the REST API of S3.
    """
    named = await find_archive(options)
    kept = _find_keep(named.name, named.destination, keep)
    destination = parse_destination(named.destination.url or "")
    try:
        rule = lifecycle_rule(destination, kept, output)
        command = _with_region(lifecycle_command(destination, f"lifecycle.{output}"), destination)
    except ValueError as error:
        raise TtlError(f"archive {named.name}: {error}") from None
    click.echo(rule, nl=False)
    scope = lifecycle_scope(destination)
    inform(f"save it as lifecycle.{output}; this command applies it in place of all rules of {scope}: {command}")
