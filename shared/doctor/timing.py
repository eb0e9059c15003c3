"""The engine of the timers, and the Lease of `standalone`: what has to be there exactly once."""

import asyncio
from datetime import datetime
from typing import Any

from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.core.objects import get_in, get_text, list_mappings, parse_instant
from shared.core.scope import parse_scope
from shared.doctor.conditions import is_ready
from shared.doctor.findings import Finding, Place, fail, ok, unknown, warn
from shared.doctor.workloads import pods_of
from shared.errors import TtlError
from shared.installation.defaults import LEASE
from shared.installation.inventory import Inventory, Obj, name_of
from shared.installation.leader import LEASE_AGE_MAX

_QUEUE_PROXY_PORT = 8012
_FUNCTION_PORT = 8080
_SERVER_ERROR = 500
_ANSWER_SECONDS_MAX = 5
_FORBIDDEN = 403


async def check_timers(cluster: KubernetesCluster, found: Inventory, place: Place) -> Finding:
    """Exactly one Pod that keeps timers, and one that answers."""
    if found.parts["Pod"].problem:
        return unknown("timers", found.parts["Pod"].problem, place)
    engines = [workload for _, workload in found.workloads() if name_of(workload) == "timers"]
    ready = [pod for engine in engines for pod in pods_of(found, engine) if is_ready(pod)]
    on_claim = any(get_in(engine, "spec.selector") for engine in engines)
    label = "app.kubernetes.io/component" if on_claim else "serving.knative.dev/service"
    look = place.command("get", "pods", "-l", f"{label}=timers")
    if not ready:
        return fail("timers", "no Pod of it is ready: nothing goes on time, only by the sweep", look)
    if len(ready) > 1:
        names = ", ".join(map(name_of, ready))
        return warn(
            "timers", f"{len(ready)} Pods keep timers, expected one: {names}; well if one is just leaving", look
        )
    pod, port = ready[0], port_of(ready[0])
    path = f"/api/v1/namespaces/{place.namespace}/pods/{name_of(pod)}:{port}/proxy/"
    fenced = bool(found.all("NetworkPolicy"))
    try:
        async with asyncio.timeout(_ANSWER_SECONDS_MAX):
            status, body = await cluster.probe(path)
    except TimeoutError:
        return _judge_silence(name_of(pod), f"no answer within {_ANSWER_SECONDS_MAX} s", place, fenced=fenced)
    except TtlError as error:
        return unknown("timers", str(error), place)
    return judge_answer(name_of(pod), status, body, place, fenced=fenced)


def port_of(pod: Obj) -> int:
    """Where it is served: by Knative's queue-proxy if there is one, else by the function."""
    containers = list(list_mappings(pod, "spec.containers"))
    if any(get_text(one, "name") == "queue-proxy" for one in containers):
        return _QUEUE_PROXY_PORT
    ports = [get_in(port, "containerPort") for one in containers for port in list_mappings(one, "ports")]
    return next((port for port in ports if isinstance(port, int)), _FUNCTION_PORT)


def judge_answer(pod: str, status: int, body: Any, place: Place, *, fenced: bool = False) -> Finding:
    """What came of a GET through the API server's proxy: that a function answers at all, 405, is the proof."""
    if get_text(body, "kind") != "Status":
        if status < _SERVER_ERROR:
            return ok("timers", f"one Pod, {pod}, which answers")
        return fail("timers", f"Pod {pod} answered {status}: {body}", place.command("logs", pod, "--tail=20"))
    if status == _FORBIDDEN:
        return unknown("timers", f"one Pod is ready, but {get_text(body, 'message')}", place)
    return _judge_silence(pod, get_text(body, "message"), place, fenced=fenced)


def _judge_silence(pod: str, why: str, place: Place, *, fenced: bool) -> Finding:
    """A ready Pod that the API server cannot reach, which is as it should be where a NetworkPolicy says so."""
    if fenced:
        return ok("timers", f"one Pod, {pod}, ready; NetworkPolicies keep the API server from calling it")
    detail = f"Pod {pod} is ready, but cannot be reached from the API server: {why}"
    return warn("timers", detail, place.command("describe", "pod", pod))


def check_lease(found: Inventory, now: datetime, place: Place) -> Finding:
    """Whether a `standalone` leads."""
    if found.parts["Lease"].problem:
        return unknown("Lease", found.parts["Lease"].problem, place)
    lease = found.get("Lease", LEASE)
    holder = get_text(lease, "spec.holderIdentity")
    logs = place.command("logs", "deployment/standalone", "--tail=20")
    if not holder:
        return fail("Lease", "nobody leads: nothing is deleted", logs)
    try:
        age = now - parse_instant(get_text(lease, "spec.renewTime"))
    except ValueError as error:
        return warn("Lease", f"held by {holder}; renewTime: {error}", logs)
    if age > LEASE_AGE_MAX:
        detail = f"{holder} has not renewed it for {age.total_seconds():.0f} s: nobody leads"
        return fail("Lease", detail, logs)
    scope = parse_scope(lease)
    return ok("Lease", f"{holder} leads" + (f"; it handles {scope}" if scope else ""))
