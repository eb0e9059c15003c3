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
from datetime import UTC, datetime
from pathlib import Path
from statistics import quantiles
from typing import Any

import pytest

from tests.builders import not_none
from tests.e2e import installation
from tests.e2e.cluster import job, kubectl, server_pid, wait
from tests.e2e.installation import pods_of, services, ttl
from tests.e2e.rights import audit_log, calls_by_object
from tests.e2e.ticks import wait_until_delivered
from tests.e2e.witness import Witness, by_annotation, finish_of, witnessed

NAMESPACE = "ttl-e2e-revisions"
PATHS = {"Job": "/apis/batch/v1/namespaces/{}/jobs"}
FUNCTIONS = ("schedule", "timers", "expire", "enforce", "archive", "sweep", "usage", "deadletter")

PER_SECOND = 3
LOAD_SECONDS = 66
TTLS_SECONDS = (4, 40)
"""Some timers fire soon, others are pending while revisions change."""
BURST = 500
BURST_TTL_SECONDS = 40
"""Longer than it takes to write the status of all objects of the burst."""

GONE_SECONDS = 180
"""Two sweeps of the two-minute start and some, after the load."""

WINDOW = {"stable-window": "6s", "scale-to-zero-grace-period": "6s"}
"""Of Knative's autoscaler, in place of 60 and 30 seconds."""

Object = dict[str, Any]

pytestmark = pytest.mark.skipif("E2E_SERVING" not in os.environ, reason="needs Knative Serving itself: E2E_SERVING=1")


# The installation


@pytest.fixture(scope="module")
def witness() -> Iterator[Witness]:
    """Record every deletion; at the end, check that none was early or unwanted."""
    if server_pid() is None or audit_log() is None:
        assert not os.environ.get("CI")
        pytest.skip("needs Pods that are processes of this machine, and the audit log: see audit-policy.yaml")
    with witnessed(NAMESPACE, PATHS) as seen:
        yield seen


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


def make_jobs(name: str, count: int, *ttls_seconds: int) -> list[Object]:
    """Jobs that no controller of the cluster touches, with these TTLs in turn."""
    ttls = itertools.islice(itertools.cycle(ttls_seconds or TTLS_SECONDS[:1]), count)
    items = [job(f"{name}-{number}", "true", namespace=NAMESPACE, ttl=f"{ttl}s") for number, ttl in enumerate(ttls)]
    for item in items:
        item["spec"]["managedBy"] = "ttlafterfinished.dev/e2e"
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
def finishing(things: Sequence[Object]) -> Iterator[None]:
    """Let a few Jobs a second finish beside the block, and all of them before its end."""

    def run() -> None:
        start = time.monotonic()
        for number in range(0, len(things), PER_SECOND):
            time.sleep(max(0.0, start + number / PER_SECOND - time.monotonic()))
            try:
                finish(things[number : number + PER_SECOND])
            except AssertionError as error:
                errors.append(error)

    errors: list[AssertionError] = []
    load = threading.Thread(target=run)
    load.start()
    try:
        yield
    finally:
        load.join()
    assert errors == []


def until_gone(witness: Witness, things: Sequence[Object]) -> None:
    """Wait until all Jobs are gone; each of them was deleted once, and not too early."""
    uids = {thing["metadata"]["uid"] for thing in things}

    def are_gone() -> bool:
        return uids <= {one.obj["metadata"]["uid"] for one in list(witness.deletions)}

    try:
        wait(f"the deletion of {len(things)} Jobs", are_gone, GONE_SECONDS)
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
        installation.READY_SECONDS,
    )
    return newest_revisions()


def until_serving(revisions: dict[str, str]) -> None:
    started = time.monotonic()
    wait(f"requests to {revisions}", lambda: serving_revisions() == revisions, installation.READY_SECONDS)
    print(f"requests to {revisions['expire']} after {time.monotonic() - started:.0f} s")


def send_traffic(revisions: Mapping[str, str] | None) -> None:
    """Send all requests to these revisions, or to the newest ones."""
    for name in FUNCTIONS:
        target = {"revisionName": revisions[name], "percent": 100} if revisions else None
        change = {"spec": {"traffic": [target] if target else None}}
        service = ("services.serving.knative.dev", name)
        kubectl("-n", installation.NAMESPACE, "patch", *service, "--type=merge", "-p", json.dumps(change))


def has_deleted(revision: str) -> bool:
    """Whether a Pod of a revision of `expire` deleted an object, by its log."""
    return '"message": "deleted"' in installation.log_of(revision)


def test_each_object_is_deleted_once_while_revisions_are_replaced_and_rolled_back(
    witness: Witness, overlays: tuple[Path, Path]
) -> None:
    """By a changed setting, by traffic to the former revisions, and by the former setting."""
    first = newest_revisions()
    things = make_jobs("rolls", PER_SECOND * LOAD_SECONDS, *TTLS_SECONDS)
    with finishing(things):
        passes(LOAD_SECONDS / 12)
        installation.apply(overlays[1])
        second = until_newer(first)
        until_serving(second)
        passes(LOAD_SECONDS / 6)
        send_traffic(first)
        until_serving(first)
        passes(LOAD_SECONDS / 6)
        installation.apply(overlays[0])
        third = until_newer(second)
        assert serving_revisions() == first  # until the traffic follows the newest revision again
        report = ttl("doctor").stdout
        assert all(f"requests go to revision {revision}," in report for revision in first.values())
        send_traffic(None)
        until_serving(third)
    until_gone(witness, things)
    for revisions in (first, second, third):
        assert has_deleted(revisions["expire"])


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

    wait("a doctor without complaints", is_content, GONE_SECONDS)


def test_former_revisions_go_on_if_the_next_ones_cannot_start(
    witness: Witness, overlays: tuple[Path, Path], tmp_path: Path
) -> None:
    before = serving_revisions()
    installation.apply(installation.overlay(tmp_path, components=[], settings={"TTL_CONCURRENCY": "many"}))
    reported = wait("the report of doctor", lambda: "TTL_CONCURRENCY" in (out := ttl("doctor").stdout) and out, 120)
    assert "FAIL  Knative Service expire" in reported
    things = make_jobs("goes-on", PER_SECOND)
    finish(things)
    until_gone(witness, things)
    assert serving_revisions() == before
    installation.apply(overlays[0])
    until_serving(until_newer(before))


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
    things = make_jobs("drains", PER_SECOND * 50)
    with finishing(things):
        passes(5)
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


@pytest.fixture(scope="module")
def short_windows() -> Iterator[None]:
    """Scale to zero after seconds instead of minutes."""
    scale = ("-n", "knative-serving", "patch", "configmap", "config-autoscaler", "--type=merge", "-p")
    kubectl(*scale, json.dumps({"data": WINDOW}))
    yield
    kubectl(*scale, json.dumps({"data": dict.fromkeys(WINDOW)}))


@pytest.mark.usefixtures("short_windows")
def test_functions_scale_to_zero_except_timers_and_work_from_zero(witness: Witness) -> None:
    """The tick of each minute starts `sweep`, and its Pod starts nothing else."""
    idle = set(FUNCTIONS) - {"timers", "sweep"}
    started = time.monotonic()
    wait("no Pod of a function without events", lambda: not any(pods_of(function) for function in idle), 240)
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
