"""Every series that the alerts and the dashboard read, from real processes of the functions on a real API server."""

import json
import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shared import __version__
from shared.adapters.events.cloudevents import TICK
from shared.core.deadlines.deadline import STOPS_MAX
from shared.core.values.objects import format_instant
from shared.devserver.ports import free_port
from shared.devserver.real_servers import RealServer
from shared.usecases.sweep import MISSED_AFTER
from tests.builders import COMMAND
from tests.functions.wire import FIRED, SET
from tests.integration.conftest import Api
from tests.integration.processes import FunctionProcess
from tests.monitoring import QUERIED, RECORDED, parse_series

HEAD = "apiVersion: ttlafterfinished.dev/v1\nkind: Policy\n"
LOOP = HEAD + "recreation: {times: 2, window: 10m}\n"
ARCHIVE = (
    HEAD
    + """
archives: {main: {url: "file:///proc/archive"}}
rules: [{name: all, match: {kinds: [jobs]}, ttl: 1h, archive: {to: main}}]
"""
)
UNUSED = HEAD + "rules: [{name: unused, match: {kinds: [secrets, configmaps]}, unused: {ttl: 7d}}]\n"
POD_SPEC = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/work:1"}]}
RULES = [
    {"apiGroups": ["", "batch", "apiregistration.k8s.io"], "resources": ["*"], "verbs": ["get", "list"]},
    {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
]


def ago(seconds: float) -> str:
    return format_instant((datetime.now(UTC) - timedelta(seconds=seconds)).replace(microsecond=0))


class Objects:
    """Jobs of one namespace, in the states that lead to the alerts."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self.jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"

    def create(self, name: str, status: dict[str, Any], **annotations: str) -> dict[str, Any]:
        """Create a Job with a status, and return its ref."""
        ours = {f"ttlafterfinished.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
        body = {"metadata": {"name": name, "annotations": ours}, "spec": {"template": {"spec": POD_SPEC}}}
        job = self.api.call("POST", self.jobs, body)
        self.api.call("PATCH", f"{self.jobs}/{name}/status", {"status": status})
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "namespace": self.namespace,
            "name": name,
            "uid": job["metadata"]["uid"],
        }

    def finished(self, name: str, **annotations: str) -> dict[str, Any]:
        at = ago(7200)
        ended = {"type": "Complete", "status": "True", "lastTransitionTime": at, "lastProbeTime": at}
        criteria = {**ended, "type": "SuccessCriteriaMet"}
        status = {"startTime": at, "completionTime": at, "succeeded": 1, "conditions": [criteria, ended]}
        return self.create(name, status, **annotations)

    def overtime(self, name: str, **annotations: str) -> dict[str, Any]:
        """Create a Job that has run for longer than its deadline."""
        ref = self.create(name, {}, active_deadline="1s", **annotations)
        started_at = self.api.get(f"{self.jobs}/{name}")["metadata"]["creationTimestamp"]  # never before its creation
        self.api.call("PATCH", f"{self.jobs}/{name}/status", {"status": {"startTime": started_at}})
        time.sleep(2)
        return ref

    def limited_token(self) -> str:
        """The token of an account that may read Jobs, and write nothing but Events."""
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        name = f"limited-{self.namespace}"
        self.api.call("POST", f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": RULES})
        subject = {"kind": "ServiceAccount", "name": "limited", "namespace": self.namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
        self.api.call("POST", f"{rbac}/clusterrolebindings", binding)
        accounts = f"/api/v1/namespaces/{self.namespace}/serviceaccounts"
        self.api.call("POST", accounts, {"metadata": {"name": "limited"}})
        token: str = self.api.call("POST", f"{accounts}/limited/token", {"spec": {}})["status"]["token"]
        return token


def fired(ref: dict[str, Any], purpose: str = "expire") -> dict[str, Any]:
    return {"ref": ref, "purpose": purpose, "dueAt": ago(60)}


def expire(start: Callable[..., FunctionProcess], objects: Objects) -> None:
    """A deletion, a name that returns after each deletion, an open breaker, and a stop by an operator."""
    function = start("expire", policy=LOOP)
    for _ in range(2):
        assert function.post(FIRED, fired(objects.finished("again", ttl="0s"))) == 200
    function.post(FIRED, fired(objects.finished("again", ttl="0s")))
    state = f"/api/v1/namespaces/{objects.namespace}/configmaps/ttl-after-finished-state"
    trip = json.dumps({"at": ago(60), "why": "too many", "by": "expire"})
    objects.api.wait("the shared state", lambda: objects.api.get(state))
    objects.api.call("PATCH", state, {"data": {"breaker": trip, "stop": "a test"}})
    objects.api.wait("the breaker", lambda: function.scrape()["ttl_breaker_open"] == 1)
    objects.api.wait("the stop", lambda: function.scrape()["ttl_stopped"] == 1)


def enforce(start: Callable[..., FunctionProcess], objects: Objects) -> None:
    """A stop at a deadline, one that is undone too often, and one that the API server refuses."""
    function = start("enforce")
    assert function.post(FIRED, fired(objects.overtime("long"), "enforce"), purpose="enforce") in (200, 204)
    # A mark that is older than its object is ignored.
    marks = {"deadline_exceeded": ago(-2), "stops": str(STOPS_MAX)}
    function.post(FIRED, fired(objects.overtime("undone", **marks), "enforce"), purpose="enforce")
    refused = start("enforce", TTL_API_TOKEN=objects.limited_token())
    refused.post(FIRED, fired(objects.overtime("refused"), "enforce"), purpose="enforce")


def archive(start: Callable[..., FunctionProcess], objects: Objects) -> None:
    """An object that finished long ago, and an archive that does not accept it."""
    function = start("archive", policy=ARCHIVE)
    ref = objects.finished("unarchived")
    assert function.post(FIRED, fired(ref, "archive"), purpose="archive") in (422, 503)
    assert function.scrape()["ttl_archive_oldest_unacknowledged_seconds"] > 0


def sweep(start: Callable[..., FunctionProcess], objects: Objects) -> None:
    """A sweep that finds an object which events missed, and one whose API server does not answer."""
    objects.finished("missed", ttl="0s")
    objects.finished("waiting", ttl="12h")  # it finished two hours ago
    time.sleep(MISSED_AFTER.total_seconds() + 1)
    assert start("sweep", TTL_KINDS="jobs").post(TICK) == 204
    unreachable = start("sweep", TTL_KINDS="jobs", TTL_API_SERVER="https://127.0.0.1:9")
    assert unreachable.post(TICK) == 503


def usage(start: Callable[..., FunctionProcess], objects: Objects) -> None:
    """A pass over all kinds by an account that may not list them."""
    home = f"/api/v1/namespaces/{objects.namespace}"
    objects.api.call("PATCH", home, {"metadata": {"annotations": {"ttlafterfinished.dev/unused": "true"}}})
    objects.api.call("POST", f"{home}/configmaps", {"metadata": {"name": "old"}, "data": {"a": "1"}})
    function = start("usage", policy=UNUSED, TTL_API_TOKEN=objects.limited_token())
    function.post(TICK, purpose="usage")
    assert function.scrape()["ttl_usage_pass_complete"] == 0


def timers(start: Callable[..., FunctionProcess], objects: Objects) -> None:
    """A due timer that no Broker takes, and timers that cannot be counted."""
    broker = start("deadletter")  # it accepts every event
    function = start("timers")
    accepting = start("timers", K_SINK=broker.url)
    ref = {"apiVersion": "batch/v1", "kind": "Job", "namespace": "a", "name": "b", "uid": "c"}
    assert function.post(SET, {"timers": [fired(ref)]}) == 204
    assert accepting.post(SET, {"timers": [fired(ref)]}) == 204
    accepted = f'ttl_published_total{{result="accepted",type="{FIRED}"}}'
    objects.api.wait("a delivery", lambda: accepted in accepting.scrape())
    failed = f'ttl_published_total{{result="failed",type="{FIRED}"}}'
    objects.api.wait("a failed delivery", lambda: failed in function.scrape())


def deadletter(start: Callable[..., FunctionProcess], objects: Objects) -> None:
    """An event that no function took."""
    assert start("deadletter").post(FIRED, knativeerrorcode="422") == 204


SCENES = (expire, enforce, archive, sweep, usage, timers, deadletter)


def normalised(series: str) -> str:
    """A series without what differs from run to run and from release to release."""
    return re.sub('problem="[^"]*"', 'problem="TEXT"', series.replace(__version__, "VERSION"))


@pytest.fixture(scope="module")
def controllers() -> list[str]:
    """The tests play the Job controller."""
    return ["garbage-collector-controller"]


@pytest.fixture
def started() -> list[FunctionProcess]:
    return []


@pytest.fixture
def start(
    api: Api, namespace: str, tmp_path: Path, started: list[FunctionProcess]
) -> Iterator[Callable[..., FunctionProcess]]:
    """Start a function on the test's namespace; it ends with the test."""
    with ExitStack() as stack:
        stack.callback(api.call, "DELETE", f"/apis/batch/v1/namespaces/{namespace}/jobs")

        def start(name: str, *, policy: str = "", **settings: str) -> FunctionProcess:
            folder = tmp_path / f"{name}-{len(started)}"
            if policy:
                settings["TTL_POLICY"] = str(tmp_path / f"{name}.yaml")
                Path(settings["TTL_POLICY"]).write_text(policy)
            process = FunctionProcess(api, name, folder, **{"TTL_NAMESPACE": namespace, **settings})
            stack.callback(process.end)
            started.append(process)
            return process

        yield start


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_process_shows_the_recorded_series(
    scene: Callable[..., None],
    start: Callable[..., FunctionProcess],
    started: list[FunctionProcess],
    api: Api,
    namespace: str,
) -> None:
    scene(start, Objects(api, namespace))
    series = {line for process in started if process.name == scene.__name__ for line in process.scrape()}
    shown = sorted({normalised(line) for line in series if parse_series(line)[0] in QUERIED})
    file = RECORDED / f"{scene.__name__}.prom"
    if os.environ.get("TTL_RECORD_METRICS"):
        file.write_text("".join(f"{line}\n" for line in shown))
    assert shown == file.read_text().splitlines(), "to record again, set TTL_RECORD_METRICS=1"


def test_run_has_every_metric_of_the_alerts_and_the_dashboard(
    server: RealServer, api: Api, namespace: str, tmp_path: Path
) -> None:
    port = free_port()
    environment = {
        **os.environ,
        "KUBECONFIG": str(server.kubeconfig),
        "XDG_STATE_HOME": str(tmp_path),
        "TTL_METRICS_PORT": str(port),
        "TTL_POLICY": str(tmp_path / "policy.yaml"),
    }
    (tmp_path / "policy.yaml").write_text(LOOP)
    command = [*COMMAND, "run", "--kinds", "jobs", "-n", namespace, "--lease-namespace", namespace]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)

    def families() -> set[str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
                return set(re.findall(r"^# TYPE (\w+) ", response.read().decode(), re.MULTILINE))
        except OSError:
            return set()

    of_samples = {re.sub("_(bucket|sum|count)$", "", name) for name in QUERIED}
    try:
        api.wait("a pending timer", lambda: "ttl_timers_pending" in families())
        # It has no timer, so there is no next one.
        assert of_samples - families() == {"ttl_timers_next_due_timestamp_seconds"}
    finally:
        process.kill()
        process.wait()
