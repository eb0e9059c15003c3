"""`stop` and `start`: stop all deletions of a cluster, and start them again.

A brake is in the shared state of a namespace.
"""

import asyncio
import getpass
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from urllib.parse import quote

from shared.adapters.clock import SystemClock
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.adapters.kubernetes.state_configmap import ConfigMapState, read_contents
from shared.bootstrap.process import write_event
from shared.cli.input.command import command
from shared.cli.input.options import Options, cluster_options, home_namespace, namespace_option, reason_option
from shared.cli.input.target import connected
from shared.cli.output.printing import echo, warn
from shared.core.values.objects import get_text, printable
from shared.errors import ForbiddenError, TryLaterError, TtlError
from shared.installation.leader import LEASE_NAMESPACES_MAX, Leader, list_leaders, read_leader
from shared.installation.place import HOME, LEASE, RUN
from shared.ports import WriteEvent
from shared.safeguards.denials import start_deletions, stop_deletions
from shared.safeguards.state_schema import NAME, BrakeStop

STOPPED_WITHIN_SECONDS = 5
"""The longest time from the acknowledgement of a stop to the last DELETE."""

_READ_BY_DEFAULT = "; functions without TTL_NAMESPACE read their brake there: create the namespace to stop them"

_namespace_option = namespace_option(
    f"Only this namespace. Default: $TTL_NAMESPACE (else {HOME}), {RUN}, and each with the Lease of a `run`."
)

BRAKE_READ_SECONDS_MAX = 2.0
"""The longest time for reads that only add information: setting the brake must not wait for them."""


@dataclass(frozen=True, slots=True)
class BrakeNamespaces:
    """The namespaces whose brake a command sets.

    Attributes:
        namespaces: Their names.
        leaders: The holders of the Leases that could be read.
        is_named: Whether the operator named the namespace.
        problem: Why there may be more namespaces; empty if all are known.
    """

    namespaces: Sequence[str]
    leaders: Sequence[Leader]
    is_named: bool
    problem: str = ""


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


async def find_stop(cluster: KubernetesCluster, namespace: str, *, is_dry_run: bool) -> str:
    """Return a message for the start of `run` if deletions are stopped, else an empty text.

    Raises:
        TtlError: The brake may not be read, so `stop` could not stop this process. A dry run needs no brake.
    """
    try:
        stopped = (await read_contents(cluster, namespace)).stop
    except ForbiddenError as error:
        if is_dry_run:
            return ""
        raise TtlError(
            f"cannot read whether deletions are stopped: {error}; grant get on ConfigMap {namespace}/{NAME}, or name "
            "another namespace with --lease-namespace"
        ) from None
    if stopped is None:
        return ""
    return f"deletions are stopped {stopped}; to start deletions again: `kubectl ttl start -n {namespace}`"


def shared_state(cluster: KubernetesCluster, namespace: str) -> tuple[ConfigMapState, WriteEvent]:
    """Return the shared state in a namespace, and what writes Events about it, both with the operator's rights."""
    return ConfigMapState(cluster, namespace), partial(write_event, cluster, namespace)


async def find_brake_namespaces(cluster: KubernetesCluster, named: str) -> BrakeNamespaces:
    """Find the namespaces to stop: the one that the operator names, else the default ones and those of each `run`."""
    if named:
        return BrakeNamespaces((named,), await _read_leaders(cluster, (named,)), is_named=True)
    usual = (home_namespace(), RUN)
    problem = ""
    try:
        async with asyncio.timeout(BRAKE_READ_SECONDS_MAX):
            leaders = await list_leaders(cluster)
    except (TimeoutError, TtlError) as error:
        problem = str(error) or f"no list of Leases within {BRAKE_READ_SECONDS_MAX:.0f} s"
        leaders = await _read_leaders(cluster, usual)
    found = sorted({name for leader in leaders for name in (leader.namespace, leader.state)})
    others = [name for name in found if name not in usual]
    if len(others) > LEASE_NAMESPACES_MAX:
        problem = f"Leases {LEASE} name {len(others)} namespaces"
    namespaces = tuple(dict.fromkeys((*usual, *others[:LEASE_NAMESPACES_MAX])))
    return BrakeNamespaces(namespaces, leaders, is_named=False, problem=problem)


async def _read_leaders(cluster: KubernetesCluster, namespaces: Iterable[str]) -> list[Leader]:
    """Read the Leases one by one, as many as the time allows."""
    leaders: list[Leader] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(BRAKE_READ_SECONDS_MAX):
            for namespace in dict.fromkeys(namespaces):
                with suppress(TtlError):
                    leaders.extend(filter(None, [await read_leader(cluster, namespace)]))
    return leaders


async def find_user(cluster: KubernetesCluster) -> tuple[str, datetime]:
    """Return the user's name and the time, by the API server if it answers, else by this machine."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        async with asyncio.timeout(BRAKE_READ_SECONDS_MAX):
            answer = await cluster.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=body)
    except (TimeoutError, TtlError):
        answer = None
    user = get_text(answer and answer.body, "status.userInfo.username")
    now = answer.read_at if answer else SystemClock().now()
    return user or f"{_local_user()}@{socket.gethostname()}", now.replace(microsecond=0)


def _local_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a uid without a name, as in many containers
        return "unknown"
