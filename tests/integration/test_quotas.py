"""`run` under quota pressure: a real kube-apiserver, its quota admission and the real quota controller."""

import urllib.error
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Api, Run

POD_SPEC = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/work:1"}]}
HEAD = "apiVersion: ttlafterfinished.dev/v1\nkind: Policy\n"
NOT_BEFORE = 5
"""Seconds for which a Job with the label `age: soon` is kept after its finish, also by a full quota."""

PRESSED = (
    HEAD
    + "rules:\n"
    + "".join(
        f"- {{name: {age}, match: {{kinds: [jobs], labels: {{matchLabels: {{age: {age}}}}}}}, ttl: 1d, "
        f"whenQuotaAbove: 80%, notBefore: {not_before}}}\n"
        for age, not_before in {"old": "0s", "soon": f"{NOT_BEFORE}s", "young": "1h"}.items()
    )
)
COUNTED = HEAD + "rules: [{name: few, match: {kinds: [jobs]}, maxCount: 5}]\n"

Start = Callable[..., Run]


@pytest.fixture(scope="module")
def controllers() -> list[str]:
    """Without the Job controller: the tests write when each Job finished."""
    return ["resourcequota-controller", "garbage-collector-controller"]


def name_of(number: int) -> str:
    return f"job-{number:02}"


Kept = Mapping[int, Mapping[str, str]]
NONE: Kept = {}
KEPT: Kept = {0: {"hold": "why"}, 3: {"ttl": "never"}, 7: {"hold": "why"}}
"""The annotations of Jobs that no quota deletes, by their numbers."""


