"""What runs: Knative Services, Deployments, StatefulSets, and why their Pods do not."""

from collections.abc import Iterator
from typing import Any

from shared.core.objects import get_in, get_text, list_mappings
from shared.doctor.conditions import describe_trouble, is_ready
from shared.doctor.findings import Finding, Place, fail, ok, warn
from shared.installation.inventory import Inventory, Obj, labels_of, name_of

_SCALED_TO_0 = "it is scaled to 0"
_STARTING = {"", "ContainerCreating", "PodInitializing"}


def check_workloads(found: Inventory, place: Place) -> Iterator[Finding]:
    """Everything of ours that runs Pods."""
    for kind, workload in found.workloads():
        what, name = f"{kind} {name_of(workload)}", name_of(workload)
        pods = pods_of(found, workload)
        troubles = [(pod, trouble) for pod in pods if (trouble := describe_pod(pod))]
        down = describe_trouble(workload) if kind == "Knative Service" else _describe_replicas(workload)
        if not down and not troubles:
            running = sum(map(is_ready, pods))
            yield ok(what, f"{running} of its Pods ready" if running else "ready, at rest: no Pod")
        elif not troubles:
            words = ("scale", "--replicas=1") if down == _SCALED_TO_0 else ("describe",)
            yield fail(what, down, place.command(*words, *_kubectl_name(kind, name)))
        else:
            pod, trouble = troubles[0]
            fix = place.command("logs", name_of(pod), "--all-containers", "--tail=5", *_previous(pod))
            say = fail if down else warn  # ready, but its next revision does not come up
            yield say(what, f"{down + '; ' if down else ''}Pod {name_of(pod)}: {trouble}", fix)


def pods_of(found: Inventory, workload: Obj) -> list[Obj]:
    """Its Pods that are not on their way out."""
    selector = get_in(workload, "spec.selector.matchLabels") or {"serving.knative.dev/service": name_of(workload)}
    return [
        pod
        for pod in found.all("Pod")
        if selector.items() <= labels_of(pod).items() and not get_text(pod, "metadata.deletionTimestamp")
    ]


def describe_pod(pod: Obj) -> str:
    """What a container of it says of its trouble, or the scheduler; empty where there is none."""
    if is_ready(pod):
        return ""
    for path in ("status.initContainerStatuses", "status.containerStatuses"):
        for status in list_mappings(pod, path):
            if trouble := _describe_container(status):
                return f"{get_text(status, 'name')}: {trouble}"
    scheduled = [one for one in list_mappings(pod, "status.conditions") if get_text(one, "type") == "PodScheduled"]
    return next((get_text(one, "message") for one in scheduled if get_text(one, "status") == "False"), "")


def _describe_container(status: Any) -> str:
    if status.get("ready") is True:
        return ""
    restarts = get_in(status, "restartCount") or 0
    words = []
    if get_text(status, "state.waiting.reason") not in _STARTING:
        words.append(_words(get_in(status, "state.waiting")))
    for path in ("state.terminated", "lastState.terminated"):
        ended = get_in(status, path)
        if isinstance(ended, dict) and ended.get("exitCode") != 0:
            words.append(f"ended with {ended.get('exitCode')}: {_words(ended)}")
            break
    if restarts and not words:
        words.append("not ready")
    return ", ".join(words) + (f", restarts: {restarts}" if restarts and words else "")


def _words(state: Any) -> str:
    """Reason and message; of the end of a log, which stands for a message, its last line."""
    *_, last = ("", *get_text(state, "message").strip().splitlines())
    return ": ".join(one for one in (get_text(state, "reason"), last) if one)


def _describe_replicas(workload: Obj) -> str:
    wanted, ready = get_in(workload, "spec.replicas"), get_in(workload, "status.readyReplicas") or 0
    wanted = 1 if wanted is None else wanted
    if wanted == 0:
        return _SCALED_TO_0
    return f"{ready} of {wanted} Pods ready" if ready < wanted else ""


def _kubectl_name(kind: str, name: str) -> tuple[str, str]:
    return ("services.serving.knative.dev" if kind == "Knative Service" else kind.lower(), name)


def _previous(pod: Obj) -> tuple[str, ...]:
    """Its words are in the container before, where that ended and this one has not begun."""
    waits = any(get_in(one, "state.waiting") for one in list_mappings(pod, "status.containerStatuses"))
    restarted = any(one.get("restartCount") for one in list_mappings(pod, "status.containerStatuses"))
    return ("--previous",) if waits and restarted else ()
