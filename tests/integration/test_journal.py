"""The journal on a real kube-apiserver: the Events as kubectl reads them, `deleted`, and `explain` of what is gone."""

import asyncio
import json
import signal
import urllib.error
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.adapters.kubernetes.connect import connect
from shared.adapters.kubernetes.journal import EventJournal, JournalLimits
from shared.core.values.objects import format_instant
from shared.devserver.real_servers import RealServer
from shared.ports import Cluster, JournalEntry, JournalResult
from tests.fakes import FakeTelemetry
from tests.integration.conftest import Api, Run, run_command
from tests.journals import entry, refusal, report
from tests.reference.outputs import OUTPUTS

POLICY = {
    "apiVersion": "ttlafterfinished.dev/v1",
    "kind": "Policy",
    "rules": [{"name": "ci", "match": {"kinds": ["jobs"]}, "ttl": "1s"}],
}


@pytest.fixture(scope="module")
def controllers() -> list[str]:
    """The tests play the Job controller."""
    return ["garbage-collector-controller"]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(POLICY))
    return path


class Jobs:
    """The Jobs of a namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self.path = f"/apis/batch/v1/namespaces/{namespace}/jobs"

    def finish(self, name: str) -> str:
        """Create a Job that has just failed; return its uid."""
        container = {"name": "main", "image": "example.com/x"}
        spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
        made = self.api.call("POST", self.path, {"metadata": {"name": name}, "spec": spec})
        at = format_instant(datetime.now(UTC).replace(microsecond=0))
        conditions = [
            {"type": kind, "status": "True", "reason": "BackoffLimitExceeded", "lastTransitionTime": at}
            for kind in ("FailureTarget", "Failed")
        ]
        self.api.call("PATCH", f"{self.path}/{name}/status", {"status": {"startTime": at, "conditions": conditions}})
        return str(made["metadata"]["uid"])

    def await_none(self) -> None:
        self.api.wait("the deletion of all Jobs", lambda: not self.api.call("GET", self.path)["items"])

    def events(self, reason: str = "Expired") -> list[dict[str, Any]]:
        """The Events as `kubectl get events` reads them."""
        selector = f"fieldSelector=source=ttl-after-finished,reason={reason}"
        found: list[dict[str, Any]] = self.api.call("GET", f"/api/v1/namespaces/{self.namespace}/events?{selector}")[
            "items"
        ]
        return found

    def await_events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api.wait("an Event", self.events)
        return found


@pytest.fixture
def jobs(api: Api, namespace: str) -> Jobs:
    return Jobs(api, namespace)


def test_deletion_is_an_event_that_deleted_and_explain_read(
    jobs: Jobs, server: RealServer, policy: Path, start_run: Callable[..., Run]
) -> None:
    uid = jobs.finish("build")
    start_run("--policy", str(policy))
    jobs.await_none()
    [event] = jobs.await_events()

    assert event["involvedObject"]["uid"] == uid
    assert event["message"].startswith("deleted: failed at 20")
    assert " by policy rule ci" in event["message"]
    assert "(policy " in event["message"]
    assert (event["type"], event["action"], event["reportingComponent"]) == ("Normal", "Delete", "ttl-after-finished")

    def ttl(*words: str) -> str:
        result = run_command(server.kubeconfig, *words, "-n", jobs.namespace)
        assert result.returncode == 0, result.stderr
        return result.stdout

    assert f"uid       {uid}" in ttl("deleted", "job/build")
    assert " ago: failed at " in ttl("explain", "job/build")
    explained = json.loads(ttl("explain", "job", "build", "-o", "json"))
    assert (explained["decision"], explained["reason"], explained["deletion"]["ttlFrom"]) == (
        "gone",
        "deleted",
        "policy rule ci",
    )
    OUTPUTS["explain"].adapter.validate_json(json.dumps(explained), by_alias=True, by_name=False)
    shown = ttl("deleted", "--since", "1h", "-o", "json")
    OUTPUTS["deleted"].adapter.validate_json(shown, by_alias=True, by_name=False)
    [listed] = json.loads(shown)["deletions"]
    assert (listed["ref"]["uid"], listed["outcome"], listed["reason"]) == (uid, "failed", "expired")
    assert "build" in ttl("deleted")
    absent = run_command(server.kubeconfig, "explain", "job/other", "-n", jobs.namespace)
    assert absent.returncode == 1
    assert "no Event says that it was deleted" in absent.stderr


def test_many_deletions_are_few_events_and_none_is_lost_at_the_end_of_the_process(
    jobs: Jobs, server: RealServer, policy: Path, start_run: Callable[..., Run]
) -> None:
    for number in range(50):
        jobs.finish(f"build-{number}")
    run = start_run("--policy", str(policy))
    jobs.await_none()
    run.stop(signal.SIGTERM)

    events = jobs.events()
    assert len(events) <= 25
    counted = [one["series"]["count"] for one in events if one.get("series")]
    assert len(events) - len(counted) + sum(counted) == 50
    listed = run_command(server.kubeconfig, "deleted", "-n", jobs.namespace)
    assert f"50 deletions, {sum(counted)} of them only counted" in listed.stderr
    assert f"({counted[0]} more)" in listed.stdout


def test_setting_switches_the_journal_off(
    jobs: Jobs, policy: Path, start_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTL_JOURNAL", "false")
    jobs.finish("build")
    run = start_run("--policy", str(policy))
    jobs.await_none()
    run.stop(signal.SIGTERM)
    assert jobs.events() == []


@pytest.mark.parametrize(
    ("count", "reason", "make"),
    [
        (10_000, "Expired", lambda name, namespace, at: entry(name, namespace, deleted_at=at)),
        (2_000, "DeletionRefused", lambda name, namespace, at: refusal(name, namespace, at=at)),
        (3_000, "InvalidTtl", lambda name, namespace, at: report(name, namespace, at=at)),
    ],
    ids=["10,000 deletions", "2,000 refusals", "3,000 reports"],
)
def test_many_entries_write_a_bounded_number_of_events(
    jobs: Jobs, server: RealServer, count: int, reason: str, make: Callable[[str, str, datetime], JournalEntry]
) -> None:
    telemetry, limits = FakeTelemetry(), JournalLimits()

    async def record() -> float:
        cluster = await connect(kubeconfig=str(server.kubeconfig))

        async def connected() -> Cluster:
            return cluster

        journal = EventJournal(connected, telemetry, limits, instance="expire-7")
        started = asyncio.get_running_loop().time()
        now = datetime.now(UTC)
        for number in range(count):
            journal.note(make(f"job-{number}", jobs.namespace, now + timedelta(microseconds=number)))
            await asyncio.sleep(0)
        await journal.flush()
        await cluster.close()
        return asyncio.get_running_loop().time() - started

    seconds = asyncio.run(record())
    events = jobs.events(reason)
    print(f"{count} entries in {seconds:.1f} s: {len(events)} Events, one for {count / len(events):.0f} entries")
    assert len(events) <= limits.of_kind.burst + limits.of_kind.per_second * seconds + 2
    assert sum(one.get("series", {}).get("count", 1) for one in events) == count
    assert telemetry.journal[JournalResult.DROPPED] == 0
    assert len(jobs.api.call("GET", f"/api/v1/namespaces/{jobs.namespace}/events")["items"]) == len(events)


REFUSES = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": ["batch"], "apiVersions": ["*"], "operations": ["DELETE"], "resources": ["jobs"]}
            ]
        },
        "validations": [{"expression": "false", "message": "no Job is deleted here", "reason": "Forbidden"}],
    },
}


@pytest.fixture
def refused_deletes(jobs: Jobs) -> Iterator[None]:
    """The API server refuses each DELETE of a Job in the namespace."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    metadata, place = {"name": f"refuse-{jobs.namespace}"}, {"kubernetes.io/metadata.name": jobs.namespace}
    jobs.api.call("POST", f"{path}ies", REFUSES | {"metadata": metadata})
    spec = {
        "policyName": metadata["name"],
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": {"matchLabels": place}},
    }
    jobs.api.call("POST", f"{path}ybindings", {"metadata": metadata, "spec": spec})
    jobs.finish("probe")

    def is_in_force() -> bool:
        try:
            jobs.api.call("DELETE", f"{jobs.path}/probe?dryRun=All")
        except urllib.error.HTTPError:
            return True
        return False

    jobs.api.wait("the admission policy", is_in_force)
    yield
    jobs.api.call("DELETE", f"{path}ybindings/{metadata['name']}")
    jobs.api.call("DELETE", f"{path}ies/{metadata['name']}")


