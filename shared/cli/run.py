"""`run`: watch, timers, sweep and deletion in one process, on the cluster of the current context.

Its policy is the one that the operator names, else the installed one.
"""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click

from shared.adapters.config.settings import Settings, read_settings
from shared.adapters.config.timers_address import SqliteAddress
from shared.adapters.kubernetes.access import get_access
from shared.adapters.kubernetes.cluster import KubernetesCluster, Memory
from shared.adapters.kubernetes.connect import own_namespace
from shared.adapters.telemetry.log_lines import configure_logging, is_json
from shared.adapters.telemetry.logs import REMEMBERED_UIDS_MAX, LogTelemetry, SummedTimers
from shared.adapters.timers.sqlite.file import OwnedError, TimerFile
from shared.bootstrap.archives import OpenedArchives
from shared.bootstrap.build import build
from shared.bootstrap.config import ProcessConfig, read_config
from shared.bootstrap.process import Process
from shared.bootstrap.start import serve_metrics, start_exports
from shared.cli.deleters.brakes import find_stop
from shared.cli.deleters.in_force import InForce, PolicyInForce, ReachableArchives, read_in_force
from shared.cli.input.command import command
from shared.cli.input.options import (
    NONE,
    Options,
    all_namespaces_option,
    cluster_options,
    kinds_dir_option,
    kinds_option,
    named_by_option,
    namespace_name,
    policy_in_force_option,
)
from shared.cli.input.target import connected, is_absent, name_served
from shared.cli.output.printing import inform
from shared.cli.timers.place import make_path_of_run
from shared.core.policy.policy import NO_POLICY
from shared.core.values.objects import printable
from shared.core.values.timing import format_duration
from shared.errors import TtlError
from shared.installation.installed import FollowedPolicy, read_installed
from shared.installation.leader import read_leader
from shared.installation.place import LEASE, RUN
from shared.ports import Telemetry, Verdict
from shared.standalone.lease import LeadershipLostError, Lease
from shared.standalone.runner import Runner


