"""New revisions and evicted Pods while objects finish, a burst, and scale to zero, on Knative Serving itself.

The objects are Jobs that another controller manages, which is the test: so hundreds of them finish at one instant.
Lost events and timers are for the sweep, as in the two-minute start; the tests print how many it deleted, and how late
the deletions were. The tests build on each other, in this order.
"""

import itertools
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import quantiles
from typing import Any

import pytest

from tests.builders import not_none
from tests.e2e import installation
from tests.e2e.cluster import create, job, kubectl, wait
from tests.e2e.installation import pods_of, services, ttl
from tests.e2e.rights import audit_log, calls_by_object
from tests.e2e.ticks import wait_until_delivered
from tests.e2e.witness import Witness, by_annotation, finish_of, stop_of

NAMESPACE = "ttl-e2e-revisions"
PATHS = {"Job": "/apis/batch/v1/namespaces/{}/jobs"}
FUNCTIONS = ("schedule", "timers", "expire", "enforce", "archive", "sweep", "usage", "deadletter")

PER_SECOND = 3
BATCH = 30
TTLS_SECONDS = (4, 40)
"""Some timers fire soon, others are pending while revisions change."""
SETTLED_SECONDS = 10
"""In which a revision gets the events of the load."""
ARCHIVE = "e2e-revisions-archive"
GRACE, DEADLINE = timedelta(seconds=2), timedelta(seconds=5)
"""Of an archived version; of a Job that does not end by itself."""
OVERDUE = 5
POLICY = """
archives:
  main: {{url: "file://{archive}"}}
rules:
  - name: copied
    match: {{kinds: [jobs], labels: {{matchLabels: {{copy: "true"}}}}}}
    archive: {{to: main, grace: {grace}s}}
"""
BURST = 500
BURST_TTL_SECONDS = 40
"""Longer than it takes to write the status of all objects of the burst."""

SECONDS_MAX = 300
"""Of each wait: two sweeps of the two-minute start and some, also on a busy machine."""

Object = dict[str, Any]

pytestmark = pytest.mark.skipif("E2E_SERVING" not in os.environ, reason="needs Knative Serving itself: E2E_SERVING=1")


# The installation


@pytest.fixture(scope="module")
def overlays(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two overlays on the two-minute start that differ in a setting."""

    def overlay(concurrency: str) -> Path:
        folder = tmp_path_factory.mktemp("revisions")
        return installation.overlay(folder, components=[], settings={"TTL_CONCURRENCY": concurrency})

    return overlay("32"), overlay("16")


@pytest.fixture(scope="module", autouse=True)
def installed(witness: Witness, overlays: tuple[Path, Path]) -> Iterator[None]:
    assert witness
    installation.prepare()
    installation.apply(overlays[0])
    installation.wait_until_ready()
    wait_until_delivered()
    yield
    started = time.monotonic()
    installation.uninstall(overlays[0])
    print(f"uninstall: {time.monotonic() - started:.0f} s")


# The load


def make_jobs(name: str, count: int, *ttls_seconds: int, labels: Mapping[str, str] | None = None) -> list[Object]:
    """Jobs that no controller of the cluster touches, with these TTLs in turn."""
    ttls = itertools.islice(itertools.cycle(ttls_seconds or TTLS_SECONDS[:1]), count)
    items = [job(f"{name}-{number}", "true", namespace=NAMESPACE, ttl=f"{ttl}s") for number, ttl in enumerate(ttls)]
    for item in items:
        item["spec"]["managedBy"] = "ttlafterfinished.dev/e2e"
        item["metadata"]["labels"] = dict(labels or {})
    kubectl("create", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    listed = json.loads(kubectl("-n", NAMESPACE, "get", "jobs", "-o", "json"))["items"]
    return [one for one in listed if one["metadata"]["name"].startswith(f"{name}-")]


def finish(things: Sequence[Object]) -> None:
    """Let Jobs finish now."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [
        {"type": type_, "status": "True", "lastProbeTime": now, "lastTransitionTime": now}
        for type_ in ("SuccessCriteriaMet", "Complete")
    ]
    status = {"startTime": now, "completionTime": now, "succeeded": 1, "conditions": conditions}
    items = [{**thing, "status": status} for thing in things]
    finished = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    kubectl("replace", "--subresource=status", "-f", "-", given=finished)


