"""Check the timers on Knative: that Pods of `timers` run and answer, as many as their engine allows."""

import asyncio
from collections.abc import Sequence
from typing import Any

from shared.adapters.config.settings import Settings
from shared.adapters.config.timers_address import CloudTasksAddress, NatsAddress, TimersAddress
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.core.values.objects import get_in, get_text, list_mappings
from shared.doctor.findings import Finding, Level, fail, ok, unknown, warn
from shared.doctor.timer_engines import check_cloud_tasks, check_nats, check_sqlite
from shared.doctor.workloads import is_ready, pods_of
from shared.errors import TtlError
from shared.installation.inventory import Inventory, Obj, name_of
from shared.installation.place import Place

_QUEUE_PROXY_PORT = 8012
_FUNCTION_PORT = 8080
_SERVER_ERROR = 500
_ANSWER_SECONDS_MAX = 5
_FORBIDDEN = 403
_LEVELS = (Level.OK, Level.WARN, Level.FAIL)


async def check_timers(
    cluster: KubernetesCluster, found: Inventory, settings: Settings | None, place: Place
) -> list[Finding]:
    """Check the Pods of `timers`, and what their engine needs.

    Args:
        cluster: The cluster, with the operator's credentials.
        found: The inventory of the installation.
        settings: The settings; None if they cannot be read. Then only the Pods are checked.
        place: The installation.
    """
    workloads = [workload for _, workload in found.workloads() if name_of(workload) == "timers"]
    address = settings.timers if settings else None
    if not workloads and (url := get_text(found.get("Trigger", "timers"), "spec.subscriber.uri")):
        return [ok("timers", f"outside of this cluster, at {url}; doctor does not check the engine there")]
    pods = [await check_timer_pods(cluster, found, workloads, address, place=place)]
    if settings is None:
        return pods
    if isinstance(address, CloudTasksAddress):
        return [*pods, *check_cloud_tasks(settings, place)]
    if isinstance(address, NatsAddress):
        return [*pods, *await check_nats(cluster, found, workloads, settings, place=place)]
    return [*pods, *check_sqlite(workloads, place)]


async def check_timer_pods(
    cluster: KubernetesCluster,
    found: Inventory,
    workloads: Sequence[Obj],
    address: TimersAddress | None,
    *,
    place: Place,
) -> Finding:
    """Check that a Pod of `timers` is ready, not more than one if a file holds the timers, and that each answers."""
    if found.parts["Pod"].problem:
        return unknown("timers", found.parts["Pod"].problem, place)
    running = [pod for workload in workloads for pod in pods_of(found, workload)]
    if not running and workloads and isinstance(address, CloudTasksAddress):
        return ok("timers", "scaled to 0; a call of Cloud Tasks starts a Pod")
    ready = list(filter(is_ready, running))
    on_claim = any(get_in(workload, "spec.selector") for workload in workloads)
    label = "app.kubernetes.io/component" if on_claim else "serving.knative.dev/service"
    show = place.command("get", "pods", "-l", f"{label}=timers")
    names = ", ".join(map(name_of, ready))
    if not ready:
        return fail("timers", "no Pod of timers is ready: only the sweep deletes objects, and late", show)
    if len(ready) > 1 and not isinstance(address, NatsAddress | CloudTasksAddress):
        detail = f"expected one Pod that keeps timers, got {len(ready)}: {names}; no problem during a rollout"
        return warn("timers", detail, show)
    has_policies = bool(found.all("NetworkPolicy"))
    answers = [await _call(cluster, pod, place, has_policies=has_policies) for pod in ready]
    worst = max(answers, key=lambda finding: _LEVELS.index(finding.level))
    if worst.level is Level.OK and len(ready) > 1:
        how = "are ready" if has_policies else "answer"
        return ok("timers", f"{len(ready)} Pods {how}: {names}")
    return worst


async def _call(cluster: KubernetesCluster, pod: Obj, place: Place, *, has_policies: bool) -> Finding:
    path = f"/api/v1/namespaces/{place.namespace}/pods/{name_of(pod)}:{port_of(pod)}/proxy/"
    try:
        async with asyncio.timeout(_ANSWER_SECONDS_MAX):
            status, body = await cluster.probe(path)
    except TimeoutError:
        why = f"no answer within {_ANSWER_SECONDS_MAX} s"
        return _report_silence(name_of(pod), why, place, has_policies=has_policies)
    except TtlError as error:
        return unknown("timers", str(error), place)
    return report_answer(name_of(pod), status, body, place=place, has_policies=has_policies)


def port_of(pod: Obj) -> int:
    """Return the port that serves a Pod's function: that of Knative's queue-proxy if there is one, else its own."""
    containers = list(list_mappings(pod, "spec.containers"))
    if any(get_text(one, "name") == "queue-proxy" for one in containers):
        return _QUEUE_PROXY_PORT
    ports = [get_in(port, "containerPort") for one in containers for port in list_mappings(one, "ports")]
    return next((port for port in ports if isinstance(port, int)), _FUNCTION_PORT)


def report_answer(pod: str, status: int, body: Any, *, place: Place, has_policies: bool = False) -> Finding:
    """Report the answer to a GET through the API server's proxy.

    A function rejects a GET with 405, and that proves that it answers. A body of kind Status comes from the API server.
    """
    if get_text(body, "kind") != "Status":
        if status < _SERVER_ERROR:
            return ok("timers", f"one Pod, {pod}, and it answers")
        return fail("timers", f"Pod {pod} answered {status}: {body}", place.command("logs", pod, "--tail=20"))
    if status == _FORBIDDEN:
        return unknown("timers", f"Pod {pod} is ready, but {get_text(body, 'message')}", place)
    return _report_silence(pod, get_text(body, "message"), place, has_policies=has_policies)


def _report_silence(pod: str, why: str, place: Place, *, has_policies: bool) -> Finding:
    """Report a ready Pod that the API server cannot reach: expected if there are NetworkPolicies, else a warning."""
    if has_policies:
        return ok("timers", f"one Pod, {pod}, is ready; the NetworkPolicies do not let the API server call it")
    detail = f"Pod {pod} is ready, but the API server cannot reach it: {why}"
    return warn("timers", detail, place.command("describe", "pod", pod))
