"""Active deadlines on a real kube-apiserver with the real Job controller, through `run` as a user starts it."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.core.values.objects import parse_instant
from shared.devserver.real_servers import RealServer
from tests.builders import not_none
from tests.integration.conftest import Api, Run, run_command
from tests.integration.test_run import POD_SPEC, Cluster
from tests.reference.outputs import OUTPUTS
from tests.servers import shared_server  # noqa: F401 - a fixture

Start = Callable[..., Run]
OURS = "ttlafterfinished.dev/"
TIME_TO_CHANGE = 8
"""A deadline before which a test reads or changes the Job, in seconds: on a busy machine that takes some of them."""
POLICY_HEAD = "apiVersion: ttlafterfinished.dev/v1\nkind: Policy\n"


def ours(**annotations: str) -> dict[str, str]:
    return {f"{OURS}{key.replace('_', '-')}": value for key, value in annotations.items()}


class Running(Cluster):
    """Jobs that run in one namespace: no kubelet ends their Pods."""

    def __init__(self, api: Api, namespace: str) -> None:
        super().__init__(api, namespace)
        self.namespace = f"/api/v1/namespaces/{namespace}"

    def start(self, name: str, **annotations: str) -> datetime:
        """Create a Job with annotations of ours, and wait until the Job controller has started it.

        Returns:
            Its start time.
        """
        self.create_job(name, annotations=ours(**annotations))
        return not_none(self.api.wait(f"the start of {name}", lambda: self.started_at(name)))

    def started_at(self, name: str) -> datetime | None:
        text = self.job(name)["status"].get("startTime")
        return parse_instant(text) if text else None

    def pods_of(self, job: str) -> list[Any]:
        selector = f"labelSelector=batch.kubernetes.io/job-name%3D{job}"
        return list(self.api.call("GET", f"{self.pods}?{selector}")["items"])

    def is_stopped(self, name: str) -> bool:
        """Whether `enforce` has stopped or suspended a Job, and its stop is in place."""
        return is_in_place(self.job(name))

    def await_stop(self, name: str) -> Any:
        """Wait until a Job is stopped; return it as it is then."""
        return self.api.wait(f"the stop of {name}", lambda: job if is_in_place(job := self.job(name)) else None)

    def pass_deadline(self, deadline: int) -> None:
        """Wait until a Job that starts now is stopped: a deadline of another Job that was due by then has passed.

        The deadline of the new Job is two seconds longer, since start times are whole seconds.
        """
        self.start("later", active_deadline=f"{deadline + 2}s")
        self.await_stop("later")

    def await_failure(self, name: str) -> Any:
        """Wait until the Job controller has failed a Job because of its deadline; return it as it is then."""
        return self.api.wait(f"the end of {name}", lambda: job if failed_at(job := self.job(name)) else None)

    def resume(self, name: str) -> datetime:
        """Resume a Job as a user does, and wait for its next start; the Job controller has seen the stop before."""
        self.api.wait(f"the suspension of {name}", lambda: suspended_at(self.job(name)))
        self.api.call("PATCH", f"{self.jobs}/{name}", {"spec": {"suspend": False}})
        return not_none(self.api.wait(f"the next start of {name}", lambda: self.started_at(name)))

    def events(self, reason: str) -> list[Any]:
        """Our Kubernetes Events of a reason in the namespace; the Job controller has DeadlineExceeded, too."""
        listed = self.api.call("GET", f"{self.namespace}/events?fieldSelector=source%3Dttl-after-finished")["items"]
        return [event for event in listed if event["reason"] == reason]

    def await_event(self, reason: str, name: str) -> str:
        """Wait for an Event about an object; return its message."""

        def find() -> Any:
            return [one for one in self.events(reason) if one["involvedObject"]["name"] == name]

        message: str = self.api.wait(f"the Event {reason} about {name}", find)[0]["message"]
        return message

    def annotate_namespace(self, **annotations: str) -> None:
        self.api.call("PATCH", self.namespace, {"metadata": {"annotations": ours(**annotations)}})


def is_marked(obj: Any) -> bool:
    return f"{OURS}deadline-exceeded" in obj["metadata"].get("annotations", {})


def is_in_place(job: Any) -> bool:
    """Whether a Job is marked, and has what the stop or the suspension of its kind rule writes."""
    spec = job["spec"]
    return is_marked(job) and (spec.get("activeDeadlineSeconds") == 1 or bool(spec.get("suspend")))


def mark_of(obj: Any) -> tuple[datetime, int]:
    """When `enforce` stopped an object, and how often."""
    annotations = obj["metadata"]["annotations"]
    return parse_instant(annotations[f"{OURS}deadline-exceeded"]), int(annotations[f"{OURS}stops"])


def suspended_at(job: Any) -> datetime | None:
    """When the Job controller suspended a Job, by its condition."""
    return _since(job, "Suspended")


def failed_at(job: Any) -> datetime | None:
    """When the Job controller failed a Job because its own deadline was over, by its condition."""
    return _since(job, "Failed", "DeadlineExceeded")


def _since(job: Any, name: str, reason: str = "") -> datetime | None:
    for condition in job["status"].get("conditions", []):
        if (condition["type"], condition["status"]) == (name, "True") and reason in ("", condition["reason"]):
            return parse_instant(condition["lastTransitionTime"])
    return None


def written_at(obj: Any, field: str) -> datetime:
    """When a field of the spec was last written, by the API server's own record: an independent witness of a stop."""
    times = [
        entry["time"] for entry in obj["metadata"]["managedFields"] if field in entry["fieldsV1"].get("f:spec", {})
    ]
    return max(parse_instant(text) for text in times)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


