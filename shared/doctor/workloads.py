"""Check the workloads: Knative Services, Deployments, StatefulSets, and their Pods; read the conditions of objects."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from shared.core.values.objects import get_in, get_text, list_mappings
from shared.doctor.findings import Finding, Level, fail, ok, warn
from shared.installation.inventory import Inventory, Obj, labels_of, name_of
from shared.installation.place import Place

_REVISION = "serving.knative.dev/revision"
_SCALED_TO_0 = "scaled to 0"
_STARTING = {"", "ContainerCreating", "PodInitializing"}


def check_workloads(found: Inventory, place: Place) -> Iterator[Finding]:
    """Check every workload of the installation, and the page of `ui`."""
    for kind, workload in found.workloads():
        yield _check_workload(kind, workload, found, place)
    for page in found.pages():
        finding = _check_workload("Deployment", page, found, place)
        # No deletion depends on the page.
        yield replace(finding, level=Level.WARN) if finding.level is Level.FAIL else finding


def _check_workload(kind: str, workload: Obj, found: Inventory, place: Place) -> Finding:
    what, name = f"{kind} {name_of(workload)}", name_of(workload)
    pods = pods_of(found, workload)
    troubles = [(pod, trouble) for pod in pods if _is_wanted(pod, workload) and (trouble := describe_pod(pod))]
    down = describe_trouble(workload) if kind == "Knative Service" else _describe_replicas(workload)
    if not down and not troubles and (pinned := _describe_pinned(workload)):
        patch = ("patch", *_kubectl_name(kind, name), "--type=merge", '--patch={"spec":{"traffic":null}}')
        return warn(what, pinned, place.command(*patch))
    if not down and not troubles:
        running = sum(map(is_ready, pods))
        return ok(what, f"ready Pods: {running}" if running else "ready, scaled to 0")
    if not troubles:
        words = ("scale", "--replicas=1") if down == _SCALED_TO_0 else ("describe",)
        return fail(what, down, place.command(*words, *_kubectl_name(kind, name)))
    pod, trouble = troubles[0]
    fix = place.command("logs", name_of(pod), "--all-containers", "--tail=5", *_previous(pod))
    report = fail if down else warn  # a ready Service with a bad Pod: its next revision fails to start
    return report(what, f"{down + '; ' if down else ''}Pod {name_of(pod)}: {trouble}", fix)


def _describe_pinned(service: Obj) -> str:
    """Describe to which revisions a Knative Service is pinned; empty if all requests go to its newest revision."""
    targets = list_mappings(service, "spec.traffic")
    revisions = [name for one in targets if (name := get_text(one, "revisionName")) and get_in(one, "percent")]
    if not revisions:
        return ""
    return (
        f"requests go to revision {' and '.join(revisions)}, so what you apply has no effect: expected the newest one"
    )


def pods_of(found: Inventory, workload: Obj) -> list[Obj]:
    """Return the Pods of a workload that are not being deleted."""
    selector = get_in(workload, "spec.selector.matchLabels") or {"serving.knative.dev/service": name_of(workload)}
    return [
        pod
        for pod in found.all("Pod")
        if selector.items() <= labels_of(pod).items() and not get_text(pod, "metadata.deletionTimestamp")
    ]


def _is_wanted(pod: Obj, workload: Obj) -> bool:
    """Return whether a Pod is of a revision that gets requests, or of the newest one, which is to get them.

    Knative keeps the Pod of a revision that failed for ten minutes, also if a later revision has replaced it.
    """
    revision, newest = labels_of(pod).get(_REVISION), get_text(workload, "status.latestCreatedRevisionName")
    serving = {get_text(one, "revisionName") for one in list_mappings(workload, "status.traffic")}
    return not (revision and newest) or revision in {newest, *serving}


def describe_pod(pod: Obj) -> str:
    """Describe why a Pod is not ready, by its container statuses or by the scheduler; empty if there is no problem."""
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
    parts = []
    if get_text(status, "state.waiting.reason") not in _STARTING:
        parts.append(_message(get_in(status, "state.waiting")))
    for path in ("state.terminated", "lastState.terminated"):
        ended = get_in(status, path)
        if isinstance(ended, dict) and ended.get("exitCode") != 0:
            parts.append(f"exit code {ended.get('exitCode')}: {_message(ended)}")
            break
    if restarts and not parts:
        parts.append("not ready")
    return ", ".join(parts) + (f", restarts: {restarts}" if restarts and parts else "")


def _message(state: Any) -> str:
    """Return reason and message; the message may be the end of a log, of which only the last line is used."""
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
    """Return `--previous` if the container waits for a restart: the log is that of the previous container."""
    waits = any(get_in(one, "state.waiting") for one in list_mappings(pod, "status.containerStatuses"))
    restarted = any(one.get("restartCount") for one in list_mappings(pod, "status.containerStatuses"))
    return ("--previous",) if waits and restarted else ()


def is_ready(obj: Obj) -> bool:
    """Return whether the condition Ready of an object is true."""
    return any(get_text(one, "status") == "True" for one in _conditions(obj) if get_text(one, "type") == "Ready")


def describe_trouble(obj: Obj) -> str:
    """Describe why an object is not ready; empty if it is ready.

    The condition Ready summarizes the others, but it carries the message of one of them at most.
    """
    if is_ready(obj):
        return ""
    conditions = list(_conditions(obj))
    for status in ("False", "Unknown"):
        matching = [one for one in conditions if get_text(one, "status") == status]
        parts = [one for one in matching if get_text(one, "type") != "Ready" and _reason_of(one)] or matching
        if parts and any(map(_reason_of, parts)):
            return "; ".join(f"{get_text(one, 'type')}: {_reason_of(one)}" for one in parts)
        if parts:
            names = [name for one in parts if (name := get_text(one, "type")) != "Ready"] or ["Ready"]
            return f"{', '.join(names)}: status is {status}, without a message"
    return "it has no conditions yet; check that its controller runs"


def failing(obj: Obj) -> set[str]:
    """Return the types of the conditions that are false."""
    return {get_text(one, "type") for one in _conditions(obj) if get_text(one, "status") == "False"}


def _conditions(obj: Obj) -> Iterator[Mapping[str, Any]]:
    return list_mappings(obj, "status.conditions")


def _reason_of(condition: Mapping[str, Any]) -> str:
    return get_text(condition, "message") or get_text(condition, "reason")