@pytest.mark.usefixtures("refused_deletes")
def test_refusal_is_an_event_that_deleted_shows_if_asked_and_explain_names(
    jobs: Jobs, server: RealServer, policy: Path, start_run: Callable[..., Run]
) -> None:
    uid = jobs.finish("build")
    start_run("--policy", str(policy))
    events = jobs.api.wait("both Events", lambda: len(found := jobs.events("DeletionRefused")) == 2 and found)
    [event] = [one for one in events if one["involvedObject"]["uid"] == uid]
    assert (event["involvedObject"]["uid"], event["action"], event["type"]) == (uid, "Refuse", "Warning")
    assert "no Job is deleted here" in event["message"]

    def ttl(*words: str) -> str:
        result = run_command(server.kubeconfig, *words, "-n", jobs.namespace)
        assert result.returncode == 0, result.stderr
        return result.stdout

    assert "build" not in ttl("deleted")
    shown = ttl("deleted", "--refused", "-o", "json")
    OUTPUTS["deleted-refused"].adapter.validate_json(shown, by_alias=True, by_name=False)
    [listed] = [one for one in json.loads(shown)["refusals"] if one["ref"]["uid"] == uid]
    assert "no Job is deleted here" in ttl("deleted", "job/build", "--refused")
    explained = json.loads(ttl("explain", "job/build", "--policy", str(policy), "-o", "json"))
    [refused] = [one for one in explained["obstacles"] if one["reason"] == "refused"]
    assert "no Job is deleted here" in refused["message"]
    assert refused["since"] == listed["refusedAt"]
    OUTPUTS["explain"].adapter.validate_json(json.dumps(explained), by_alias=True, by_name=False)
