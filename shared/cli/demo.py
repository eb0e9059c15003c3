"""`demo`: delete finished Jobs and Pods on a local API server, in about 20 seconds, without a cluster."""

import asyncio
import logging
from datetime import datetime
from typing import TYPE_CHECKING

import click
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from shared.adapters.clock import SystemClock
from shared.adapters.telemetry.log_lines import configure_logging
from shared.cli.input.command import command
from shared.cli.output.printing import echo
from shared.errors import TtlError

if TYPE_CHECKING:
    from shared.devserver.demo import Actor, Show

NEXT = """
Try next, on the cluster of your current context (nothing is deleted):
  ttl-after-finished plan               what is due now, and what is due later
  ttl-after-finished explain job/NAME   the decision about one object, and why
  ttl-after-finished run --dry-run      every step except the DELETE
In a clone, the program is .venv/bin/ttl-after-finished."""


@command()
@click.option("-v", "--verbose", is_flag=True, help="Show the log instead of the live view.")
async def demo(verbose: bool) -> None:
    """Show finished Jobs and Pods that are deleted when their TTL expires. Needs no cluster; ends by itself."""
    try:
        from shared.devserver.demo import running_show  # noqa: PLC0415 - the image does not contain it
    except ModuleNotFoundError as error:
        to_do = "in a clone, run `make demo`, or `pip install '.[demo]'`"
        raise TtlError(f"the demo is not installed: {to_do} ({error})") from None
    configure_logging("text", level=logging.INFO if verbose else logging.CRITICAL)
    console = Console()
    console.print("starting an API server and `run` on it; the demo then takes about 15 seconds", soft_wrap=True)
    async with running_show() as (what, show, playing):
        console.print(f"API server: {what}", soft_wrap=True)
        with Live(console=console, refresh_per_second=10, transient=True) as live:
            try:
                while not playing.done():
                    if not verbose:
                        live.update(_view(show, SystemClock().now()))
                    await asyncio.sleep(0.1)
            finally:
                live.update("", refresh=True)  # at its end, Live prints the rows that did not fit the terminal
        await playing
    console.print(_view(show, SystemClock().now()))
    _print_result(show)
    click.echo(NEXT)


def _print_result(show: "Show") -> None:
    problems = [f"{actor.kind} {actor.name}: {actor.problem}" for actor in show.actors if actor.problem]
    problems += [f"{actor.kind} {actor.name}: not deleted" for actor in show.left_over]
    problems += [
        f"{actor.kind} {actor.name}: not restored"
        for actor in show.actors
        if actor.is_restored and not actor.restored_as
    ]
    if problems:
        raise TtlError("; ".join(problems))
    restored = sum(bool(actor.restored_as) for actor in show.actors)
    late = [(one.gone_at - one.due_at).total_seconds() for one in show.actors if one.gone_at and one.due_at]
    kept = sum(actor.ttl is None for actor in show.actors)
    echo(
        f"{len(late)} deleted on time (none early, at most {max(late) * 1000:.0f} ms late), {kept} kept as expected, "
        f"{restored} archived first and restored"
    )


def _view(show: "Show", now: datetime) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("OBJECT", "WHY", "FINISHED", "DUE IN", "STATE"):
        table.add_column(name, no_wrap=name != "WHY")
    table.add_column("LATENESS", justify="right", no_wrap=True)
    for actor in show.actors:
        table.add_row(f"{actor.kind.lower()}/{actor.name}", actor.story, *_state(actor, now))
    return table


def _state(actor: "Actor", now: datetime) -> tuple[str, str, str, str]:
    finished = f"{actor.finished_at:%H:%M:%S}" if actor.finished_at else "-"
    if actor.problem:
        return finished, "", f"[bold red]{actor.problem}", ""
    if actor.gone_at and actor.due_at:
        state = "restored" if actor.restored_as else "deleted"
        return finished, "", f"[green]{state}", f"{(actor.gone_at - actor.due_at).total_seconds() * 1000:.0f} ms"
    if actor.finished_at is None:
        return finished, "", "running", ""
    if actor.due_at is None:
        return finished, "", "[cyan]kept", ""
    left = (actor.due_at - now).total_seconds()
    return finished, f"{left:.1f} s" if left > 0 else "now", "waiting", ""
