"""`archive ls`: what an archive has; no document is read."""

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import click

from shared.cli.archive.selection import check_selection, report_none, select, selection_options
from shared.cli.archive.source import ArchiveSource, archive_options, open_source
from shared.cli.archive.stored_table import StoredTable
from shared.cli.input.command import command
from shared.cli.input.options import Options
from shared.core.objects import format_instant
from shared.ports.archive import Stored
from shared.usecases.archive_search import ArchiveSelection, list_selected


@command()
@selection_options
@archive_options
@click.option(
    "-o", "--output", type=click.Choice(["table", "json", "name"]), default="table", help="The format. Default: table."
)
async def ls(
    options: Options, *, target: tuple[str, ...], all_namespaces: bool, since: timedelta | None, output: str
) -> None:
    """List archived objects, one for each stored resource version, by kind, by the day of the finish, and by name.

    KIND is a kind, or KIND/NAME one object. The time is that of the archiving, by the clock of the store. The list is
    printed while it is read.
    """
    words = check_selection(target, options, all_namespaces=all_namespaces)
    source = await open_source(options)
    source.report_cluster()
    selected = select(source, words, options, all_namespaces=all_namespaces, since=since)
    count = await _print(source, selected.selection, output)
    if not count:
        report_none(source, selected)


async def _print(source: ArchiveSource, selection: ArchiveSelection, output: str) -> int:
    """Print what is selected, page by page; return how many resource versions there are."""
    count = 0
    table = StoredTable(with_namespace=selection.namespaces is None)
    if source.cluster:
        async for page in list_selected(source.archive, selection):
            match output:
                case "json":
                    click.echo(("[\n" if count == 0 else ",\n") + ",\n".join(_json_lines(page)), nl=False)
                case "name":
                    click.echo("\n".join(name_of_stored(one) for one in page))
                case _:
                    click.echo("\n".join(table.lines(page)))
            count += len(page)
    if output == "json":
        click.echo("\n]" if count else "[]")
    return count


def _json_lines(page: Sequence[Stored]) -> Iterator[str]:
    for one in page:
        yield f"  {json.dumps(stored_as_json(one))}"


def stored_as_json(one: Stored) -> dict[str, Any]:
    """Return the documented JSON of one stored resource version."""
    key = one.key
    return {
        "apiVersion": key.api_version,
        "kind": key.kind,
        "namespace": key.namespace or None,
        "name": key.name,
        "uid": key.uid,
        "resourceVersion": key.resource_version,
        "archivedAt": format_instant(one.stored_at),
        "digest": key.digest,
        "cluster": key.cluster,
        "location": one.location,
    }


def name_of_stored(one: Stored) -> str:
    """Return the name of an object as kubectl prints it: `job.batch/build-42`."""
    group = one.key.group
    return f"{one.key.kind.lower()}{'.' if group else ''}{group}/{one.key.name}"
