"""`stop` and `start`: stop all deletions of a cluster, and start them again.

A brake is in the shared state of a namespace.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import quote

from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.cli.deleters.brakes import BrakeNamespaces, find_brake_namespaces, find_user, shared_state
from shared.cli.input.command import command
from shared.cli.input.options import Options, cluster_options, namespace_option, reason_option
from shared.cli.input.target import connected
from shared.cli.output.printing import echo, warn
from shared.core.values.objects import printable
from shared.errors import TryLaterError, TtlError
from shared.installation.leader import Leader
from shared.installation.place import HOME, LEASE, RUN
from shared.safeguards.denials import start_deletions, stop_deletions
from shared.safeguards.state_schema import BrakeStop

STOPPED_WITHIN_SECONDS = 5
"""The longest time from the acknowledgement of a stop to the last DELETE."""

_READ_BY_DEFAULT = "; functions without TTL_NAMESPACE read their brake there: create the namespace to stop them"

_namespace_option = namespace_option(
    f"Only this namespace. Default: $TTL_NAMESPACE (else {HOME}), {RUN}, and each with the Lease of a `run`."
)


@command()
@reason_option("Why. Logs, Events and commands show it until `start`.")
@_namespace_option
@cluster_options
async def stop(options: Options, *, reason: str) -> None:
    """Stop all deletions now, until `start`. After five seconds no listed process sends a DELETE; nothing is lost.

    This also holds for the stops of objects at their active deadline.
    """
    async with connected(options) as cluster:
        brakes, (user, at) = await asyncio.gather(find_brake_namespaces(cluster, options.namespace), find_user(cluster))
        results = await _attempt(
            brakes, lambda name: stop_deletions(*shared_state(cluster, name), BrakeStop(at, reason, user))
        )
        failed = await _report(cluster, brakes, results)
        for name in brakes.namespaces:
            if name not in failed:
                echo(f"stopped: namespace {name}: {_describe(name, brakes.leaders)}")
        if len(failed) < len(brakes.namespaces):
            echo(
                f"After {STOPPED_WITHIN_SECONDS} seconds no process above sends a DELETE. Due objects are kept until "
                f"`{_command('start', brakes, options)}`."
            )
            echo(
                "Not stopped: a `run` with another --lease-namespace or TTL_NAMESPACE (set -n to its namespace), and "
                "the controllers of the kinds, such as Kubernetes' own for ttlSecondsAfterFinished of a Job."
            )
    _end(brakes, failed, "stopped")


@command()
@_namespace_option
@cluster_options
async def start(options: Options) -> None:
    """Start the deletions that `stop` stopped. The next sweep deletes the objects that became due in the meantime."""
    async with connected(options) as cluster:
        brakes, (user, _) = await asyncio.gather(find_brake_namespaces(cluster, options.namespace), find_user(cluster))
        results = await _attempt(brakes, lambda name: start_deletions(*shared_state(cluster, name), by=user))
        failed = await _report(cluster, brakes, results)
    ended = {name: one for name, one in results.items() if isinstance(one, BrakeStop)}
    for name, one in ended.items():
        echo(f"started: namespace {name}; deletions were stopped {one}")
    if ended:
        echo("The next sweep deletes the objects that became due in the meantime; a `run` sweeps within seconds.")
    _end(brakes, failed, "started")
    if not ended:
        raise TtlError(f"nothing is stopped in {_name(brakes.namespaces)}; for another namespace, set -n")


async def _attempt(
    brakes: BrakeNamespaces, change: Callable[[str], Awaitable[BrakeStop | None]]
) -> dict[str, BrakeStop | TtlError | None]:
    """Change the brake of each namespace at the same time; return the stop that ended, or the error, by namespace."""

    async def attempt(namespace: str) -> BrakeStop | TtlError | None:
        try:
            return await change(namespace)
        except TtlError as error:
            return error

    results = await asyncio.gather(*map(attempt, brakes.namespaces))
    return dict(zip(brakes.namespaces, results, strict=True))


async def _report(
    cluster: KubernetesCluster, brakes: BrakeNamespaces, results: Mapping[str, BrakeStop | TtlError | None]
) -> dict[str, TtlError | None]:
    """Warn about each failure, and return the failures by namespace.

    The value is None if the namespace does not exist and the operator did not name it: then nothing runs there.
    """
    failed: dict[str, TtlError | None] = {}
    for name, error in results.items():
        if not isinstance(error, TtlError):
            continue
        failed[name] = error
        is_unknown = brakes.is_named or isinstance(error, TryLaterError)  # an API server that hangs is asked no more
        if not is_unknown and await _is_absent(cluster, name):
            failed[name] = None
            warn(f"namespace {name} does not exist{_READ_BY_DEFAULT if name == HOME else ''}")
        else:
            warn(f"FAILED: namespace {name}: {error}")
    if brakes.problem:
        warn(
            f"could not find every `run`: {printable(brakes.problem)}; repeat the command with -n for each other "
            "namespace"
        )
    return failed


async def _is_absent(cluster: KubernetesCluster, namespace: str) -> bool:
    try:
        return await cluster.request("GET", f"/api/v1/namespaces/{quote(namespace, safe='')}", missing_ok=True) is None
    except TtlError:
        return False


def _describe(namespace: str, leaders: Sequence[Leader]) -> str:
    """Name the processes that read the state of a namespace."""
    processes = f"every process with TTL_NAMESPACE={namespace}, every `run` with --lease-namespace={namespace}"
    if namespace == RUN:
        processes = f"{processes} or without one"
    if namespace == HOME:
        processes = f"{processes}, every function without TTL_NAMESPACE"
    for leader in leaders:
        if leader.leads and leader.state == namespace:
            processes = f"{processes}; `run` {leader.holder} holds Lease {leader.namespace}/{LEASE}"
        elif leader.leads and leader.namespace == namespace:
            processes = f"{processes}; not `run` {leader.holder}, whose brake is in namespace {leader.state}"
    return processes


def _command(word: str, brakes: BrakeNamespaces, options: Options) -> str:
    flags = ("-n", *brakes.namespaces) if brakes.is_named else ()
    return " ".join(("kubectl", "ttl", word, *flags, *options.flags))


def _end(brakes: BrakeNamespaces, failed: dict[str, TtlError | None], verb: str) -> None:
    """End the command with exit code 1 if a namespace failed, or if none exists.

    Raises:
        TtlError: At least one namespace failed, or none exists.
    """
    if len(failed) == len(brakes.namespaces) and not any(failed.values()):
        raise TtlError(f"nothing is {verb}: not found: {_name(brakes.namespaces)}")
    if names := [name for name, error in failed.items() if error]:
        raise TtlError(f"not {verb}: {_name(names)}")


def _name(namespaces: Sequence[str]) -> str:
    return f"namespace{'s' if len(namespaces) > 1 else ''} {', '.join(namespaces)}"
