"""Objects that are nested as deeply as the API server takes them: they end no process, and hide no other object."""

import json
from datetime import UTC, datetime

import pytest

from shared.core.values.objects import format_instant
from tests.integration.conftest import run_command
from tests.servers import shared_server  # noqa: F401 - a fixture

DEEP = {"deep-1200": 1_200, "deep-7000": 7_000}
POLICY = """
apiVersion: ttlafterfinished.dev/v1
kind: Policy
rules:
  - {name: cel, match: {kinds: ["*"]}, when: "object.metadata.name != 'x'", ttl: 0s}
"""
REPORT = "an object cannot be read and is kept"


class Jobs:
    """The Jobs of a namespace; the answers about deep ones are never parsed here."""

    def __init__(self, api, namespace):
        self.api = api
        self.path = f"/apis/batch/v1/namespaces/{namespace}/jobs"

    def finish(self, name, *, levels=0):
        """Create a finished Job."""
        container = {"name": "main", "image": "example.com/x"}
        spec = {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
        self.api.call("POST", self.path, {"metadata": {"name": name}, "spec": spec})
        if levels:
            self.nest(name, levels)
        at = format_instant(datetime.now(UTC).replace(microsecond=0))
        conditions = [
            {"type": one, "status": "True", "lastTransitionTime": at} for one in ("SuccessCriteriaMet", "Complete")
        ]
        status = {"startTime": at, "completionTime": at, "succeeded": 1, "conditions": conditions}
        self.api.send("PATCH", f"{self.path}/{name}/status", json.dumps({"status": status}).encode())

    def nest(self, name, levels):
        """Write managedFields of so many levels, as any client with the right to write the Job can."""
        entry = '{"manager":"m","operation":"Update","apiVersion":"batch/v1","fieldsType":"FieldsV1","fieldsV1":'
        nested = '{"f:a":' * levels + "{}" + "}" * levels
        self.api.send(
            "PATCH", f"{self.path}/{name}", f'{{"metadata":{{"managedFields":[{entry}{nested}}}]}}}}'.encode()
        )

    def touch(self, name, value):
        self.api.send("PATCH", f"{self.path}/{name}", json.dumps({"metadata": {"labels": {"touched": value}}}).encode())

    def names(self):
        text = self.api.send("GET", self.path).decode()
        return {name for name in ("shallow", "later", *DEEP) if f'"name":"{name}"' in text}


@pytest.fixture
def jobs(api, namespace):
    jobs = Jobs(api, namespace)
    jobs.finish("shallow")
    for name, levels in DEEP.items():
        jobs.finish(name, levels=levels)
        assert jobs.api.send("GET", f"{jobs.path}/{name}").count(b"f:a") == levels
    return jobs


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return path


@pytest.fixture
def command(api, namespace):
    def run(*words):
        return run_command(api.server.kubeconfig, *words, "-n", namespace)

    return run


def test_plan_and_explain_keep_a_deep_job_and_name_it(jobs, namespace, command, policy):
    """A segmentation fault is a negative exit code."""
    done = command("plan", "--policy", str(policy), "--yes", "-o", "json")

    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["totals"]["dueNow"]["new"] == 1
    for name in DEEP:
        assert f"Job {namespace}/{name}: cannot be read and is kept: nested too deeply" in done.stderr
        explained = command("explain", f"job/{name}", "--policy", str(policy))
        assert explained.returncode > 0
        assert "nested too deeply: expected at most 150 levels" in explained.stderr


def test_run_deletes_the_others_and_reports_a_deep_job(api, jobs, namespace, start_run, policy):
    run = start_run("--policy", str(policy))
    api.wait("the sweep's deletion", lambda: "shallow" not in jobs.names())

    def reported(name):
        return sum(REPORT in line and f"Job {namespace}/{name}" in line for line in run.text.splitlines())

    api.wait("the sweep's reports", lambda: all(map(reported, DEEP)))
    before = {name: reported(name) for name in DEEP}
    for name in DEEP:
        jobs.touch(name, "yes")
    api.wait("the watch's reports", lambda: all(reported(name) > before[name] for name in DEEP))
    jobs.finish("later")
    api.wait("the deletion of what finished behind them", lambda: "later" not in jobs.names())
    assert jobs.names() == set(DEEP)
    assert run.process.poll() is None