@contextmanager
def finishing(name: str, *ttls_seconds: int, labels: Mapping[str, str] | None = None) -> Iterator[list[Object]]:
    """Let a few Jobs a second finish beside the block, until it ends; yields those that have finished so far."""

    def run() -> None:
        try:
            for number in itertools.count():
                batch = make_jobs(f"{name}-{number}", BATCH, *ttls_seconds, labels=labels)
                for first in range(0, BATCH, PER_SECOND):
                    started = time.monotonic()
                    few = batch[first : first + PER_SECOND]
                    finish(few)
                    finished.extend(few)
                    if ended.wait(max(0.0, started + 1 - time.monotonic())):
                        return
        except AssertionError as error:
            errors.append(error)

    finished: list[Object] = []
    errors: list[AssertionError] = []
    ended = threading.Event()
    load = threading.Thread(target=run)
    load.start()
    try:
        yield finished
    finally:
        ended.set()
        load.join()
    assert errors == []


def until_gone(witness: Witness, things: Sequence[Object]) -> None:
    """Wait until all Jobs are gone; each of them was deleted once, and not too early."""
    uids = {thing["metadata"]["uid"] for thing in things}

    def are_gone() -> bool:
        return uids <= {one.obj["metadata"]["uid"] for one in list(witness.deletions)}

    try:
        wait(f"the deletion of {len(things)} Jobs", are_gone, SECONDS_MAX)
    finally:
        report(witness, things)
    assert witness.early() == {}
    names = {thing["metadata"]["name"] for thing in things}
    assert {name: len(deleted(calls)) for name, calls in calls_on(names).items()} == dict.fromkeys(names, 1)


def calls_on(names: set[str]) -> dict[str, Counter[tuple[str, str, int]]]:
    """What our accounts asked of these Jobs; the audit log has it a moment after the answer."""

    def find() -> dict[str, Counter[tuple[str, str, int]]]:
        found = calls_by_object(not_none(audit_log()), installation=installation.NAMESPACE, namespace=NAMESPACE)
        return {name: found[name] for name in names} if all(map(deleted, map(found.get, names))) else {}

    found: dict[str, Counter[tuple[str, str, int]]] = wait("the DELETE of each Job in the audit log", find)
    return found


def deleted(calls: Mapping[tuple[str, str, int], int] | None) -> list[str]:
    """The account of each DELETE that took place."""
    return [
        account
        for (account, verb, status), count in (calls or {}).items()
        if verb == "delete" and status == 200
        for _ in range(count)
    ]


def report(witness: Witness, things: Sequence[Object]) -> None:
    """Print how late the deletions were, which account made them, and how often `expire` read an object."""
    gone = [one for one in map(witness.gone, (thing["metadata"]["uid"] for thing in things)) if one]
    late = [
        (one.seen_at - not_none(finish_of(one.obj)) - not_none(by_annotation(one.obj))).total_seconds() for one in gone
    ]
    calls = calls_by_object(not_none(audit_log()), installation=installation.NAMESPACE, namespace=NAMESPACE)
    own = {thing["metadata"]["name"]: calls.get(thing["metadata"]["name"], Counter()) for thing in things}
    cuts = quantiles(late, n=20) if len(late) > 1 else [0.0] * 19
    lateness = f"p50 {cuts[9]:.2f} s, p95 {cuts[18]:.2f} s, max {max(late, default=0):.2f} s"
    print(f"deleted: {len(gone)} of {len(things)}; late: {lateness}")
    print(f"deleted by: {dict(Counter(account for one in own.values() for account in deleted(one)))}")
    reads = Counter(
        sum(count for (account, verb, _), count in one.items() if (account, verb) == ("expire", "get"))
        for one in own.values()
    )
    print(f"reads by expire of an object: {dict(reads)}")
    others: Counter[tuple[str, str, int]] = Counter()
    for one in own.values():
        others.update({call: count for call, count in one.items() if call[1:] != ("get", 200)})
    print(f"other calls: {dict(others)}")


def passes(seconds: float) -> None:
    """Let the load go on."""
    time.sleep(seconds)


# Revisions


def newest_revisions() -> dict[str, str]:
    return {name: service["status"]["latestReadyRevisionName"] for name, service in services().items()}


def serving_revisions() -> dict[str, str]:
    """The revisions that get requests; more than one are joined."""
    return {
        name: "+".join(one["revisionName"] for one in service["status"].get("traffic", []) if one.get("percent"))
        for name, service in services().items()
    }


def until_newer(before: Mapping[str, str]) -> dict[str, str]:
    """Wait until each function has a new revision that is ready."""
    wait(
        "a new revision of each function",
        lambda: not newest_revisions().items() & before.items(),
        SECONDS_MAX,
    )
    return newest_revisions()


def until_serving(revisions: dict[str, str]) -> None:
    started = time.monotonic()
    wait(f"requests to {revisions}", lambda: serving_revisions() == revisions, SECONDS_MAX)
    print(f"requests to {revisions['expire']} after {time.monotonic() - started:.0f} s")


