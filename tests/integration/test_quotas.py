"""`run` under quota pressure: a real kube-apiserver, its quota admission and the real quota controller."""

import time
import urllib.error
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Api, Run

POD_SPEC = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/work:1"}]}
HEAD = "apiVersion: ttlafterfinished.dev/v1\nkind: Policy\n"
NOT_BEFORE = 30
START_SECONDS = 120
"""A loaded machine needs long to start `run`."""

PRESSED = HEAD + (
    f"rules: [{{name: room, match: {{kinds: [jobs]}}, ttl: 1d, whenQuotaAbove: 80%, notBefore: {NOT_BEFORE}s}}]\n"
)
COUNTED = HEAD + "rules: [{name: few, match: {kinds: [jobs]}, maxCount: 5}]\n"

Start = Callable[..., Run]


@pytest.fixture(scope="module")
def controllers() -> list[str]:
    """Without the Job controller: the tests write when each Job finished."""
    return ["resourcequota-controller", "garbage-collector-controller"]


class Room:
    """The Jobs of one namespace, and its quota."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.core = f"/api/v1/namespaces/{namespace}"
        self.jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self.quota = f"{self.core}/resourcequotas/objects"

    def create(self, name: str, **annotations: str) -> None:
        ours = {f"ttlafterfinished.dev/{key}": value for key, value in annotations.items()}
        # No controller of this cluster acts on it.
        spec = {"managedBy": "example.com/player", "template": {"spec": POD_SPEC}}
        self.api.call("POST", self.jobs, {"metadata": {"name": name, "annotations": ours}, "spec": spec})

    def finish(self, name: str) -> None:
        at = datetime.now(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")
        ended = [
            {"type": kind, "status": "True", "lastTransitionTime": at, "lastProbeTime": at, "reason": "Done"}
            for kind in ("SuccessCriteriaMet", "Complete")
        ]
        status = {"startTime": at, "completionTime": at, "succeeded": 1, "conditions": ended}
        self.api.call("PATCH", f"{self.jobs}/{name}/status", {"status": status})

    def finish_all(self, numbers: Iterable[int], kept: Mapping[int, Mapping[str, str]]) -> None:
        for number in numbers:
            self.create(f"job-{number:02}", **kept.get(number, {}))
            self.finish(f"job-{number:02}")

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


KEPT: dict[int, dict[str, str]] = {0: {"hold": "why"}, 3: {"ttl": "never"}, 7: {"hold": "why"}}


def name_of(number: int) -> str:
    return f"job-{number:02}"


def test_full_quota_gets_room_by_the_oldest_jobs_that_may_go(room: Room, start_run: Start, tmp_path: Path) -> None:
    kept = set(map(name_of, KEPT))
    policy = tmp_path / "policy.yaml"
    policy.write_text(PRESSED)
    room.finish_all(range(30), KEPT)
    time.sleep(NOT_BEFORE)
    room.finish_all(range(30, 60), KEPT)
    young_at = room.finished_at(name_of(30))
    in_order = room.in_order()
    room.limit(count__jobs_batch="50")
    room.await_usage("count/jobs.batch", 60)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        room.create("one-more")

    run = start_run("--kinds", "jobs", "--policy", str(policy), "-v")
    room.api.wait("the sweep", lambda: "sweep ended" in run.text, START_SECONDS)
    room.await_usage("count/jobs.batch", 40)

    gone = [name for name in in_order if name not in kept][:20]
    assert room.in_order() == [name for name in in_order if name not in gone], run.text
    room.create("one-more")

    # Of the Jobs that now have to go, only seven finished long enough ago. A Job that finishes pushes them out.
    room.limit(count__jobs_batch="27")
    room.await_usage("count/jobs.batch", 41, hard=27)
    room.finish("one-more")
    young = [name_of(number) for number in range(30, 60)]
    room.api.wait("the old Jobs", lambda: not set(room.in_order()) - kept - {*young, "one-more"})
    left = room.in_order()
    assert datetime.now(UTC) < young_at + timedelta(seconds=NOT_BEFORE), "the machine is too slow for this test"
    assert [name for name in left if name not in kept] == [*(name for name in in_order if name in young), "one-more"]

    # The others go once they are old enough: 34 are left, and 21 may stay.
    room.api.wait("the first young Job", lambda: len(room.in_order()) < len(left), 2 * NOT_BEFORE)
    assert datetime.now(UTC) >= young_at + timedelta(seconds=NOT_BEFORE)
    room.await_usage("count/jobs.batch", 21)
    time.sleep(2)
    stays = [*kept, *[name for name in left if name not in kept][-18:]]
    assert room.in_order() == [name for name in left if name in stays]
    assert "over-quota" in run.text


def test_usage_at_the_percentage_deletes_nothing(room: Room, start_run: Start, tmp_path: Path) -> None:
    room.finish_all(range(8), {})
    before = room.in_order()
    room.limit(count__jobs_batch="10")
    room.await_usage("count/jobs.batch", 8)
    policy = tmp_path / "policy.yaml"
    policy.write_text(PRESSED.replace(f"{NOT_BEFORE}s", "0s"))

    run = start_run("--kinds", "jobs", "--policy", str(policy), "-v")
    room.api.wait("the sweep", lambda: "sweep ended" in run.text, START_SECONDS)
    assert room.in_order() == before, run.text

    room.finish_all([8], {})
    room.api.wait("the oldest Job", lambda: before[0] not in room.in_order())
    time.sleep(1)
    assert room.in_order() == [*before[1:], name_of(8)], run.text


def test_max_count_keeps_the_newest_jobs(room: Room, start_run: Start, tmp_path: Path) -> None:
    room.finish_all(range(12), {2: {"hold": "why"}})
    in_order = room.in_order()
    policy = tmp_path / "policy.yaml"
    policy.write_text(COUNTED)

    run = start_run("--kinds", "jobs", "--policy", str(policy), "-v")
    room.api.wait("the sweep", lambda: "sweep ended" in run.text, START_SECONDS)
    held, newest = [name for name in in_order[:-5] if name == "job-02"], in_order[-5:]
    assert room.in_order() == held + newest, run.text

    time.sleep(1)  # a later second
    room.finish_all([12], {})
    room.api.wait("the Job that it pushes out", lambda: newest[0] not in room.in_order() or newest[0] == "job-02")
    time.sleep(1)
    assert [name for name in room.in_order() if name != "job-02"] == [
        name for name in (*newest[1:], name_of(12)) if name != "job-02"
    ]
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

    room.finish_all(range(2), {})  # the quota refuses neither
    time.sleep(1)

    room.await_usage("count/jobs.batch", 0)
