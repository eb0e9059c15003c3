"""`explain`: the decision about one object, its reason, and what to do."""

import sys
from datetime import datetime

import click

from shared.adapters.clock import SystemClock
from shared.cli.explanation.explanation_printer import ExplanationPrinter
from shared.cli.explanation.offline_stream import OfflineStream, read_namespaces
from shared.cli.input.command import command
from shared.cli.input.documents import open_file, read_documents, seekable
from shared.cli.input.options import (
    Options,
    context_namespace_option,
    known_kinds,
    object_options,
    output_option,
    read_policy,
    references_dir_option,
)
from shared.cli.objects.preview import no_cyclic_collection
from shared.cli.output.messages import inform, show_count, show_progress
from shared.core.values.objects import parse_instant


def _instant(_context: click.Context, _parameter: click.Parameter, value: str | None) -> datetime | None:
    try:
        return None if value is None else parse_instant(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@command()
@click.argument("target", nargs=-1, metavar="KIND/NAME")
@click.option(
    "-f", "--filename", metavar="FILE", help="Explain every document of a YAML file, without a cluster; - for stdin."
)
@click.option(
    "--now", callback=_instant, metavar="TIME", help="With -f: the time of the decision (RFC 3339). Default: now."
)
@context_namespace_option
@references_dir_option
@object_options
@output_option
async def explain(
    options: Options, *, target: tuple[str, ...], filename: str | None, now: datetime | None, output: str
) -> None:
    """Show the decision about an object, its reason and what to do; then its finish time, its TTL and its deadline.

    For a Secret or a ConfigMap: show which objects refer to it, or since when it is unused.

    If the object does not exist, the archives of the policy are searched for it.

    The installed policy applies, unless --policy or $TTL_POLICY names another. With -f, only a named policy applies.
    If the policy in force or another fact is unknown, and may change the decision, the exit code is 1.
    """
    if filename is not None:
        if target:
            raise click.UsageError("expected either KIND/NAME or -f FILE, got both")
        await _explain_file(options, filename, now or SystemClock().now(), output)
        return
    if now is not None:
        raise click.UsageError("--now requires -f: for an object of a cluster, the cluster's clock counts")
    from shared.cli.explanation.live_explanation import explain_live  # noqa: PLC0415 - `-f` needs no cluster

    await explain_live(options, target, output)


async def _explain_file(options: Options, filename: str, now: datetime, output: str) -> None:
    """Print the decisions about the objects of a file while it is read."""
    kinds = known_kinds(options.kinds_dir)
    policy = read_policy(options.policy, kinds)
    printer = ExplanationPrinter(output)
    with sys.stdin if filename == "-" else open_file(filename) as opened, no_cyclic_collection():
        stream = seekable(opened)
        decider = OfflineStream(kinds, now, policy, read_namespaces(stream, filename))
        async for found in decider.find(show_count(read_documents(stream, filename))):
            show_progress("")
            printer.print([(one, None) for one in found])
        if not decider.is_any:
            inform(f"note: {filename} has no objects")
    printer.end()
