"""TrainJobs on a real API server: the cases of tests/conformance/test_trainer.py, with and without the field's CRD.

The CRDs are our own, with the fields and the validation of KEP-2899. The status is written as Trainer's controller
writes it. Only the API server, its defaults and its pruning are real; the table says what must come out. If
$TRAINER_CRDS is the folder of the CRDs of a release (manifests/base/crds), these take the place of ours that lack the
field.
"""

import json
import os
import re
import time
import urllib.error
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.core.values.objects import format_instant, get_in, parse_instant
from tests.builders import NOW, annotated, condition, having, read_yaml, runtime, trainjob
from tests.conformance.test_trainer import FIELD, TTL
from tests.crds import trainer_crds
from tests.integration.conftest import Api, Run, run_command

GROUP = "/apis/trainer.kubeflow.org/v1alpha1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RUNTIMES = f"{GROUP}/clustertrainingruntimes"
PLURALS = ("trainjobs", "trainingruntimes", "clustertrainingruntimes")
STAMP = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ")
SHIFTED = timedelta(seconds=1_000)
"""How far ahead of the real time the NOW of the table is: no object may have finished before it was created."""


@pytest.fixture(scope="module")
def controllers() -> list[str]:
    return []


@pytest.fixture(scope="module", params=[True, False], ids=["with-the-field", "without-the-field"])
def has_field(server: Any, request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether the CRDs have the TTL field; installed, and removed in the end."""
    api = Api(server)
    crds = trainer_crds(with_ttl=request.param)
    if (folder := os.getenv("TRAINER_CRDS")) and not request.param:
        crds = [one for name in PLURALS for one in read_yaml(Path(folder) / f"trainer.kubeflow.org_{name}.yaml")]
    for crd in crds:
        api.call("POST", CRDS, crd)
    for name in PLURALS:
        path, obj = f"{GROUP}/{name}", runtime() if name == "clustertrainingruntimes" else None
        api.wait("the CRD to be served", lambda path=path, obj=obj: is_served(api, path, obj))
    yield request.param
    for crd in crds:
        api.call("DELETE", f"{CRDS}/{crd['metadata']['name']}")
        api.wait("the CRD to be gone", lambda crd=crd: api.get(f"{CRDS}/{crd['metadata']['name']}") is None)


def is_served(api: Api, path: str, obj: Any) -> bool:
    try:
        return api.get(path) is not None and (obj is None or bool(api.call("POST", f"{path}?dryRun=All", obj)))
    except urllib.error.HTTPError as error:
        if error.code not in (404, 429, 503):  # 429: its storage is being made
            raise
    return False


class TrainJobs:
    """The TrainJobs of one namespace, with a runtime for each."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self.path = f"{GROUP}/namespaces/{namespace}/trainjobs"

    def create(self, name: str, obj: Any, of_runtime: Any, *, shift: timedelta = timedelta(0)) -> bool:
        """Create the TrainJob, then its status as its controller writes it, with each of its times moved.

        Returns:
            False if the API server finds one of the fields invalid.
        """
        try:
            self._create(name, obj, of_runtime, shift)
        except urllib.error.HTTPError as error:
            if error.code != 422:
                raise
            return False
        return True

    def _create(self, name: str, obj: Any, of_runtime: Any, shift: timedelta) -> None:
        name_of_runtime = f"{self.namespace}-{name}"
        self.api.call("POST", RUNTIMES, runtime(of_runtime, name=name_of_runtime))
        obj = json.loads(STAMP.sub(lambda found: moved(found[0], shift), json.dumps(obj)))
        annotations = obj["metadata"].get("annotations", {})
        body = having(obj, "spec.runtimeRef", {"name": name_of_runtime})  # the kind and the group are defaults
        body["metadata"] = {"name": name, "namespace": self.namespace, "annotations": annotations}
        self.api.call("POST", self.path, body)
        conditions = [{**one, "message": one["message"] or "said"} for one in obj["status"]["conditions"]]
        self.api.call("PATCH", f"{self.path}/{name}/status", {"status": {"conditions": conditions}})

    def exists(self, name: str) -> bool:
        return self.api.get(f"{self.path}/{name}") is not None

    def events(self, name: str) -> list[tuple[str, str]]:
        items = self.api.get(f"/api/v1/namespaces/{self.namespace}/events")["items"]
        return [(one["reason"], one["message"]) for one in items if one["involvedObject"]["name"] == name]


def moved(text: str, shift: timedelta) -> str:
    return format_instant(parse_instant(text) + shift)


@pytest.fixture
def jobs(api: Api, namespace: str) -> TrainJobs:
    return TrainJobs(api, namespace)


def short(case: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", case.lower()).strip("-")[:40].strip("-")
    return f"{words}-{zlib.crc32(case.encode()):08x}"


def expectation(obj: Any, of_runtime: Any, expected: Any, *, has_field: bool) -> Any:
    """What the table expects; without the field the API server drops it, and only an annotation sets a TTL."""
    is_set = get_in(obj, FIELD) is not None or of_runtime is not None
    if has_field or not is_set or get_in(obj, "metadata.annotations") or str(expected) == "unfinished":
        return expected
    return "no-ttl"


def test_real_api_server_gives_the_results_of_the_table(has_field, api, jobs, server):
    now = datetime.now(UTC).replace(microsecond=0) + SHIFTED
    expected, refused = {}, []
    for case, (obj, of_runtime, remaining) in TTL.items():
        name = short(case)
        if not jobs.create(name, obj, of_runtime, shift=now - NOW):
            refused.append(case)
            continue
        expected[name] = expectation(obj, of_runtime, remaining, has_field=has_field)

    malformed = ["malformed: kept", "runtime: malformed: kept", "malformed runtime, and an own TTL"]
    assert refused == (malformed if has_field else [])
    done = run_command(server.kubeconfig, "plan", "-n", jobs.namespace, "--kinds", "trainjobs", "--all", "-o", "json")
    assert done.returncode == 0, done.stderr
    found = {one["name"]: one for one in json.loads(done.stdout)}
    answers = {
        name: parse_instant(one["dueAt"]) - now if one["dueAt"] else one["reason"] for name, one in found.items()
    }
    assert answers == expected
    if has_field:
        inherited = found[short("runtime: TTL pending")]
        assert inherited["ttlFrom"].startswith("spec.runPolicy.ttlSecondsAfterFinished of ClusterTrainingRuntime ")


def done(*, failed: bool = False, after: float = 0) -> dict[str, Any]:
    """A TrainJob that finished, or exceeded its deadline, so many seconds from now."""
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1 + after)
    if failed:
        return having(
            trainjob(conditions=[condition("Failed", at, reason="DeadlineExceeded")]), "spec.activeDeadlineSeconds", 1
        )
    return trainjob(complete=at)


def watch_until_gone(jobs: TrainJobs, due: dict[str, datetime]) -> None:
    """Wait for the deletions; none may be early.

    The clock is read before each request: what is gone then, was deleted before the answer came.
    """
    left, deadline = dict(due), time.monotonic() + 60
    while left:
        assert time.monotonic() < deadline, f"not deleted: {sorted(left)}"
        listed = jobs.api.get(jobs.path)
        answered_at = datetime.now(UTC)
        names = {one["metadata"]["name"] for one in listed["items"]}
        for name in [one for one in left if one not in names]:
            assert answered_at >= left.pop(name), f"{name} was deleted early"
        time.sleep(0.02)


def test_run_deletes_each_trainjob_when_it_is_due(has_field, jobs, start_run: Callable[..., Run]):
    def own(obj: Any, seconds: int) -> Any:
        return having(obj, FIELD, seconds) if has_field else annotated(obj, ttl=str(seconds))

    due_after = {
        "own-zero": (own(done(), 0), 3_600 if has_field else None, 0),
        "own-pending": (own(done(), 3), 3_600 if has_field else None, 3),
        "deadline-then-ttl": (own(done(failed=True), 2), None, 2),
        "both-set": (own(done(), 2), 0 if has_field else None, 2),
    }
    if has_field:
        due_after |= {
            "runtime-zero": (done(), 0, 0),
            "runtime-pending": (done(), 3, 3),
            "deadline-then-runtime": (done(failed=True), 2, 2),
        }
    kept = {
        "unset": (done(), None),
        "running": (own(trainjob(conditions=[]), 0), 0 if has_field else None),
        "suspended": (own(trainjob(conditions=[condition("Suspended", datetime.now(UTC))]), 0), None),
        "own-long": (own(done(), 3_600), 0 if has_field else None),
        "soon": (annotated(done(), ttl="soon"), 0 if has_field else None),
    }
    due = {}
    for name, (obj, of_runtime, seconds) in due_after.items():
        (one,) = obj["status"]["conditions"]
        finished_at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
        one["lastTransitionTime"] = one["lastProbeTime"] = format_instant(finished_at)
        due[name] = finished_at + timedelta(seconds=seconds)
        jobs.create(name, obj, of_runtime)
    for name, (obj, of_runtime) in kept.items():
        jobs.create(name, obj, of_runtime)

    start_run("--kinds", "trainjobs")

    watch_until_gone(jobs, due)
    jobs.api.wait("the Event", lambda: jobs.events("soon"))
    assert jobs.events("soon")[0][0] == "InvalidTtl"
    assert all(jobs.exists(name) for name in kept)


def test_runtime_that_changes_or_goes_decides_anew(has_field, jobs, api, start_run: Callable[..., Run]):
    run = start_run("--kinds", "trainjobs", "--sweep-interval", "5s")
    api.wait("the start", lambda: "sweep at start" in run.text)
    jobs.create("waits", done(), 3_600)
    jobs.create("orphan", done(), 1_000)
    path = f"{RUNTIMES}/{jobs.namespace}"
    api.call("DELETE", f"{path}-orphan")
    time.sleep(2)
    assert jobs.exists("waits")

    api.call("PATCH", f"{path}-waits", {"spec": {"runPolicy": {"ttlSecondsAfterFinished": 0}}})

    if not has_field:  # the API server dropped it, so no runtime sets a TTL
        time.sleep(6)
        assert jobs.exists("waits")
        return
    api.wait("the deletion", lambda: not jobs.exists("waits"))
    api.wait("the Event", lambda: jobs.events("orphan"))
    assert jobs.events("orphan")[0][0] == "InvalidTtl"
    assert "does not exist" in jobs.events("orphan")[0][1]
    assert jobs.exists("orphan")
