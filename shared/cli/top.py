"""`top`: which namespaces and kinds pile up the most finished objects."""

import asyncio
import json
import sys
from datetime import timedelta

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.cli.deleters.in_force import PolicyInForce, opened_archives, read_in_force
from shared.cli.input.command import command
from shared.cli.input.options import (
    Options,
    all_namespaces_option,
    cluster_options,
    duration_option,
    kinds_dir_option,
    kinds_option,
    output_option,
    policy_in_force_option,
)
from shared.cli.input.target import connected
from shared.cli.objects.preview import describe_unread
from shared.cli.output.printing import warn
from shared.cli.output.tables import output_console
from shared.cli.planning.due_rows import By, Pile, count_piles, pile_table, piles_as_json
from shared.cli.planning.plan_preview import NamedKinds, read_preview
from shared.core.values.objects import printable

TOP_INTERVAL_SECONDS_MIN = 1.0
"""The shortest time between two reads: each lists all objects of the kinds."""


@command()
@all_namespaces_option
@kinds_option
@kinds_dir_option
@policy_in_force_option
@cluster_options
@click.option(
    "--by",
    type=click.Choice([one.value for one in By]),
    help="One row for each namespace, kind, source of the TTL, or owner. Default: for each namespace and kind.",
)
@click.option("--top", type=click.IntRange(min=1), metavar="N", default=20, show_default=True, help="The first N rows.")
@click.option(
    "--interval",
    callback=duration_option,
    metavar="TIME",
    default="10s",
    show_default=True,
    help="The time between two reads. Each read lists all objects of the kinds.",
)
@click.option("--once", is_flag=True, help="Print one table, and end. Default if standard output is no terminal.")
@output_option
async def top(options: Options, *, by: str | None, top: int, interval: timedelta, once: bool, output: str) -> None:
    """Show which namespaces and kinds pile up the most finished objects, until Ctrl-C. Deletes nothing.

    FINISHED is the number of finished objects that still exist. FOREVER of them are kept as long as nothing changes,
    for instance because no source sets a TTL. OLDEST is the time since the first of them finished. CHANGE is the change
    of FINISHED since `top` started.

    If the policy in force is unknown, none is applied, and the exit code is 1. The exit code is also 1 if another part
    could not be read.
    """
    group = By(by) if by else None
    async with connected(options) as cluster:
        piles, chosen, is_complete = await _read(cluster, options, group)
        if not chosen.is_known:
            warn(f"policy: {printable(chosen.message)}")
        if output == "json":
            click.echo(json.dumps(piles_as_json(piles[:top], group), indent=2))
        elif once or not sys.stdout.isatty():
            output_console().print(_view(piles[:top], group, None, output_console()))
        else:
            await _show(cluster, options, group, piles, top=top, seconds=interval.total_seconds())
    if not (chosen.is_known and is_complete):
        raise SystemExit(1)


async def _show(
    cluster: KubernetesCluster, options: Options, by: By | None, piles: list[Pile], *, top: int, seconds: float
) -> None:
    first = {pile.names: pile.finished for pile in piles}
    console = output_console()
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(_view(piles[:top], by, first, console), refresh=True)
            await asyncio.sleep(max(seconds, TOP_INTERVAL_SECONDS_MIN))
            piles, _, _ = await _read(cluster, options, by)


async def _read(cluster: KubernetesCluster, options: Options, by: By | None) -> tuple[list[Pile], PolicyInForce, bool]:
    """Read the piles and the policy in force; warn about what could not be read, and return whether all was."""
    force = await read_in_force(cluster, options)
    chosen = force.choose(options.policy)
    async with opened_archives(force, chosen) as archives:
        preview = await read_preview(
            cluster,
            force.kinds,
            [chosen.policy],
            named=NamedKinds.choose(options.kinds),
            namespace=options.namespace,
            archives=archives,
        )
    unread = list(describe_unread(preview.objects))
    for text in unread:
        warn(printable(text))
    return count_piles(preview.objects, by), chosen, not (unread or preview.refused or preview.unreadable)


def _view(
    piles: list[Pile], by: By | None, first: dict[tuple[str, ...], int] | None, console: Console
) -> RenderableType:
    if not piles:
        return Text("no finished objects")
    return Group(
        pile_table(piles, by, first, width=console.width),
        Text("FINISHED: still there. FOREVER: of these, kept for now. DUE 24H: due now or within a day."),
    )
