"""`archive get` and `archive diff`: print an archived object, or compare it with the live one."""

import difflib
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from shared.adapters.kubernetes.creation import ObjectCreation
from shared.cli.archive.documents import (
    as_text,
    as_yaml,
    describe_log_problems,
    describe_record,
    explain_no_logs,
    read_children,
    read_chosen,
)
from shared.cli.archive.selected import find_stored, instant_option, target_argument
from shared.cli.archive.source import ArchiveSource, archive_options, open_source
from shared.cli.input.command import command
from shared.cli.input.options import CallableT, Options, context_namespace_option
from shared.cli.input.target import connected, split_target
from shared.cli.output.printing import inform, wrapped
from shared.core.archive.document import Document
from shared.core.archive.server_fields import without_server_fields
from shared.core.values.objects import printable, ref_of
from shared.errors import TtlError
from shared.usecases.archives.search import Wanted

_DIGEST = re.compile(r"[0-9a-f]{64}")


def version_options(command: CallableT) -> CallableT:
    """Add the options that choose one of several stored resource versions to a command."""
    at = click.option(
        "--at", callback=instant_option, metavar="TIME", help="As archived at this time (RFC 3339). Default: now."
    )
    version = click.option("--resource-version", metavar="VERSION", default="", help="Exactly this resource version.")
    digest = click.option(
        "--digest", callback=_digest_option, metavar="SHA256", default="", help="Exactly the document with this digest."
    )
    uid = click.option("--uid", metavar="UID", default="", help="The object with this uid. Default: the newest.")
    return uid(at(version(digest(command))))


def _digest_option(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Check the value of --digest."""
    if value and not _DIGEST.fullmatch(value):
        raise click.BadParameter(f"expected 64 digits of 0-9 and a-f, as `archive ls -o json` prints them, got {value}")
    return value


@command()
@target_argument
@context_namespace_option
@version_options
@click.option("--children", is_flag=True, help="Also the children that were archived with the object.")
@click.option("--logs", is_flag=True, help="Instead: the archived logs of the containers.")
@archive_options
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", help="The format. Default: yaml.")
async def get(
    options: Options,
    *,
    target: tuple[str, ...],
    uid: str,
    at: datetime | None,
    resource_version: str,
    digest: str,
    children: bool,
    logs: bool,
    output: str,
) -> None:
    """Print an archived object as the API server sent it, with its managedFields and its status.

    The newest resource version is printed; standard error names it, and says when it was archived, by the clock of the
    store. If several objects of the name are archived, the newest is printed, and standard error has the uids of the
    others. If several documents of the same version differ, none is printed unless --digest names it
    or they are signed.
    """
    split_target(target)
    source = await open_source(options)
    source.report_cluster()
    chosen = await find_stored(source, target, options, Wanted(uid, resource_version, at, digest))
    chosen, document = await read_chosen(source.archive, chosen)
    if others := chosen.describe_others():
        inform(printable(f"note: {others}"))
    inform(printable(describe_record(document, chosen.stored)))
    if logs:
        await _print_logs(source, document)
        return
    with_children = await read_children(source, chosen.stored.key, document) if children else []
    click.echo(as_text([one.obj for one in (document, *with_children)], output), nl=False)


async def _print_logs(source: ArchiveSource, document: Document) -> None:
    """Print each log, the first line of each being its path if there are several."""
    paths = document.record.logs
    for problem in describe_log_problems(document.record):
        inform(printable(problem))
    if not paths:
        raise TtlError(explain_no_logs(document.record))
    for path in paths:
        if len(paths) > 1:
            click.echo(f"==> {path} <==")
        sys.stdout.flush()
        async for chunk in source.archive.read_log(path):
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


FAILED = 2
"""The exit code if the objects cannot be compared, as for kubectl diff."""


class _DiffError(click.ClickException):
    exit_code = FAILED

    def format_message(self) -> str:
        return wrapped(self.message, first="Error: ")


@command()
@target_argument
@context_namespace_option
@version_options
@click.option(
    "--all-fields", is_flag=True, help="Also the fields that the API server and controllers set, with the status."
)
@archive_options
async def diff(
    options: Options,
    *,
    target: tuple[str, ...],
    uid: str,
    at: datetime | None,
    resource_version: str,
    digest: str,
    all_fields: bool,
) -> None:
    """Show how the live object differs from the archived one, as a unified diff.

    Fields that the API server sets are left out, such as the uid, and so is the status. The exit code is 0 if there is
    no difference, 1 if there is one, and 2 if the objects cannot be compared.
    """
    split_target(target)
    try:
        lines = await _compare(options, target, Wanted(uid, resource_version, at, digest), all_fields=all_fields)
    except TtlError as error:
        raise _DiffError(str(error)) from None
    if lines:
        click.echo("\n".join(map(printable, lines)))
        raise SystemExit(1)


async def _compare(options: Options, target: tuple[str, ...], wanted: Wanted, *, all_fields: bool) -> list[str]:
    async with connected(options) as cluster:
        source = await open_source(options, cluster)
        source.report_cluster()
        chosen = await find_stored(source, target, options, wanted)
        chosen, document = await read_chosen(source.archive, chosen)
        ref, creation = ref_of(document.obj), ObjectCreation(cluster)
        live = await creation.read(await creation.find_kind(ref.api_version, ref.kind), ref)
    if live is None:
        raise TtlError(f"{ref} does not exist on {cluster.server}; `archive get` prints the archived object")
    if others := chosen.describe_others():
        inform(printable(f"note: {others}"))
    inform(printable(describe_record(document, chosen.stored)))
    names = (f"archived {ref}, resource version {chosen.stored.key.resource_version}", f"live {ref}")
    return list(_lines(document.obj, live.obj, names, all_fields=all_fields))


def _lines(
    archived: dict[str, Any], live: dict[str, Any], names: tuple[str, str], *, all_fields: bool
) -> Iterator[str]:
    """Yield the lines of a unified diff; none if both are equal."""
    both = [one if all_fields else without_server_fields(one) for one in (archived, live)]
    before, after = (as_yaml(one).splitlines() for one in both)
    return difflib.unified_diff(before, after, names[0], names[1], lineterm="")
