"""Small controllers that play operators: they answer a stop by the status that the real operator writes."""

import threading
import urllib.error
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from shared.adapters.kubernetes.requests import resource_path
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import format_instant
from tests.crds import crd_of
from tests.integration.conftest import Api

Object = dict[str, Any]
Reaction = Callable[[Object], Object | None]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POLL_SECONDS = 0.05


def now() -> str:
    return format_instant(datetime.now(UTC).replace(microsecond=0))


def install(api: Api, rule: KindRule, *, has_status: bool = True) -> None:
    """Install the CRD of a kind, and wait until the API server serves it.

    Args:
        api: The API server.
        rule: The kind.
        has_status: Whether its status is a subresource.
    """
    crd = crd_of(rule)
    if not has_status:
        for version in crd["spec"]["versions"]:
            del version["subresources"]
    api.call("POST", CRDS, crd)

    def is_served() -> bool:
        try:
            return api.get(resource_path(rule, "default")) is not None
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.TOO_MANY_REQUESTS:  # its storage is being made
                return False
            raise

    api.wait(f"the CRD of {rule.name}", is_served)


@contextmanager
def playing(api: Api, rule: KindRule, namespace: str, *reactions: Reaction) -> Iterator[None]:
    """Run a controller of one kind in one namespace until the block ends.

    Args:
        api: The API server.
        rule: The kind.
        namespace: The namespace.
        reactions: Each returns a JSON merge patch for an object, or None for no change.
    """
    done, collection = threading.Event(), resource_path(rule, namespace)
    problems: list[BaseException] = []

    def work() -> None:
        while not done.wait(POLL_SECONDS):
            try:
                _reconcile(api, collection, reactions)
            except BaseException as error:  # noqa: BLE001 - raised in the test's thread
                problems.append(error)
                return

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    if problems:
        raise problems[0]


def _reconcile(api: Api, collection: str, reactions: Iterable[Reaction]) -> None:
    for obj in api.call("GET", collection)["items"]:
        path = f"{collection}/{obj['metadata']['name']}"
        for react in reactions:
            patch = react(obj)
            if patch is not None:
                is_status = patch.keys() == {"status"}
                _patch(api, f"{path}/status" if is_status else path, patch)
                break  # the next turn reads the object again


def _patch(api: Api, path: str, patch: Object) -> None:
    try:
        api.call("PATCH", path, patch)
    except urllib.error.HTTPError as error:
        if error.code not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
            raise


def start_pipeline_run(obj: Object) -> Object | None:
    """Tekton's controller starts a PipelineRun."""
    if obj.get("status"):
        return None
    running = {"type": "Succeeded", "status": "Unknown", "reason": "Running", "lastTransitionTime": now()}
    return {"status": {"startTime": now(), "conditions": [running]}}


def cancel_pipeline_run(obj: Object) -> Object | None:
    """Tekton's controller cancels a PipelineRun whose `spec.status` asks for it."""
    if obj["spec"].get("status") != "Cancelled" or "completionTime" in obj.get("status", {}):
        return None
    message = f'PipelineRun "{obj["metadata"]["name"]}" was cancelled'
    ended = {"type": "Succeeded", "status": "False", "reason": "Cancelled", "message": message}
    return {"status": {"completionTime": now(), "conditions": [{**ended, "lastTransitionTime": now()}]}}


def undo_cancel(obj: Object) -> Object | None:
    """A controller that owns `spec.status` and takes every other value away, as GitOps tools do."""
    return {"spec": {"status": None}} if obj["spec"].get("status") else None


def restart_cancelled(obj: Object) -> Object | None:
    """A controller that starts a cancelled run again, before `undo_cancel` takes the stop away."""
    stopped_at = obj["metadata"].get("annotations", {}).get("ttlafterfinished.dev/deadline-exceeded")
    if not obj["spec"].get("status") or not stopped_at or obj["status"]["startTime"] >= stopped_at[:19]:
        return None
    return {"status": {"startTime": now()}}


def start_workflow(obj: Object) -> Object | None:
    """Argo's controller starts a Workflow; its CRD has no status subresource."""
    if obj.get("status"):
        return None
    labels = {"workflows.argoproj.io/phase": "Running"}
    return {"metadata": {"labels": labels}, "status": {"phase": "Running", "startedAt": now(), "finishedAt": None}}


def shut_workflow_down(obj: Object) -> Object | None:
    """Argo's controller terminates a Workflow whose `spec.shutdown` asks for it."""
    if obj["spec"].get("shutdown") != "Terminate" or obj.get("status", {}).get("phase") != "Running":
        return None
    labels = {"workflows.argoproj.io/phase": "Failed", "workflows.argoproj.io/completed": "true"}
    ended = {"phase": "Failed", "finishedAt": now(), "message": "Stopped with strategy 'Terminate'"}
    return {"metadata": {"labels": labels}, "status": ended}


def suspend_train_job(obj: Object) -> Object | None:
    """Trainer's controller suspends a TrainJob, and resumes it: by its condition alone."""
    conditions = {one["type"]: one["status"] for one in obj.get("status", {}).get("conditions", [])}
    is_suspended, is_wanted = conditions.get("Suspended") == "True", obj["spec"].get("suspend", False)
    if is_suspended == is_wanted:
        return None
    about = ("True", "Suspended") if is_wanted else ("False", "Resumed")
    condition = {"type": "Suspended", "status": about[0], "reason": about[1], "lastTransitionTime": now()}
    return {"status": {"conditions": [condition]}}
