"""The timers of `run` on a real kube-apiserver: a kind that cannot be served delays no other."""

import copy
import urllib.error
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.adapters.config.kind_files import read_catalogue
from tests.crds import crd_of
from tests.integration.conftest import Api, Run

BROKEN, HONEST = 200, 20

DUE_AFTER = timedelta(seconds=45)
"""From the creation of the first object to the due of all: enough to create them on a slow machine."""

SECONDS_MAX = 60.0
"""For the honest ones; the broken ones would hold all deliveries for 100 s, were each retried in its delivery."""

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEAD_WEBHOOK = {
    "strategy": "Webhook",
    "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/convert"}},
}


def stamp(instant: datetime) -> str:
    return instant.isoformat(timespec="seconds").replace("+00:00", "Z")


@pytest.fixture
def rayjobs(api: Api, namespace: str) -> str:
    """RayJobs that are stored as v1alpha1 and served as v1, too; the path of the stored ones."""
    (rule,) = (rule for rule in read_catalogue().rules if rule.name == "rayjobs.ray.io")
    crd = copy.deepcopy(crd_of(rule))
    for version in crd["spec"]["versions"]:
        version["storage"] = version["name"] == "v1alpha1"
        del version["subresources"]
    api.call("POST", CRDS, crd)
    path = f"/apis/ray.io/v1alpha1/namespaces/{namespace}/rayjobs"
    for at in (path, path.replace("v1alpha1", "v1")):
        api.wait("the kind", lambda at=at: patiently(api, "GET", at))
    return path


def patiently(api: Api, method: str, path: str, body: Any = None) -> Any:
    """A call; None where the API server has only just begun, or begun again, to serve the kind (404, 429, 500)."""
    try:
        return api.call(method, path, body)
    except urllib.error.HTTPError as error:
        if error.code not in (404, 429, 500):
            raise
        return None


def rayjob(name: str, due_at: datetime) -> dict[str, Any]:
    return {
        "apiVersion": "ray.io/v1alpha1",
        "kind": "RayJob",
        "metadata": {"name": name, "annotations": {"ttlafterfinished.dev/expire-at": stamp(due_at)}},
        "status": {
            "jobStatus": "SUCCEEDED",
            "jobDeploymentStatus": "Complete",
            "endTime": stamp(datetime.now(UTC) - timedelta(seconds=1)),
        },
    }


def create_finished_pod(api: Api, pods: str, name: str) -> None:
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/work:1"}]}
    metadata = {"name": name, "annotations": {"ttlafterfinished.dev/ttl": "1s"}}
    api.call("POST", pods, {"metadata": metadata, "spec": spec})
    ended = {"exitCode": 0, "startedAt": stamp(datetime.now(UTC)), "finishedAt": stamp(datetime.now(UTC))}
    container = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    status = {"phase": "Succeeded", "containerStatuses": [{**container, "state": {"terminated": ended}}]}
    api.call("PATCH", f"{pods}/{name}/status", {"status": status})


def names(api: Api, path: str) -> set[str]:
    listed = api.wait("a LIST", lambda: patiently(api, "GET", path))
    return {one["metadata"]["name"] for one in listed["items"]}


@pytest.mark.timeout(400)
def test_run_deletes_other_kinds_on_time_while_the_conversion_webhook_of_one_is_down(
    api: Api, namespace: str, rayjobs: str, start_run: Callable[..., Run]
) -> None:
    run = start_run("--kinds", "pods,rayjobs.ray.io")
    api.wait("the first sweep", lambda: "watch" in run.text or "leads" in run.text or "sweep" in run.text)
    due_at = datetime.now(UTC) + DUE_AFTER

    def create(name: str) -> None:
        api.wait("a RayJob", lambda: patiently(api, "POST", rayjobs, rayjob(name, due_at)))

    broken = {f"broken-{number}" for number in range(BROKEN)}
    with ThreadPoolExecutor(8) as pool:
        for name in sorted(broken):
            pool.submit(create, name)
    assert names(api, rayjobs) == broken
    api.wait("their timers", lambda: run.text.count("timer-set") >= BROKEN)
    api.call("PATCH", f"{CRDS}/rayjobs.ray.io", {"spec": {"conversion": DEAD_WEBHOOK}})
    assert datetime.now(UTC) < due_at, "the machine is too slow for this test to mean anything"
    api.wait("their retries", lambda: run.text.count("try-later") >= BROKEN // 10, DUE_AFTER.total_seconds() + 30)

    pods = f"/api/v1/namespaces/{namespace}/pods"
    for number in range(HONEST):
        create_finished_pod(api, pods, f"honest-{number}")
    api.wait("the deletion of the honest ones", lambda: not names(api, pods), SECONDS_MAX)

    assert names(api, rayjobs) == broken
    assert "dead letter" not in run.text

    api.call("PATCH", f"{CRDS}/rayjobs.ray.io", {"spec": {"conversion": {"strategy": "None", "webhook": None}}})
    api.wait("the deletion of the others", lambda: not names(api, rayjobs), 120)