@pytest.fixture
def cluster(api: Api, namespace: str) -> Running:
    return Running(api, namespace)


@pytest.fixture
def write_policy(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "policy.yaml"
        path.write_text(POLICY_HEAD + text)
        return str(path)

    return write


@pytest.fixture
def start_seen(cluster: Running, start_run: Start) -> Start:
    """Start `run`, and wait until its watch has brought an object: what follows is seen by an event."""

    def start(*options: str) -> Run:
        run = start_run("--kinds", "jobs", "-v", *options)
        cluster.api.wait("the first sweep", lambda: "sweep ended" in run.text)
        cluster.create_job("witness", annotations=ours(active_deadline="15m"))
        cluster.api.wait("the timer of the witness", lambda: re.search(r'timer-set .*/witness"', run.text))
        return run

    return start


def test_job_is_failed_at_its_deadline_and_deleted_by_its_ttl(cluster: Running, start_seen: Start) -> None:
    start_seen()
    started = cluster.start("train", active_deadline="3s", ttl="4s")
    stopped = cluster.await_stop("train")

    assert written_at(stopped, "f:activeDeadlineSeconds") >= started + seconds(3)
    assert not stopped["spec"]["suspend"]
    failed = not_none(failed_at(cluster.await_failure("train")))
    message = cluster.await_event("DeadlineExceeded", "train")
    assert message.startswith(f"ran for longer than 3s, its deadline by {OURS}active-deadline; stopped by ")
    cluster.api.wait("the end of its Pods", lambda: not cluster.pods_of("train"))

    cluster.api.wait("its deletion", lambda: cluster.job("train") is None)
    assert datetime.now(UTC) >= failed + seconds(4)


def test_job_is_suspended_at_its_deadline_resumed_stopped_again_and_deleted_by_its_ttl(
    cluster: Running, start_seen: Start, server: RealServer
) -> None:
    run = start_seen()
    started = cluster.start("train", active_deadline="3s", on_deadline="suspend", ttl=f"{TIME_TO_CHANGE}s")
    first = cluster.await_stop("train")

    assert written_at(first, "f:suspend") >= started + seconds(3)
    assert mark_of(first)[1] == 1
    message = cluster.await_event("DeadlineExceeded", "train")
    assert message.startswith(f"ran for longer than 3s, its deadline by {OURS}active-deadline; stopped by ")
    cluster.api.wait("the end of its Pods", lambda: not cluster.pods_of("train"))

    resumed = cluster.resume("train")
    second = cluster.await_stop("train")

    assert resumed >= mark_of(first)[0].replace(microsecond=0)
    assert written_at(second, "f:suspend") >= resumed + seconds(3)
    assert mark_of(second)[1] == 2

    suspended = cluster.api.wait("its suspension", lambda: suspended_at(cluster.job("train")))
    cluster.api.wait("its deletion", lambda: cluster.job("train") is None)

    assert datetime.now(UTC) >= max(suspended, mark_of(second)[0]) + seconds(TIME_TO_CHANGE)
    assert len(re.findall(r"\bstopped .*/train\"", run.text)) == 2
    shown = run_command(
        server.kubeconfig, "deleted", "--stopped", "-n", cluster.namespace.rpartition("/")[2], "-o", "json"
    ).stdout
    OUTPUTS["deleted-stopped"].adapter.validate_json(shown, by_alias=True, by_name=False)
    assert [one["ref"]["uid"] for one in json.loads(shown)["stops"]] == 2 * [first["metadata"]["uid"]]


def test_job_with_activeDeadlineSeconds_is_left_to_its_controller(cluster: Running, start_seen: Start) -> None:  # noqa: N802 - the field
    run = start_seen()
    cluster.start("native", active_deadline=f"{TIME_TO_CHANGE}s")
    cluster.api.wait("its timer", lambda: re.search(r'timer-set .*/native"', run.text))
    cluster.api.call("PATCH", f"{cluster.jobs}/native", {"spec": {"activeDeadlineSeconds": TIME_TO_CHANGE + 2}})
    cluster.api.wait("its end by its controller", lambda: "DeadlineExceeded" in str(cluster.job("native")["status"]))

    job = cluster.job("native")
    assert not job["spec"]["suspend"]
    assert not is_marked(job)
    cluster.api.wait("the report", lambda: re.search(r'kept .*/native".*enforced-by-controller', run.text))
    assert cluster.events("DeadlineExceeded") == []


@pytest.mark.parametrize("before", ["1h", None], ids=["shortened", "set"])
def test_deadline_below_the_running_time_stops_the_job_at_once(
    cluster: Running, start_seen: Start, before: str | None
) -> None:
    """Nothing but the event of the change can bring the stop while the test waits: the next sweep is far."""
    start_seen()
    cluster.start("long", **({"active_deadline": before} if before else {}))
    cluster.pass_deadline(2)
    assert not cluster.is_stopped("long")
    cluster.annotate("long", active_deadline="2s")
    cluster.await_stop("long")


@pytest.mark.parametrize("after", ["1h", "never", None], ids=["raised", "never", "removed"])
def test_deadline_that_is_raised_or_removed_while_the_job_runs_stops_nothing(
    cluster: Running, start_seen: Start, after: str | None
) -> None:
    run = start_seen()
    cluster.start("patient", active_deadline=f"{TIME_TO_CHANGE}s")
    cluster.api.wait("its timer", lambda: re.search(r'timer-set .*/patient"', run.text))
    cluster.annotate("patient", active_deadline=after)
    cluster.pass_deadline(TIME_TO_CHANGE)

    assert not cluster.is_stopped("patient")


def test_hold_set_while_the_job_runs_keeps_it_running_until_the_release(cluster: Running, start_seen: Start) -> None:
    run = start_seen()
    cluster.start("held", active_deadline=f"{TIME_TO_CHANGE}s")
    cluster.api.wait("its timer", lambda: re.search(r'timer-set .*/held"', run.text))
    cluster.annotate("held", hold="looking at it")
    cluster.pass_deadline(TIME_TO_CHANGE)
    assert not cluster.is_stopped("held")

    cluster.annotate("held", hold=None)
    cluster.await_stop("held")


def test_job_that_is_suspended_has_no_deadline_until_it_is_resumed(cluster: Running, start_seen: Start) -> None:
    start_seen()
    metadata = {"name": "queued", "annotations": ours(active_deadline="2s")}
    spec = {"suspend": True, "template": {"spec": POD_SPEC}}
    cluster.api.call("POST", cluster.jobs, {"metadata": metadata, "spec": spec})
    cluster.pass_deadline(2)
    assert not is_marked(cluster.job("queued"))

    assert "activeDeadlineSeconds" not in cluster.job("queued")["spec"]

    resumed = cluster.resume("queued")
    stopped = cluster.await_stop("queued")
    assert written_at(stopped, "f:activeDeadlineSeconds") >= resumed + seconds(2)


def test_job_that_is_resumed_after_each_stop_is_stopped_three_times_and_reported(
    cluster: Running, start_seen: Start
) -> None:
    run = start_seen()
    cluster.start("again", active_deadline="1s", on_deadline="suspend")
    for stops in (1, 2, 3):
        assert mark_of(cluster.await_stop("again"))[1] == stops
        cluster.resume("again")
    message = cluster.await_event("StopUndone", "again")
    cluster.pass_deadline(1)

    assert not cluster.is_stopped("again")
    assert mark_of(cluster.job("again"))[1] == 3
    assert "stopped 3 times" in message
    assert len(re.findall(r"\bstopped .*/again\"", run.text)) == 3
    assert len(re.findall(r"stop-undone", run.text)) < 10, "a loop"


def test_namespace_default_and_maximum_set_the_deadline(cluster: Running, start_seen: Start) -> None:
    cluster.annotate_namespace(default_active_deadline="3s", max_active_deadline="4s")
    start_seen()
    by_default = cluster.start("by-default")
    by_maximum = cluster.start("by-maximum", active_deadline="1h")
    cluster.start("never", active_deadline="never")

    assert written_at(cluster.await_stop("by-default"), "f:activeDeadlineSeconds") >= by_default + seconds(3)
    assert written_at(cluster.await_stop("by-maximum"), "f:activeDeadlineSeconds") >= by_maximum + seconds(4)
    assert "longer than 3s, its deadline by" in cluster.await_event("DeadlineExceeded", "by-default")
    assert "longer than 4s; the namespace's max" in cluster.await_event("DeadlineExceeded", "by-maximum")
    assert not cluster.is_stopped("never")


@pytest.mark.smoke
def test_policy_rule_sets_the_deadline_of_the_jobs_that_it_matches(
    cluster: Running, start_seen: Start, write_policy: Callable[[str], str]
) -> None:
    rules = "rules: [{name: short, match: {kinds: [jobs], annotations: {example.com/tier: ci}}, activeDeadline: 2s}]\n"
    start_seen("--policy", write_policy(rules))
    cluster.create_job("ci-1", annotations={"example.com/tier": "ci"})
    cluster.start("other")
    started = not_none(cluster.api.wait("the start", lambda: cluster.started_at("ci-1")))

    assert written_at(cluster.await_stop("ci-1"), "f:activeDeadlineSeconds") >= started + seconds(2)
    assert "policy rule short" in cluster.await_event("DeadlineExceeded", "ci-1")
    assert not cluster.is_stopped("other")


def test_on_deadline_delete_deletes_the_job(cluster: Running, start_seen: Start) -> None:
    start_seen()
    started = cluster.start("gone", active_deadline=f"{TIME_TO_CHANGE}s", on_deadline="delete")
    cluster.api.wait("the deletion", lambda: cluster.job("gone") is None)

    assert datetime.now(UTC) >= started + seconds(TIME_TO_CHANGE)


@pytest.mark.parametrize("value", ["0", "-1", "soon", "1" + 20 * "0"])
def test_malformed_deadline_is_reported_and_stops_nothing(cluster: Running, start_seen: Start, value: str) -> None:
    start_seen()
    cluster.start("odd", active_deadline=value)
    message = cluster.await_event("InvalidDeadline", "odd")
    cluster.pass_deadline(0)

    assert message.startswith("not stopped: annotation ttlafterfinished.dev/active-deadline: expected ")
    assert f"got '{value}'" in message
    assert not cluster.is_stopped("odd")


def test_budget_spaces_the_stops(cluster: Running, start_seen: Start, write_policy: Callable[[str], str]) -> None:
    start_seen("--policy", write_policy("budget: {global: {perSecond: 0.5, burst: 1}}\n"))
    names = ["one", "two", "three"]
    for name in names:
        cluster.start(name, active_deadline="2s")
    cluster.api.wait("the stops", lambda: all(cluster.is_stopped(name) for name in names))
    at = sorted(written_at(cluster.job(name), "f:activeDeadlineSeconds") for name in names)

    assert at[2] - at[0] >= seconds(3), "three stops at one every two seconds"


def test_breaker_counts_stops(cluster: Running, start_seen: Start, write_policy: Callable[[str], str]) -> None:
    run = start_seen("--policy", write_policy("budget: {breaker: {count: 2, window: 10m}}\n"))
    names = ["one", "two", "three", "four"]
    for name in names:
        cluster.start(name, active_deadline="2s")

    def is_decided(name: str) -> bool:
        return cluster.is_stopped(name) or re.search(rf'/{name}".*breaker-open', run.text) is not None

    cluster.api.wait("a decision about each", lambda: all(map(is_decided, names)))

    assert sum(cluster.is_stopped(name) for name in names) == 2