def send_traffic(revisions: Mapping[str, str] | None) -> None:
    """Send all requests to these revisions, or to the newest ones."""
    for name in FUNCTIONS:
        target = {"revisionName": revisions[name], "percent": 100} if revisions else None
        change = {"spec": {"traffic": [target] if target else None}}
        service = ("services.serving.knative.dev", name)
        kubectl("-n", installation.NAMESPACE, "patch", *service, "--type=merge", "-p", json.dumps(change))


def until_deleting(revisions: Mapping[str, str]) -> None:
    """Wait until a Pod of `expire` has deleted an object, by its log, and let the load go on."""
    revision = revisions["expire"]
    wait(f"a deletion by {revision}", lambda: '"message": "deleted"' in installation.log_of(revision), SECONDS_MAX)
    passes(SETTLED_SECONDS)


def test_each_object_is_deleted_once_while_revisions_are_replaced_and_rolled_back(
    witness: Witness, overlays: tuple[Path, Path]
) -> None:
    """By a changed setting, by traffic to the former revisions, and by the former setting."""
    first = newest_revisions()
    with finishing("rolls", *TTLS_SECONDS) as things:
        until_deleting(first)
        installation.apply(overlays[1])
        second = until_newer(first)
        until_serving(second)
        until_deleting(second)
        send_traffic(first)
        until_serving(first)
        passes(SETTLED_SECONDS)
        installation.apply(overlays[0])
        third = until_newer(second)
        assert serving_revisions() == first  # until the traffic follows the newest revision again
        report = ttl("doctor").stdout
        assert all(f"requests go to revision {revision}," in report for revision in first.values())
        send_traffic(None)
        until_serving(third)
        until_deleting(third)
    until_gone(witness, things)


def until_content() -> None:
    """Wait for a `doctor` without complaints: it reports a second Pod of `timers` until the former revision ends."""
    complaints = ""

    def is_content() -> bool:
        nonlocal complaints
        report = ttl("doctor")
        lines = [line for line in report.stdout.splitlines() if not line.startswith("ok ")]
        if report.returncode and complaints != (complaints := "\n".join(lines)):
            print(complaints)
        return report.returncode == 0

    wait("a doctor without complaints", is_content, SECONDS_MAX)


def test_former_revisions_go_on_if_the_next_ones_cannot_start(
    witness: Witness, overlays: tuple[Path, Path], tmp_path: Path
) -> None:
    before = serving_revisions()
    installation.apply(installation.overlay(tmp_path, components=[], settings={"TTL_CONCURRENCY": "many"}))

    def is_reported() -> bool:
        report = ttl("doctor").stdout
        return "FAIL  Knative Service expire" in report and "TTL_CONCURRENCY" in report

    wait("the report of doctor", is_reported, SECONDS_MAX)
    things = make_jobs("goes-on", PER_SECOND)
    finish(things)
    until_gone(witness, things)
    assert serving_revisions() == before
    failed = [service["status"]["latestCreatedRevisionName"] for service in services().values()]
    installation.apply(overlays[0])
    until_serving(until_newer(before))
    wait("a doctor that reports no failed revision", lambda: "TTL_CONCURRENCY" not in ttl("doctor").stdout, SECONDS_MAX)
    kubectl("-n", installation.NAMESPACE, "delete", "revisions", *failed)  # Knative ends their Pods ten minutes later


# Stops and archives


@pytest.fixture
def policy_file(tmp_path: Path) -> Path:
    folder = installation.shared_folder(ARCHIVE)
    if folder is None:
        pytest.skip("the Pods of this cluster share no folder")
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.format(archive=folder, grace=GRACE.seconds))
    return file


def make_overdue(name: str) -> list[Object]:
    """Jobs that run until they are stopped at their active deadline."""
    words = {"namespace": NAMESPACE, "active_deadline": f"{DEADLINE.seconds}s"}
    return [create(job(f"{name}-{number}", "sleep 600", **words)) for number in range(OVERDUE)]


def until_stopped(things: Sequence[Object]) -> None:
    """Wait until all Jobs are stopped; each of them was stopped once, and not too early."""

    def stops() -> dict[str, datetime | None]:
        listed = json.loads(kubectl("-n", NAMESPACE, "get", "jobs", "-o", "json"))["items"]
        return {one["metadata"]["uid"]: stop_of(one) for one in listed if finish_of(one)}

    uids = {thing["metadata"]["uid"] for thing in things}
    wait(f"the stop of {len(things)} Jobs", lambda: uids <= {uid for uid, at in stops().items() if at}, SECONDS_MAX)
    stopped_at = stops()
    for thing in things:
        created_at = datetime.fromisoformat(thing["metadata"]["creationTimestamp"])
        assert not_none(stopped_at[thing["metadata"]["uid"]]) >= created_at + DEADLINE
    calls = calls_by_object(not_none(audit_log()), installation=installation.NAMESPACE, namespace=NAMESPACE)
    names = {thing["metadata"]["name"] for thing in things}
    assert {name: calls[name]["enforce", "patch", 200] for name in names} == dict.fromkeys(names, 1)


