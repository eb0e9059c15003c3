"""Active deadlines of kinds whose operators stop them, on a real API server; the operators are played."""

import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.adapters.kubernetes.requests import resource_path
from shared.core.values.objects import parse_instant
from tests.builders import kind_rules, not_none
from tests.integration.conftest import Api, Run
from tests.integration.operators import (
    cancel_pipeline_run,
    install,
    now,
    playing,
    restart_cancelled,
    shut_workflow_down,
    start_pipeline_run,
    start_workflow,
    suspend_train_job,
    undo_cancel,
)
from tests.integration.test_deadlines import is_marked, mark_of, ours, written_at

Start = Callable[..., Run]
PIPELINE_RUN, WORKFLOW, TRAIN_JOB = "pipelineruns.tekton.dev", "workflows.argoproj.io", "trainjob"
TRIAL = "trials.kubeflow.org"
FILES = (PIPELINE_RUN, WORKFLOW, TRAIN_JOB, TRIAL)
KINDS = ",".join(kind_rules()[file].name for file in FILES)


class Custom:
    """Objects of one kind in the test's namespace."""

    def __init__(self, api: Api, file: str, namespace: str) -> None:
        self.api, self.rule, self.namespace = api, kind_rules()[file], namespace
        self.path = resource_path(self.rule, namespace)

    def create(self, name: str, spec: dict[str, Any] | None = None, **annotations: str) -> Any:
        metadata = {"name": name, "annotations": ours(**annotations)}
        body = {"apiVersion": self.rule.api_version, "kind": self.rule.kind, "metadata": metadata}
        return self.api.call("POST", self.path, {**body, "spec": spec or {"of": "a test"}})

    def get(self, name: str) -> Any:
        return self.api.get(f"{self.path}/{name}")

    def await_stop(self, name: str) -> Any:
        return self.api.wait("the stop", lambda: obj if is_marked(obj := self.get(name)) else None)

    def await_event(self, reason: str, name: str) -> str:
        def find() -> Any:
            listed = self.api.call("GET", f"/api/v1/namespaces/{self.namespace}/events")["items"]
            return [one for one in listed if one["reason"] == reason and one["involvedObject"]["name"] == name]

        message: str = self.api.wait(f"the Event {reason}", find)[0]["message"]
        return message


@pytest.fixture(scope="module")
def crds(server: Any) -> None:
    api = Api(server)
    for file in FILES:
        install(api, kind_rules()[file], has_status=file != WORKFLOW)


@pytest.fixture
def pipeline_runs(api: Api, crds: None, namespace: str) -> Custom:
    return Custom(api, PIPELINE_RUN, namespace)


@pytest.fixture
def workflows(api: Api, crds: None, namespace: str) -> Custom:
    return Custom(api, WORKFLOW, namespace)


@pytest.fixture
def train_jobs(api: Api, crds: None, namespace: str) -> Custom:
    return Custom(api, TRAIN_JOB, namespace)


@pytest.fixture
def trials(api: Api, crds: None, namespace: str) -> Custom:
    return Custom(api, TRIAL, namespace)


@pytest.fixture
def run(api: Api, crds: None, start_run: Start) -> Iterator[Run]:
    started = start_run("--kinds", KINDS, "-v")
    api.wait("the first sweeps", lambda: started.text.count("sweep ended") >= len(KINDS.split(",")))
    yield started
    assert started.process.poll() is None


@pytest.mark.usefixtures("run")
def test_pipeline_run_is_cancelled_at_its_deadline_and_deleted_by_its_ttl(pipeline_runs: Custom) -> None:
    with playing(
        pipeline_runs.api, pipeline_runs.rule, pipeline_runs.namespace, start_pipeline_run, cancel_pipeline_run
    ):
        pipeline_runs.create("build", active_deadline="2s", ttl="3s")
        stopped = pipeline_runs.await_stop("build")
        ended = pipeline_runs.api.wait(
            "its end", lambda: obj if "completionTime" in (obj := pipeline_runs.get("build"))["status"] else None
        )
        pipeline_runs.api.wait("its deletion", lambda: pipeline_runs.get("build") is None)

    started_at, ended_at = (parse_instant(ended["status"][name]) for name in ("startTime", "completionTime"))
    assert stopped["spec"]["status"] == "Cancelled"
    assert written_at(stopped, "f:status") >= started_at + timedelta(seconds=2)
    assert datetime.now(UTC) >= ended_at + timedelta(seconds=3)