class Room:
    """The Jobs of one namespace, and its quota."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.core = f"/api/v1/namespaces/{namespace}"
        self.jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self.quota = f"{self.core}/resourcequotas/objects"

    def create(self, name: str, age: str = "old", **annotations: str) -> None:
        ours = {f"ttlafterfinished.dev/{key}": value for key, value in annotations.items()}
        # No controller of this cluster acts on it.
        spec = {"managedBy": "example.com/player", "template": {"spec": POD_SPEC}}
        metadata = {"name": name, "labels": {"age": age}, "annotations": ours}
        self.api.call("POST", self.jobs, {"metadata": metadata, "spec": spec})

    def finish(self, name: str) -> None:
        at = datetime.now(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")
        ended = [
            {"type": kind, "status": "True", "lastTransitionTime": at, "lastProbeTime": at, "reason": "Done"}
            for kind in ("SuccessCriteriaMet", "Complete")
        ]
        status = {"startTime": at, "completionTime": at, "succeeded": 1, "conditions": ended}
        self.api.call("PATCH", f"{self.jobs}/{name}/status", {"status": status})

    def finish_all(self, numbers: Iterable[int], age: str = "old", kept: Kept = NONE) -> None:
        """Make Jobs that finish one after the other, later than all others: times of the API have no fractions."""
        if finished := self.in_order():
            later = self.finished_at(finished[-1]) + timedelta(seconds=1)
            self.api.wait("the next second", lambda: datetime.now(UTC) >= later)
        for number in numbers:
            self.create(name_of(number), age, **kept.get(number, {}))
            self.finish(name_of(number))

    def await_deletion(self, name: str) -> None:
        self.api.wait(f"the deletion of {name}", lambda: name not in self.in_order())

    def in_order(self) -> list[str]:
        """The names of the finished Jobs, the oldest first; of those of one second, by uid."""
        found = [job for job in self.api.call("GET", self.jobs)["items"] if job["status"].get("completionTime")]
        found.sort(key=lambda job: (job["status"]["completionTime"], job["metadata"]["uid"]))
        return [job["metadata"]["name"] for job in found]

    def finished_at(self, name: str) -> datetime:
        return datetime.fromisoformat(self.api.get(f"{self.jobs}/{name}")["status"]["completionTime"])

    def limit(self, **hard: str) -> None:
        names = {name.replace("__", "/").replace("_", "."): amount for name, amount in hard.items()}
        spec = {"metadata": {"name": "objects"}, "spec": {"hard": names}}
        if self.api.get(self.quota) is None:
            self.api.call("POST", f"{self.core}/resourcequotas", spec)
        else:
            self.api.call("PATCH", self.quota, spec)

    def await_usage(self, resource: str, used: int, hard: int | None = None) -> None:
        def is_so() -> bool:
            status = self.api.get(self.quota).get("status", {})
            is_hard = hard is None or status.get("hard", {}).get(resource) == str(hard)
            return is_hard and status.get("used", {}).get(resource) == str(used)

        self.api.wait(f"{used} used of {resource}", is_so)


@pytest.fixture
def room(api: Api, namespace: str) -> Room:
    return Room(api, namespace)


def test_full_quota_gets_room_by_the_oldest_jobs_that_may_go(room: Room, start_run: Start, tmp_path: Path) -> None:
    kept = set(map(name_of, KEPT))
    policy = tmp_path / "policy.yaml"
    policy.write_text(PRESSED)
    room.finish_all(range(30), kept=KEPT)
    room.finish_all(range(30, 60), "young")
    in_order = room.in_order()
    room.limit(count__jobs_batch="50")
    room.await_usage("count/jobs.batch", 60)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        room.create("one-more")

    run = start_run("--kinds", "jobs", "--policy", str(policy), "-v")
    room.await_usage("count/jobs.batch", 40)
    gone = [name for name in in_order if name not in kept][:20]
    assert room.in_order() == [name for name in in_order if name not in gone], run.text
    room.create("one-more", "young")

    # Of the Jobs that now have to go, only seven finished long enough ago. A Job that finishes pushes them out.
    room.limit(count__jobs_batch="27")
    room.await_usage("count/jobs.batch", 41, hard=27)
    room.finish("one-more")
    young = [*map(name_of, range(30, 60)), "one-more"]
    room.await_usage("count/jobs.batch", len(kept) + len(young))
    assert set(room.in_order()) == {*kept, *young}, run.text

    # The others stay, although the quota is used above 80 %: a Job that is due later goes, and only it.
    for name in young[:10]:
        room.api.call("DELETE", f"{room.jobs}/{name}?propagationPolicy=Background")
    room.await_usage("count/jobs.batch", 24)
    room.create("due", "young", ttl="0s")
    room.finish("due")
    room.await_deletion("due")
    assert set(room.in_order()) == {*kept, *young[10:]}, run.text
    assert "over-quota" in run.text


def test_usage_at_the_percentage_deletes_nothing(room: Room, start_run: Start, tmp_path: Path) -> None:
    room.finish_all(range(8))
    before = room.in_order()
    room.limit(count__jobs_batch="10")
    room.await_usage("count/jobs.batch", 8)
    policy = tmp_path / "policy.yaml"
    policy.write_text(PRESSED)

    run = start_run("--kinds", "jobs", "--policy", str(policy), "-v")
    room.api.wait("the sweep", lambda: "sweep ended" in run.text)
    assert room.in_order() == before, run.text

    room.finish_all([8])
    room.await_deletion(before[0])
    room.finish_all([9])
    room.await_deletion(before[1])
    assert room.in_order() == [*before[2:], name_of(8), name_of(9)], run.text


def test_not_before_keeps_a_job_that_a_full_quota_pushes_out(room: Room, start_run: Start, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(PRESSED)
    room.limit(count__jobs_batch="10")
    room.await_usage("count/jobs.batch", 0)
    run = start_run("--kinds", "jobs", "--policy", str(policy), "-v")
    room.api.wait("the sweep", lambda: "sweep ended" in run.text)

    room.finish_all(range(9), "soon")
    oldest, *others = room.in_order()
    finished_at = room.finished_at(oldest)
    room.await_deletion(oldest)
    assert datetime.now(UTC) >= finished_at + timedelta(seconds=NOT_BEFORE)
    assert room.in_order() == others


def test_max_count_keeps_the_newest_jobs(room: Room, start_run: Start, tmp_path: Path) -> None:
    room.finish_all(range(12), kept={2: {"hold": "why"}})
    in_order = room.in_order()
    policy = tmp_path / "policy.yaml"
    policy.write_text(COUNTED)

    run = start_run("--kinds", "jobs", "--policy", str(policy), "-v")
    room.api.wait("the sweep", lambda: "sweep ended" in run.text)
    held, newest = [name for name in in_order[:-5] if name == "job-02"], in_order[-5:]
    assert room.in_order() == held + newest, run.text

    for number in (12, 13):  # the second one shows that the first one pushed out no more than one
        room.finish_all([number])
        pushed_out = newest.pop(0)
        newest.append(name_of(number))
        if pushed_out == "job-02":
            held.append(pushed_out)
        else:
            room.await_deletion(pushed_out)
        assert room.in_order() == held + newest, run.text
    assert "over-count" in run.text


def test_finished_pods_are_counted_by_count_alone(room: Room) -> None:
    room.limit(pods="10", count__pods="10")
    for number in range(3):
        pod = {"metadata": {"name": f"pod-{number}"}, "spec": POD_SPEC}
        room.api.call("POST", f"{room.core}/pods", pod)
    room.await_usage("pods", 3)
    for number in range(2):
        room.api.call("PATCH", f"{room.core}/pods/pod-{number}/status", {"status": {"phase": "Succeeded"}})

    room.await_usage("pods", 1)
    room.await_usage("count/pods", 3)


def test_scoped_quota_counts_no_jobs(room: Room) -> None:
    spec: dict[str, Any] = {"hard": {"count/jobs.batch": "1"}, "scopes": ["NotTerminating"]}
    room.api.call("POST", f"{room.core}/resourcequotas", {"metadata": {"name": "objects"}, "spec": spec})
    room.await_usage("count/jobs.batch", 0)

    room.finish_all(range(2))  # the quota refuses neither

    room.await_usage("count/jobs.batch", 0)
