"""`run`: the whole thing in one process, on the cluster of the current context."""

import asyncio
import hashlib
import logging
import os
import socket
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path

import click

from shared.adapters.bootstrap import World, build
from shared.adapters.cluster import KubernetesCluster
from shared.adapters.memory import Memory
from shared.adapters.settings import read_settings, state_folder
from shared.adapters.telemetry import LogTelemetry, configure_logging
from shared.cli import options
from shared.core.durations import format_duration
from shared.doctor.homes import LEASE, RUN
from shared.errors import TtlError
from shared.local.lease import LeadershipLostError, Lease
from shared.local.runner import Runner


@click.command()
@click.option("--dry-run", is_flag=True, help="Delete nothing, write nothing; say what would be deleted.")
@click.option("-n", "--namespace", default="", metavar="NAME", help="Only this namespace. Default: all.")
@options.kinds_option
@options.kinds_dir_option
@options.policy_option
@click.option("--sweep-interval", metavar="TIME", help="Between two looks at everything (10m).")
@click.option("--concurrency", metavar="N", help="DELETEs at once (64).")
@click.option(
    "--timers", metavar="FILE", help="The timers' SQLite file. Default: one per cluster, in your state folder."
)
@click.option("--lease/--no-lease", default=True, help="Be the only one of its kind in the cluster.")
@click.option("--lease-namespace", default=RUN, show_default=True, metavar="NAME", help="Where the Lease lies.")
@click.option("-v", "--verbose", is_flag=True, help="Also say what is kept, and why.")
@options.cluster_options
@options.asynchronous
async def run(
    dry_run: bool,
    namespace: str,
    kinds: str,
    kinds_dir: Path | None,
    policy: Path | None,
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
    given = {
        "TTL_KINDS": kinds,
        "TTL_KINDS_DIR": str(kinds_dir or ""),
        "TTL_POLICY": str(policy or ""),
        "TTL_SWEEP_INTERVAL": sweep_interval,
        "TTL_CONCURRENCY": concurrency,
        "TTL_TIMERS_PATH": timers,
        "TTL_DRY_RUN": "true" if dry_run else None,
    }
    settings = read_settings({name: value for name, value in given.items() if value})
    configure_logging(settings.log or "text", level=logging.DEBUG if verbose else logging.INFO)
    telemetry = LogTelemetry()
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(options.connected(kubeconfig, context, memory=Memory()))
        path = settings.timers_path or _timers_path(cluster.server, dry_run=settings.dry_run)
        world = build(settings.model_copy(update={"timers_path": path}))
        world.cluster, world.namespace, world.telemetry = cluster, namespace, telemetry
        world.home_namespace = settings.home_namespace or (lease_namespace if lease else "")
        stack.callback(world.measure())
        await cluster.check()
        candidate = Lease(
            cluster,
            namespace=lease_namespace,
            name=LEASE,
            identity=f"{socket.gethostname()}/{os.getpid()}",
            clock=world.clock,
        )
        _say(_banner(world, cluster.server, await options.name_served(world, cluster)))
        try:
            await _work(world, cluster, candidate if lease and not settings.dry_run else None)
        except asyncio.CancelledError:  # Ctrl-C, or SIGTERM: what was in flight is finished
            _say("stopped")
        finally:
            deleted, missed = (telemetry.counts[what] for what in ("deleted", "missed-by-events"))
            _say(f"{deleted} deleted, {missed} of them found by a sweep only")


async def _work(world: World, cluster: KubernetesCluster, candidate: Lease | None) -> None:
    """Run, as the leader if there is to be one; who loses the Lease waits for it again."""
    while True:
        try:
            async with candidate.held(_tell_wait) if candidate else nullcontext():
                interval = format_duration(world.settings.sweep_interval)
                _say(f"sweep at start and every {interval}; Ctrl-C stops")
                await Runner(world, cluster).run()
        except LeadershipLostError as error:
            _say(f"stopped leading: {error}")


def _banner(world: World, server: str, plurals: str) -> str:
    place = f"namespace {world.namespace}" if world.namespace else "all namespaces"
    dry_run = "\ndry run: nothing will be deleted" if world.settings.dry_run else ""
    return f"ttl-after-finished: {plurals} in {place} of {server}\n{_name_policy(world)}{dry_run}"


def _name_policy(world: World) -> str:
    if world.settings.policy is None:
        return "no policy"
    count = len(world.policy().rules)
    return f"policy {world.settings.policy}: {count} {'rule' if count == 1 else 'rules'}"


def _timers_path(server: str, *, dry_run: bool) -> Path:
    """One file a cluster: a timer of another cluster would find its object gone, and be dropped."""
    digest = hashlib.sha256(server.encode()).hexdigest()[:12]
    try:
        folder = state_folder() / "ttl-after-finished"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:
        raise TtlError(f"no place for the timers: {error}; --timers FILE names another") from None
    return folder / f"timers-{digest}{'-dry-run' if dry_run else ''}.db"


def _tell_wait(reason: str) -> None:
    _say(f"waiting to lead: {reason}")


def _say(text: str) -> None:
    click.echo(text, err=True)