@pytest.mark.usefixtures("run")
def test_workflow_is_terminated_at_its_deadline_and_deleted_by_its_ttl(workflows: Custom) -> None:
    with playing(workflows.api, workflows.rule, workflows.namespace, start_workflow, shut_workflow_down):
        workflows.create("steps", active_deadline="2s", ttl="3s")
        stopped = workflows.await_stop("steps")
        ended = workflows.api.wait(
            "its end", lambda: obj if (obj := workflows.get("steps"))["status"]["phase"] == "Failed" else None
        )
        workflows.api.wait("its deletion", lambda: workflows.get("steps") is None)

    started_at, ended_at = (parse_instant(ended["status"][name]) for name in ("startedAt", "finishedAt"))
    assert stopped["spec"]["shutdown"] == "Terminate"
    assert written_at(stopped, "f:shutdown") >= started_at + timedelta(seconds=2)
    assert datetime.now(UTC) >= ended_at + timedelta(seconds=3)


@pytest.mark.usefixtures("run")
def test_train_job_is_suspended_resumed_stopped_again_and_deleted_by_its_ttl(train_jobs: Custom) -> None:
    with playing(train_jobs.api, train_jobs.rule, train_jobs.namespace, suspend_train_job):
        created = train_jobs.create("llm", active_deadline="3s", ttl="5s")
        first = train_jobs.await_stop("llm")

        assert first["spec"]["suspend"] is True
        assert written_at(first, "f:suspend") >= parse_instant(created["metadata"]["creationTimestamp"]) + timedelta(
            seconds=3
        )

        train_jobs.api.wait("its suspension", lambda: is_suspended(train_jobs.get("llm"), "True"))
        train_jobs.api.call("PATCH", f"{train_jobs.path}/llm", {"spec": {"suspend": False}})
        resumed = train_jobs.api.wait("its resume", lambda: is_suspended(train_jobs.get("llm"), "False"))
        second = train_jobs.api.wait(
            "the second stop", lambda: obj if mark_of(obj := train_jobs.get("llm"))[1] == 2 else None
        )
        assert written_at(second, "f:suspend") >= resumed + timedelta(seconds=3)

        train_jobs.api.wait("its deletion", lambda: train_jobs.get("llm") is None)
    assert datetime.now(UTC) >= mark_of(second)[0] + timedelta(seconds=5)


def test_train_job_with_the_field_of_trainer_is_left_to_trainer(train_jobs: Custom, run: Run) -> None:
    with playing(train_jobs.api, train_jobs.rule, train_jobs.namespace, suspend_train_job):
        train_jobs.create("llm", active_deadline="3s")
        train_jobs.api.call("PATCH", f"{train_jobs.path}/llm", {"spec": {"activeDeadlineSeconds": 600}})
        train_jobs.api.wait("the timer", lambda: re.search(r'kept .*/llm".*enforced-by-controller', run.text))

    assert not is_marked(train_jobs.get("llm"))


@pytest.mark.parametrize(
    ("controller", "stops"),
    [
        ((start_pipeline_run, undo_cancel), 1),
        ((start_pipeline_run, restart_cancelled, undo_cancel), 3),
    ],
    ids=["undone", "undone-and-restarted"],
)
def test_controller_that_undoes_each_stop_is_reported_and_the_run_is_not_stopped_without_end(
    pipeline_runs: Custom, run: Run, controller: Any, stops: int
) -> None:
    with playing(pipeline_runs.api, pipeline_runs.rule, pipeline_runs.namespace, *controller):
        pipeline_runs.create("stubborn", active_deadline="1s")
        message = pipeline_runs.await_event("StopUndone", "stubborn")
        time.sleep(4)

    assert mark_of(pipeline_runs.get("stubborn"))[1] == stops
    assert len(re.findall(r"\bstopped .*/stubborn\"", run.text)) == stops
    assert len(re.findall(r"stop-undone", run.text)) < 10, "a loop"
    assert message.startswith(f"not stopped again: it was stopped {'at 2' if stops == 1 else '3 times'}")


@pytest.mark.usefixtures("run")
def test_deadline_of_a_kind_that_cannot_be_stopped_is_reported_and_deletes_only_if_asked(trials: Custom) -> None:
    trials.create("tuning", active_deadline="1s")
    message = trials.await_event("CannotStop", "tuning")
    trials.create("opted-in", active_deadline="1s", on_deadline="delete")
    started = {"startTime": now(), "conditions": [{"type": "Running", "status": "True", "lastTransitionTime": now()}]}
    trials.api.call("PATCH", f"{trials.path}/opted-in/status", {"status": started})
    trials.api.wait("the deletion", lambda: trials.get("opted-in") is None)

    assert message == f"not stopped: {not_none(trials.rule.deadline).cannot_stop}"
    assert trials.get("tuning")["spec"] == {"of": "a test"}


def is_suspended(obj: Any, status: str) -> datetime | None:
    """Since when the condition Suspended has a status; None if it has another."""
    for condition in obj.get("status", {}).get("conditions", []):
        if (condition["type"], condition["status"]) == ("Suspended", status):
            return parse_instant(condition["lastTransitionTime"])
    return None