def test_stops_and_archives_go_on_while_revisions_are_replaced(
    witness: Witness, overlays: tuple[Path, Path], policy_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    first, second = (
        installation.overlay(
            tmp_path_factory.mktemp("archiving"),
            components=["policy"],
            settings={"TTL_CONCURRENCY": concurrency},
            files={"policy": [policy_file]},
        )
        for concurrency in ("24", "16")
    )
    before = newest_revisions()
    installation.apply(first)
    revisions = until_newer(before)
    until_serving(revisions)
    with finishing("copies", *TTLS_SECONDS, labels={"copy": "true"}) as things:
        until_deleting(revisions)
        overdue = make_overdue("stops-before")
        installation.apply(second)
        overdue += make_overdue("stops-meanwhile")
        revisions = until_newer(revisions)
        overdue += make_overdue("stops-later")
        until_serving(revisions)
        until_deleting(revisions)
    until_gone(witness, things)
    until_stopped(overdue)

    listed = ttl("archive", "ls", "jobs", "-n", NAMESPACE, "--policy", str(policy_file), "-o", "json")
    assert listed.returncode == 0, listed.stderr
    stored = {(one["uid"], one["resourceVersion"]): one["archivedAt"] for one in json.loads(listed.stdout)}
    for thing in things:
        uid = thing["metadata"]["uid"]
        archived_at = datetime.fromisoformat(stored[uid, witness.last_version(uid)])
        assert not_none(witness.gone(uid)).seen_at >= archived_at + GRACE
    installation.apply(overlays[0])
    until_serving(until_newer(revisions))


# A drain


def evict(function: str) -> list[str]:
    """Evict the Pods of a function as a drain does; returns their names."""
    before = pods_of(function)
    for name in before.values():
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        path = f"/api/v1/namespaces/{installation.NAMESPACE}/pods/{name}/eviction"
        kubectl("create", "--raw", path, "-f", "-", given=json.dumps(eviction))
    if function in installation.ALWAYS_RUNNING:
        wait(f"another Pod of {function}", lambda: pods_of(function).keys() - before.keys())
    return list(before.values())


def test_each_object_is_deleted_once_while_pods_are_evicted(witness: Witness) -> None:
    with finishing("drains") as things:
        passes(SETTLED_SECONDS)
        for function in FUNCTIONS:
            print(f"evicted: {evict(function)}")
            passes(4)
    until_gone(witness, things)


def test_doctor_reports_no_problem_after_the_return() -> None:
    until_content()


# A burst


def test_burst_of_objects_that_finish_at_once_is_deleted(witness: Witness) -> None:
    things = make_jobs("burst", BURST, BURST_TTL_SECONDS)
    seen: Counter[str] = Counter()
    ended = threading.Event()

    def count() -> None:
        while not ended.wait(1):
            for function in FUNCTIONS:
                seen[function] = max(seen[function], len(pods_of(function)))

    counting = threading.Thread(target=count)
    counting.start()
    try:
        started = time.monotonic()
        finish(things)
        print(f"written in {time.monotonic() - started:.0f} s")
        until_gone(witness, things)
    finally:
        ended.set()
        counting.join()
        print(f"Pods at most: {dict(seen)}")


# Without events


@pytest.mark.usefixtures("short_windows")
def test_functions_scale_to_zero_except_timers_and_work_from_zero(witness: Witness) -> None:
    """The tick of each minute starts `sweep`, and its Pod starts nothing else."""
    idle = set(FUNCTIONS) - {"timers", "sweep"}
    started = time.monotonic()
    wait("no Pod of a function without events", lambda: not any(pods_of(function) for function in idle), SECONDS_MAX)
    print(f"scaled to zero after {time.monotonic() - started:.0f} s")
    assert len(pods_of("timers")) == 1
    passes(65)
    assert {function: len(pods_of(function)) for function in idle} == dict.fromkeys(idle, 0)
    assert len(pods_of("timers")) == 1
    things = make_jobs("from-zero", 3)
    finish(things)
    until_gone(witness, things)


def test_doctor_reports_no_problem_at_the_end() -> None:
    until_content()
