"""`set --deadline`, `hold` and `explain` of running objects on a real kube-apiserver."""

import json
import subprocess
from collections.abc import Callable

import pytest

from shared.devserver.real_servers import RealServer
from tests.integration.conftest import Api, run_command
from tests.integration.test_hold import annotations
from tests.integration.test_run import Cluster
from tests.servers import shared_server  # noqa: F401 - a fixture

pytestmark = pytest.mark.timeout(300)

Ttl = Callable[..., subprocess.CompletedProcess[str]]
DEADLINE = "ttlafterfinished.dev/active-deadline"


@pytest.fixture(scope="module")
def controllers() -> list[str]:
    """The Job controller sets `status.startTime`, from which the deadline counts."""
    return ["job-controller"]


@pytest.fixture
def jobs(api: Api, namespace: str) -> Cluster:
    return Cluster(api, namespace)


@pytest.fixture
def ttl(server: RealServer, namespace: str) -> Ttl:
    """`kubectl ttl` in the test's namespace."""

    def run(command: str, *words: str) -> subprocess.CompletedProcess[str]:
        return run_command(server.kubeconfig, command, *words, "-n", namespace)

    return run


def test_set_writes_and_removes_a_deadline_and_explain_shows_it(jobs: Cluster, ttl: Ttl) -> None:
    jobs.create_job("report")
    jobs.api.wait("its start", lambda: jobs.job("report").get("status", {}).get("startTime"))

    done = ttl("set", "job/report", "1h", "--deadline", "6h")

    assert (done.returncode, done.stderr) == (0, "")
    assert annotations(jobs.job("report")) == {"ttlafterfinished.dev/ttl": "1h", DEADLINE: "6h"}
    assert f"deadline: 6h, by {DEADLINE}; runs since " in done.stdout
    assert 'by the patch {"spec": {"activeDeadlineSeconds": 1}}' in done.stdout
    reported = json.loads(ttl("explain", "job/report", "-o", "json").stdout)["deadline"]
    assert reported["startedAt"] == jobs.job("report")["status"]["startTime"]
    assert (reported["seconds"], reported["from"], reported["decision"]) == (21600, DEADLINE, "wait")

    held = ttl("hold", "job/report", "--reason", "the logs")
    assert "it is not stopped until the release, even if its deadline is over: 6h" in held.stdout
    reported = json.loads(ttl("explain", "job/report", "-o", "json").stdout)["deadline"]
    assert (reported["decision"], reported["reason"]) == ("ignore", "held")
    assert ttl("release", "job/report").returncode == 0

    removed = ttl("set", "job/report", "--unset-deadline")
    assert removed.returncode == 0
    assert "deadline: no source sets a deadline" in removed.stdout
    assert annotations(jobs.job("report")) == {"ttlafterfinished.dev/ttl": "1h"}


def test_set_reports_a_deadline_that_the_controller_of_the_kind_enforces(jobs: Cluster, ttl: Ttl) -> None:
    jobs.create_job("report")
    jobs.api.call("PATCH", f"{jobs.jobs}/report", {"spec": {"activeDeadlineSeconds": 3600}})

    asked = ttl("set", "job/report", "--deadline", "6h")

    assert asked.returncode == 1
    assert "this deadline has no effect" in asked.stderr
    assert "the Job controller enforces spec.activeDeadlineSeconds" in asked.stderr


def test_set_refuses_a_deadline_on_a_kind_that_never_finishes(jobs: Cluster, ttl: Ttl, namespace: str) -> None:
    cron = f"/apis/batch/v1/namespaces/{namespace}/cronjobs"
    template = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}}}
    jobs.api.call("POST", cron, {"metadata": {"name": "c"}, "spec": {"schedule": "0 0 1 1 *", "jobTemplate": template}})

    refused = ttl("set", "cronjob/c", "--deadline", "6h")

    assert refused.returncode == 1
    assert "never finishes" in refused.stderr
    assert annotations(jobs.api.get(f"{cron}/c")) == {}


def test_plan_counts_what_would_be_stopped(jobs: Cluster, ttl: Ttl) -> None:
    jobs.create_job("late", annotations={DEADLINE: "1s"})
    jobs.create_job("later", annotations={DEADLINE: "6h"})
    jobs.api.wait("its end", lambda: "1 stopped now" in ttl("plan", "--kinds", "jobs").stdout)

    shown = ttl("plan", "--kinds", "jobs")

    assert "1 stopped now, 1 stopped later" in shown.stdout
    reported = json.loads(ttl("plan", "--kinds", "jobs", "-o", "json").stdout)
    assert {one["name"]: one["deadline"]["decision"] for one in reported} == {"late": "stop", "later": "wait"}
