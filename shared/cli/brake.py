"""`stop` and `start`: one brake for every process that deletes."""

import asyncio
import getpass
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

import click

from shared.adapters.clock import SystemClock
from shared.adapters.kubernetes import state_configmap as state
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.adapters.kubernetes.requests import Answer
from shared.cli.options.click_options import cluster_options
from shared.cli.options.scope import command, namespace_name
from shared.cli.options.values import cluster_flags, home_namespace
from shared.cli.output.messages import warn
from shared.cli.output.width import echo
from shared.cli.process.asynchronous import asynchronous
from shared.cli.process.connection import connected
from shared.core.objects import get_text, list_mappings, printable
from shared.errors import ForbiddenError, TtlError
from shared.installation.defaults import HOME, LEASE, RUN
from shared.installation.leader import Leader, parse_leader, read_leader
from shared.safeguards.state_schema import NAME, Stop

STOPPED_WITHIN_SECONDS = 5
"""From the acknowledgement of a stop to the last DELETE that may leave a process."""

PLACES_MAX = 50
"""Namespaces with a Lease of a `run`, beside the default ones: everybody may create a Lease in their own namespace."""

LOOK_SECONDS_MAX = 2.0
"""For what is good to know before the brake is set: it must not wait for that."""

_READ_BY_DEFAULT = "; a function without TTL_NAMESPACE reads its brake there: create the namespace to reach it"

_NAMESPACE = click.option(
    "-n",
    "--namespace",
    type=namespace_name,
    metavar="NAME",
    help=f"Only this namespace. Default: $TTL_NAMESPACE, else {HOME}; {RUN}; each with the Lease of a `run`.",
)


@dataclass(frozen=True, slots=True)
class _Places:
    """The namespaces whose brake is meant.

    Attributes:
        leaders: Those of which a Lease was read.
        is_named: Whether the person named the one.
        problem: Why there may be others.
    """

    namespaces: Sequence[str]
    leaders: Sequence[Leader]
    is_named: bool
    problem: str = ""


@command()
@click.option("--reason", required=True, metavar="WHY", help="Shown in logs, Events and commands until `start`.")
@_NAMESPACE
@cluster_options
@asynchronous
async def stop(reason: str, namespace: str | None, kubeconfig: str | None, context: str | None) -> None:
    """Stop all deletions now, until `start`. After five seconds no listed process sends a DELETE; nothing is lost."""
    async with connected(kubeconfig, context) as cluster:
        places, (by, at) = await asyncio.gather(_find_places(cluster, namespace), _who(cluster))
        told = await asyncio.gather(*(_stop(cluster, place, Stop(at, reason, by)) for place in places.namespaces))
        failed = await _report(cluster, places, dict(zip(places.namespaces, told, strict=True)))
        for place in places.namespaces:
            if place not in failed:
                echo(f"stopped: namespace {place}: {_describe(place, places.leaders)}")
        if len(failed) < len(places.namespaces):
            echo(
                f"After {STOPPED_WITHIN_SECONDS} seconds no process above sends a DELETE. Due objects stay until "
                f"`{_command('start', places, kubeconfig, context)}`."
            )
            echo(
                "Not stopped: a `run` with another --lease-namespace or TTL_NAMESPACE (set -n to its namespace), and "
                "the controllers of the kinds, such as Kubernetes' own for ttlSecondsAfterFinished of a Job."
            )
    _end(places, failed, "stopped")


@command()
@_NAMESPACE
@cluster_options
@asynchronous
async def start(namespace: str | None, kubeconfig: str | None, context: str | None) -> None:
    """Start the deletions that `stop` stopped. The next sweep deletes the objects that fell due meanwhile."""
    async with connected(kubeconfig, context) as cluster:
        places, (by, _) = await asyncio.gather(_find_places(cluster, namespace), _who(cluster))
        ended: dict[str, Stop | None] = {}
        told = await asyncio.gather(*(_start(cluster, place, by, ended) for place in places.namespaces))
        failed = await _report(cluster, places, dict(zip(places.namespaces, told, strict=True)))
    for place, one in ended.items():
        if one is not None:
            echo(f"started: namespace {place}; deletions were stopped {one}")
    if any(ended.values()):
        echo("The next sweep deletes the objects that fell due meanwhile; a `run` sweeps within seconds.")
    _end(places, failed, "started")
    if not any(ended.values()):
        raise TtlError(f"nothing is stopped in {_name(places.namespaces)}; for another namespace, set -n")


async def find_stop(cluster: KubernetesCluster, namespace: str, *, is_dry_run: bool) -> str:
    """For the start of a `run`: a sentence if deletions are stopped, else an empty text.

    Raises:
        TtlError: The brake may not be read, so no person could stop this process; a dry run needs no brake.
    """
    try:
        stopped = (await state.read_contents(cluster, namespace)).stop
    except ForbiddenError as error:
        if is_dry_run:
            return ""
        raise TtlError(
            f"cannot read whether deletions are stopped: {error}; grant get on ConfigMap {namespace}/{NAME}, or name "
            "another namespace with --lease-namespace"
        ) from None
    if stopped is None:
        return ""
    return f"deletions are stopped {stopped}; `kubectl ttl start -n {namespace}` starts them again"


