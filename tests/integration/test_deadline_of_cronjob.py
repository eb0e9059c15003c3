"""A stop and what waits for it: CronJobs on a real kube-apiserver with the real CronJob and Job controllers."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Api, Run
from tests.integration.test_deadlines import failed_at, is_marked, suspended_at
from tests.integration.test_run import POD_SPEC

SCHEDULED_SECONDS_MAX = 90
"""A schedule has a granularity of a minute."""

POLICY = """\
apiVersion: ttlafterfinished.dev/v1
kind: Policy
rules:
- name: suspended
  match: {kinds: [jobs], labels: {matchLabels: {app: suspended}}}
  activeDeadline: 5s
  onDeadline: suspend
- {name: stopped, match: {kinds: [jobs]}, activeDeadline: 5s}
"""


@pytest.fixture(scope="module")
def controllers() -> list[str]:
    """Those that make Jobs of CronJobs and end them."""
    return ["job-controller", "cronjob-controller", "garbage-collector-controller"]


def cron_job(name: str) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"template": {"spec": POD_SPEC}}}
    spec = {"schedule": "* * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": template}
    return {"metadata": {"name": name}, "spec": spec}


@pytest.mark.timeout(300)
def test_cronjob_that_forbids_two_runs_goes_on_after_a_stop_and_not_after_a_suspension(
    api: Api, namespace: str, start_run: Callable[..., Run], tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    start_run("--kinds", "jobs", "--policy", str(policy))
    batch = f"/apis/batch/v1/namespaces/{namespace}"

    def jobs_of(name: str) -> list[Any]:
        listed = list(api.call("GET", f"{batch}/jobs?labelSelector=app%3D{name}")["items"])
        return sorted(listed, key=lambda one: str(one["metadata"]["creationTimestamp"]))

    def active_of(name: str) -> list[str]:
        status = api.get(f"{batch}/cronjobs/{name}").get("status", {})
        return [one["name"] for one in status.get("active", [])]

    for name in ("stopped", "suspended"):
        api.call("POST", f"{batch}/cronjobs", cron_job(name))
    api.wait("the first runs", lambda: jobs_of("stopped") and jobs_of("suspended"), SCHEDULED_SECONDS_MAX)
    first = api.wait("the stop", lambda: failed_at(job := jobs_of("stopped")[0]) and job)
    api.wait("the suspension", lambda: suspended_at(jobs_of("suspended")[0]))

    assert is_marked(first)
    assert first["spec"]["activeDeadlineSeconds"] == 1
    api.wait("the end in the CronJob", lambda: first["metadata"]["name"] not in active_of("stopped"))

    _, second = api.wait("the next run", lambda: len(found := jobs_of("stopped")) == 2 and found, SCHEDULED_SECONDS_MAX)
    assert datetime.fromisoformat(second["metadata"]["creationTimestamp"]) <= datetime.now(UTC)
    assert api.wait("it in the CronJob", lambda: active_of("stopped")) == [second["metadata"]["name"]]
    (waits,) = jobs_of("suspended")
    assert active_of("suspended") == [waits["metadata"]["name"]]