@command()
@click.option("--dry-run", is_flag=True, help="Delete and write nothing; log each object that would be deleted.")
@all_namespaces_option
@kinds_option
@kinds_dir_option
@policy_in_force_option
@click.option("--sweep-interval", metavar="TIME", help="The time between two sweeps (10m).")
@click.option("--concurrency", metavar="N", help="Concurrent DELETEs (64).")
@click.option(
    "--timers",
    metavar="ADDRESS",
    help="Where the timers are: sqlite:FILE, nats://HOST:PORT or another value of $TTL_TIMERS. Default: one file per "
    "cluster, in $XDG_STATE_HOME/ttl-after-finished or ~/.local/state/ttl-after-finished.",
)
@click.option("--lease/--no-lease", default=True, help="Delete only while this process holds the Lease.")
@click.option(
    "--lease-namespace",
    type=namespace_name,
    default=RUN,
    show_default=True,
    metavar="NAME",
    help="The namespace of the Lease and the shared state.",
)
@click.option("-v", "--verbose", is_flag=True, help="Also log each object that is kept, and why.")
@cluster_options
async def run(
    options: Options,
    *,
    dry_run: bool,
    sweep_interval: str | None,
    concurrency: str | None,
    timers: str | None,
    lease: bool,
    lease_namespace: str,
    verbose: bool,
) -> None:
    """Delete finished objects when their TTL expires, on the cluster of the current context, until Ctrl-C.

    Running objects are stopped at their active deadline.

    The installed policy applies, unless --policy or $TTL_POLICY names another. A change of it applies within seconds.
    If it cannot be read, `run` does not start: for instance if you may not list Deployments, StatefulSets and Knative
    Services in all namespaces, and have not set $TTL_NAMESPACE to the namespace of the installation. If nothing is
    installed, `run` does not start either while another `run` leads with a policy, or if you may not list Leases in all
    namespaces. Then set --policy FILE or --policy none. In a Pod of the installation, only $TTL_POLICY counts.
    """
    given = {
        **options.by_variable,
        "TTL_SWEEP_INTERVAL": ("--sweep-interval", sweep_interval),
        "TTL_CONCURRENCY": ("--concurrency", concurrency),
        "TTL_TIMERS": ("--timers", timers),
        "TTL_DRY_RUN": ("--dry-run", "true" if dry_run else None),
    }
    telemetry, namespace = LogTelemetry(), options.namespace
    with named_by_option(given) as values:
        settings = read_settings(values)
        home_namespace = settings.home_namespace or lease_namespace
        chosen = find_named_policy(options, settings)
        settings = settings.model_copy(update={"policy": None}) if chosen and not chosen.name else settings
        read = partial(read_config, telemetry=telemetry, namespace=namespace, home_namespace=home_namespace)
        files = read(settings) if chosen else None  # before it connects: it checks the files
    configure_logging(settings.log or "text", level=logging.DEBUG if verbose else logging.INFO)
    async with AsyncExitStack() as stack:
        if sys.stderr.isatty() and not (verbose or is_json()):
            stack.callback(_sum_up_timers())
        cluster = await stack.enter_async_context(connected(options, memory=Memory(), is_server=True))
        if chosen is None or files is None:
            installed = await read_policy_of_run(cluster, options, telemetry)
            chosen, archives = installed.chosen, installed.reachable_archives(stack)
            settings = settings.model_copy(update={"cluster_name": installed.force.cluster_name})
            with named_by_option(given):
                files = read(settings, kinds=installed.force.kinds, policies=installed.followed, archives=archives)
            await stack.enter_async_context(installed.followed.followed())
        timers_at = settings.timers or SqliteAddress(make_path_of_run(cluster.server, dry_run=settings.dry_run))
        known = {"timers": timers_at, "home_namespace": home_namespace}
        config = replace(files, settings=settings.model_copy(update=known), cluster=cluster)
        process = build(config)
        stack.callback(serve_metrics(process))
        stack.push_async_callback(start_exports(process))
        await cluster.check()
        is_candidate = lease and not settings.dry_run
        if is_candidate and await is_absent(lease_namespace, cluster):
            raise TtlError(
                f"namespace {lease_namespace} of the Lease does not exist; create it or set --lease-namespace"
            )
        if isinstance(timers_at, SqliteAddress):
            await _check_file(timers_at.path, cluster, lease_namespace if is_candidate else None)
        stop = await find_stop(cluster, home_namespace, is_dry_run=settings.dry_run)
        candidate = Lease(
            cluster,
            namespace=lease_namespace,
            name=LEASE,
            identity=f"{socket.gethostname()}/{os.getpid()}",
            clock=config.clock,
            scope=config.scope,
        )
        if namespace and await is_absent(namespace, cluster):
            inform(f"warning: namespace {namespace} does not exist; nothing is deleted until it is created")
        inform(_banner(config, chosen, cluster.server, await name_served(config, cluster)))
        if stop:
            inform(stop)
        try:
            await _work(process, cluster, candidate if is_candidate else None)
        except asyncio.CancelledError:  # Ctrl-C or SIGTERM: requests in flight have finished
            inform("stopped")
        finally:
            inform(summarize(telemetry, dry_run=settings.dry_run))


def _sum_up_timers() -> Callable[[], None]:
    """Sum up the lines of timers; the result writes those that are held back."""
    handler = logging.getLogger().handlers[0]
    timers = SummedTimers(handler, asyncio.get_running_loop().call_later)
    handler.addFilter(timers)
    return timers.flush


async def _work(process: Process, cluster: KubernetesCluster, candidate: Lease | None) -> None:
    """Run; with a Lease only while this process holds it: after a loss it waits to acquire the Lease again."""
    while True:
        try:
            async with candidate.held(_report_wait) if candidate else nullcontext():
                interval = format_duration(process.config.settings.sweep_interval)
                inform(f"sweep at start and every {interval}; Ctrl-C stops")
                await Runner(process, cluster).run()
        except LeadershipLostError as error:
            inform(f"stopped leading: {error}")


async def _check_file(path: Path, cluster: KubernetesCluster, lease_namespace: str | None) -> None:
    """Check before the start that the timer file can be used.

    Args:
        path: The timer file.
        cluster: The cluster of the Lease.
        lease_namespace: The namespace of the Lease, else None. The current leader on this machine may own the file.

    Raises:
        TtlError: The file cannot be used.
    """
    try:
        TimerFile(path).close()
    except OwnedError:
        leader = await read_leader(cluster, lease_namespace) if lease_namespace else None
        if leader is None or not leader.leads:
            raise


