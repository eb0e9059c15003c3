"""`archive diff`: the live object against the archived one."""

import difflib
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from shared.adapters.kubernetes.creation import ObjectCreation
from shared.cli.archive.documents import as_yaml, describe_record, read_chosen
from shared.cli.archive.get import version_options
from shared.cli.archive.selected import find_stored, target_argument
from shared.cli.archive.source import archive_options, open_source
from shared.cli.input.command import command
from shared.cli.input.options import Options, context_namespace_option
from shared.cli.input.target import connected, split_target
from shared.cli.output.messages import inform, wrapped
from shared.core.archive.server_fields import without_server_fields
from shared.core.values.objects import printable, ref_of
from shared.errors import TtlError
from shared.usecases.archives.search import Wanted

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
