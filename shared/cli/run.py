"""`run`: the whole thing in one process, on the cluster of the current context."""

import hashlib
import logging
import os
import socket
from contextlib import AsyncExitStack
from pathlib import Path

import click

from shared.adapters.bootstrap import World
from shared.adapters.memory import Memory
from shared.adapters.settings import read_settings, state_folder
from shared.adapters.telemetry import LogTelemetry, configure_logging
from shared.cli import options
from shared.core.durations import format_duration
from shared.local.lease import Lease
from shared.local.runner import Runner


@click.command()
@click.option("--dry-run", is_flag=True, help="Delete nothing, write nothing; say what would be deleted.")
@click.option("-n", "--namespace", default="", metavar="NAME", help="Only this namespace. Default: all.")
@options.kinds_option
@click.option("--sweep-interval", metavar="TIME", help="Between two looks at everything (10m).")
@click.option("--concurrency", metavar="N", help="DELETEs at once (64).")
@click.option(
    "--timers", metavar="FILE", help="The timers' SQLite file. Default: one per cluster, in your state folder."
)
@click.option("--lease/--no-lease", default=True, help="Be the only one of its kind in the cluster.")
@click.option("--lease-namespace", default="default", show_default=True, metavar="NAME", help="Where the Lease lies.")
@click.option("-v", "--verbose", is_flag=True, help="Also say what is kept, and why.")
@options.cluster_options
@options.asynchronous
async def run(
    dry_run: bool,
    namespace: str,
    kinds: str,
    sweep_interval: str | None,
    concurrency: str | None,
    timers: str | None,
    lease: bool,
    lease_namespace: str,
    verbose: bool,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Delete finished objects when their TTL is over, on the cluster of the current context, until Ctrl-C."""
    known, wanted = options.parse_kinds(kinds)
    given = {
        "TTL_SWEEP_INTERVAL": sweep_interval,
        "TTL_CONCURRENCY": concurrency,
        "TTL_DRY_RUN": "true" if dry_run else None,
    }
    settings = read_settings({name: value for name, value in given.items() if value is not None})
    configure_logging("text", level=logging.DEBUG if verbose else logging.INFO)
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(options.connected(kubeconfig, context, memory=Memory()))
        path = Path(timers) if timers else _timers_path(cluster.server, dry_run=settings.dry_run)
        settings = settings.model_copy(update={"timers_path": path})
        telemetry = LogTelemetry()
        world = World(settings, known, wanted, cluster=cluster, namespace=namespace, telemetry=telemetry)
        await cluster.check()
        plurals = ", ".join(rule.plural for rule in wanted.rules)
        place = f"namespace {namespace}" if namespace else "all namespaces"
        click.echo(f"ttl-after-finished: {plurals} in {place} of {cluster.server}", err=True)
        if settings.dry_run:
            click.echo("dry run: nothing will be deleted", err=True)
        elif lease:
            candidate = Lease(
                cluster,
                namespace=lease_namespace,
                name="ttl-after-finished",
                identity=f"{socket.gethostname()}/{os.getpid()}",
                clock=world.clock,
            )
            await stack.enter_async_context(candidate.held(_tell_leader))
        click.echo(f"sweep at start and every {format_duration(settings.sweep_interval)}; Ctrl-C stops", err=True)
        try:
            await Runner(world, cluster).run()
        finally:
            click.echo(_summary(telemetry), err=True)


def _timers_path(server: str, *, dry_run: bool) -> Path:
    """One file a cluster: a timer of another cluster would find its object gone, and be dropped."""
    digest = hashlib.sha256(server.encode()).hexdigest()[:12]
    folder = state_folder() / "ttl-after-finished"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"timers-{digest}{'-dry-run' if dry_run else ''}.db"


def _tell_leader(holder: str) -> None:
    click.echo(f"waiting: {holder} leads; --no-lease works beside it", err=True)


def _summary(telemetry: LogTelemetry) -> str:
    deleted, missed = (telemetry.count(what) for what in ("deleted", "missed-by-events"))
    return f"stopped: {deleted} deleted, {missed} of them found by a sweep only"