def _banner(config: ProcessConfig, chosen: PolicyInForce, server: str, plurals: str) -> str:
    where = f"namespace {config.namespace}" if config.namespace else "all namespaces"
    dry_run = "\ndry run: nothing will be deleted" if config.settings.dry_run else ""
    about = f"{_name_policy(config, chosen)}\ntimers: {config.settings.timers}"
    return f"ttl-after-finished: {plurals} in {where} of {server}\n{about}{dry_run}"


def summarize(telemetry: LogTelemetry, *, dry_run: bool) -> str:
    """Say at the end what was done, or would have been done; stops only if there were any."""
    if dry_run:
        deleted, stopped = (len(telemetry.would[one]) for one in (Verdict.WOULD_DELETE, Verdict.WOULD_STOP))
        stops = f", {_count(stopped)} stopped" if stopped else ""
        noun = "object" if deleted == 1 else "objects"
        return f"dry run: {_count(deleted)} {noun} would have been deleted{stops}"
    deleted, missed, stopped = (telemetry.counts[what] for what in ("deleted", "missed-by-events", Verdict.STOPPED))
    stops = f"; {stopped} stopped at their deadline" if stopped else ""
    return f"{deleted} deleted, {missed} of them found only by a sweep{stops}"


def _count(uids: int) -> str:
    """A number of remembered uids; there may be more than the limit."""
    return f"at least {uids}" if uids == REMEMBERED_UIDS_MAX else str(uids)


def _name_policy(config: ProcessConfig, chosen: PolicyInForce) -> str:
    differs = f"\nwarning: {printable(chosen.differs)}" if chosen.differs else ""
    if not chosen.name:
        return f"no policy{f' ({chosen.why})' if chosen.why else ''}{differs}"
    count = len(config.policy().rules)
    installed = "" if chosen.is_local else "installed "
    return f"{installed}policy {chosen.name}: {count} {'rule' if count == 1 else 'rules'}{differs}"


def _report_wait(reason: str) -> None:
    inform(f"waiting to lead: {reason}")


_KEPT = "the installed policy could not be read: its last version stays in force"


@dataclass(frozen=True, slots=True)
class InstalledPolicy:
    """The installed policy as `run` applies it.

    Attributes:
        force: What is in force on the cluster.
        chosen: The policy at the start, with its name.
        followed: The policy while the process runs.
    """

    force: InForce
    chosen: PolicyInForce
    followed: FollowedPolicy

    def reachable_archives(self, at_end: AsyncExitStack) -> ReachableArchives:
        """Return the archives as far as this machine can reach them: a folder of the installation's Pods it cannot."""
        return ReachableArchives(OpenedArchives(self.force.identity), is_local=False, at_end=at_end)


def find_named_policy(options: Options, settings: Settings) -> PolicyInForce | None:
    """Return what the operator or the installation names for this process; None if the installed policy applies.

    A Pod of an installation has the policy of its own settings: it may not read Deployments, and needs not.
    """
    if NONE in (str(options.policy), str(settings.policy)):
        return PolicyInForce(NO_POLICY, why=f"--policy {NONE}" if options.policy else f"TTL_POLICY={NONE}")
    if settings.policy is not None:
        return PolicyInForce(NO_POLICY, str(settings.policy), is_local=True)
    is_named = options.kubeconfig is not None or options.context is not None or get_access(settings) is not None
    if not is_named and settings.home_namespace and own_namespace() == settings.home_namespace:
        return PolicyInForce(NO_POLICY)
    return None


async def read_policy_of_run(cluster: KubernetesCluster, options: Options, telemetry: Telemetry) -> InstalledPolicy:
    """Read the installed policy, to apply it and to follow its changes.

    Raises:
        TtlError: The policy is unknown. A weaker one must not take its place.
    """
    force = await read_in_force(cluster, options)
    chosen = force.choose(None)
    if not chosen.is_known:
        expected = "expected a policy that can be read; set --policy FILE, or --policy none to delete without a policy"
        raise TtlError(f"the policy in force is unknown: {chosen.why}; {expected}")
    followed = FollowedPolicy(
        partial(read_installed, cluster, force.home),
        chosen.policy,
        lambda problem: telemetry.problem(_KEPT, error=problem),
        is_installed=force.installed is not None,
    )
    return InstalledPolicy(force, chosen, followed)