async def _find_places(cluster: KubernetesCluster, named: str | None) -> _Places:
    if named is not None:
        return _Places((named,), await _read_leaders(cluster, (named,)), is_named=True)
    usual = (home_namespace(), RUN)
    path = f"/apis/coordination.k8s.io/v1/leases?fieldSelector=metadata.name%3D{LEASE}&resourceVersion=0"
    try:
        async with asyncio.timeout(LOOK_SECONDS_MAX):
            answer = await cluster.request("GET", path)
    except (TimeoutError, TtlError) as error:
        problem = str(error) or f"no list of Leases within {LOOK_SECONDS_MAX:.0f} s"
        leaders = await _read_leaders(cluster, usual)
    else:
        problem, leaders = "", _parse_leaders(answer)
    found = sorted({place for leader in leaders for place in (leader.namespace, leader.state)})
    others = [place for place in found if place not in usual]
    if len(others) > PLACES_MAX:
        problem = f"Leases {LEASE} name {len(others)} namespaces"
    return _Places(tuple(dict.fromkeys((*usual, *others[:PLACES_MAX]))), leaders, is_named=False, problem=problem)


def _parse_leaders(answer: Answer | None) -> list[Leader]:
    if answer is None:
        return []
    leases = ((get_text(lease, "metadata.namespace"), lease) for lease in list_mappings(answer.body, "items"))
    return [parse_leader(namespace, lease, answer.read_at) for namespace, lease in leases if namespace]


async def _read_leaders(cluster: KubernetesCluster, namespaces: Iterable[str]) -> list[Leader]:
    """As far as they can be read soon, one by one."""
    leaders: list[Leader] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(LOOK_SECONDS_MAX):
            for namespace in dict.fromkeys(namespaces):
                with suppress(TtlError):
                    leaders.extend(filter(None, [await read_leader(cluster, namespace)]))
    return leaders


async def _who(cluster: KubernetesCluster) -> tuple[str, datetime]:
    """The person, as the API server knows them, else as this machine does; and the time."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        async with asyncio.timeout(LOOK_SECONDS_MAX):
            answer = await cluster.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=body)
    except (TimeoutError, TtlError):
        answer = None
    by = get_text(answer and answer.body, "status.userInfo.username")
    now = answer.read_at if answer else SystemClock().now()
    return by or f"{_local_user()}@{socket.gethostname()}", now.replace(microsecond=0)


def _local_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a uid without a name, as in many containers
        return "unknown"


async def _stop(cluster: KubernetesCluster, namespace: str, stop: Stop) -> TtlError | None:
    try:
        await state.stop(cluster, namespace, stop)
    except TtlError as error:
        return error
    return None


async def _start(cluster: KubernetesCluster, namespace: str, by: str, ended: dict[str, Stop | None]) -> TtlError | None:
    try:
        ended[namespace] = await state.start(cluster, namespace, by=by)
    except TtlError as error:
        return error
    return None


async def _report(
    cluster: KubernetesCluster, places: _Places, told: dict[str, TtlError | None]
) -> dict[str, TtlError | None]:
    """Say what failed; returns it without the namespaces that are not there, unless a person named the one."""
    failed: dict[str, TtlError | None] = {}
    for place, error in told.items():
        if error is None:
            continue
        failed[place] = error
        if not places.is_named and await _is_absent(cluster, place):
            failed[place] = None
            warn(f"there is no namespace {place}{_READ_BY_DEFAULT if place == HOME else ''}")
        else:
            warn(f"FAILED: namespace {place}: {error}")
    if places.problem:
        warn(f"could not find every `run`: {printable(places.problem)}; repeat this with -n for each other namespace")
    return failed


async def _is_absent(cluster: KubernetesCluster, namespace: str) -> bool:
    try:
        return await cluster.request("GET", f"/api/v1/namespaces/{quote(namespace, safe='')}", missing_ok=True) is None
    except TtlError:
        return False


def _describe(namespace: str, leaders: Sequence[Leader]) -> str:
    """Which processes read the state of a namespace."""
    which = f"every process with TTL_NAMESPACE={namespace}, every `run` with --lease-namespace={namespace}"
    if namespace == RUN:
        which = f"{which} or without one"
    if namespace == HOME:
        which = f"{which}, every function without TTL_NAMESPACE"
    for leader in leaders:
        if leader.leads and leader.state == namespace:
            which = f"{which}; `run` {leader.holder} holds Lease {leader.namespace}/{LEASE}"
        elif leader.leads and leader.namespace == namespace:
            which = f"{which}; not `run` {leader.holder}, whose brake is in namespace {leader.state}"
    return which


def _command(word: str, places: _Places, kubeconfig: str | None, context: str | None) -> str:
    named = ("-n", *places.namespaces) if places.is_named else ()
    return " ".join(("kubectl", "ttl", word, *named, *cluster_flags(kubeconfig, context)))


def _end(places: _Places, failed: dict[str, TtlError | None], verb: str) -> None:
    """The exit code: 1 where anything was not done that might have been.

    Raises:
        TtlError: So it was.
    """
    if len(failed) == len(places.namespaces) and not any(failed.values()):
        raise TtlError(f"nothing is {verb}: not found: {_name(places.namespaces)}")
    if names := [place for place, error in failed.items() if error]:
        raise TtlError(f"not {verb}: {_name(names)}")


def _name(namespaces: Sequence[str]) -> str:
    return f"namespace{'s' if len(namespaces) > 1 else ''} {', '.join(namespaces)}"
