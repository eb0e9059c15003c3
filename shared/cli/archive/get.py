"""`archive get`: print an archived object, its children, or its logs."""

import re
import sys
from datetime import datetime

import click

from shared.cli.archive.documents import (
    as_text,
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
from shared.cli.input.target import split_target
from shared.cli.output.messages import inform
from shared.core.archive.document import Document
from shared.core.values.objects import printable
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
