"""Timers in NATS JetStream on a real Knative: two Pods of `timers`, of which one is killed, and then the server.

The server is a Pod of this cluster, with a folder that outlives it. The tests build on each other, in this order. No
sweep runs while they wait: what is deleted, a timer led to.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e import installation, nats_server
from tests.e2e.cluster import create, get, job, kubectl, server_pid, wait
from tests.e2e.nats_server import SERVER
from tests.e2e.witness import Deletion, Witness, finish_of, witnessed

NAMESPACE = "ttl-e2e-nats"
GONE_SECONDS = 90
TTL_SECONDS = 20
STORED_SECONDS = 3
"""The way of an event from the source to the stored timer."""

Object = dict[str, Any]


@pytest.fixture(scope="module")
def witness() -> Iterator[Witness]:
    with witnessed(NAMESPACE) as seen:
        yield seen


@pytest.fixture(scope="module")
def nats() -> Iterator[None]:
    with nats_server.running():
        yield


@pytest.fixture(scope="module", autouse=True)
def installed(witness: Witness, nats: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The two-minute start with timers in NATS; in the end it is uninstalled."""
    installation.prepare()
    folder = installation.overlay(
        tmp_path_factory.mktemp("nats"), components=["timers-nats"], settings={"TTL_NATS_REPLICAS": "1"}
    )
    installation.apply(folder)
    installation.wait_until_ready()
    if not installation.has_serving():  # nothing scales a Knative Service to the Pods that it asks for
        kubectl("-n", installation.NAMESPACE, "scale", "deployment/timers-ksvc", "--replicas=2")
    wait("two Pods of timers", lambda: len(installation.pods_of("timers")) == 2)
    installation.wait_until_ready()
    yield
    installation.uninstall(folder)


def finished_jobs(name: str, count: int) -> list[Object]:
    """Jobs that finished, each of which has a pending timer."""
    ttl = f"{TTL_SECONDS}s"
    things = [create(job(f"{name}-{number}", "true", namespace=NAMESPACE, ttl=ttl)) for number in range(count)]
    for thing in things:
        wait(f"the end of {thing['metadata']['name']}", lambda one=thing: finish_of(fresh(one)))
    time.sleep(STORED_SECONDS)
    return things


def fresh(thing: Object) -> Object:
    found: Object = get("job", thing["metadata"]["name"], namespace=NAMESPACE)
    return found


def gone(witness: Witness, thing: Object) -> Deletion:
    what = f"the deletion of {thing['metadata']['name']}"
    deletion: Deletion = wait(what, lambda: witness.gone(thing["metadata"]["uid"]), GONE_SECONDS)
    return deletion


def server_pods() -> set[str]:
    listed = kubectl("-n", SERVER, "get", "pods", "-l", f"app={SERVER}", "-o", "jsonpath={.items[*].metadata.uid}")
    return set(listed.split())


def kill_server() -> None:
    """End the server without grace, as a node that fails; the Deployment starts another on the same folder."""
    before = server_pods()
    forced = ("--grace-period=0", "--force", "--wait=false")
    kubectl("-n", SERVER, "delete", "pod", "-l", f"app={SERVER}", *forced)
    wait("another server", lambda: server_pods() - before)
    kubectl("-n", SERVER, "rollout", "status", f"deployment/{SERVER}", "--timeout=2m")


def test_doctor_has_no_complaint_about_the_timers() -> None:
    report = installation.ttl("doctor")
    assert not [line for line in report.stdout.splitlines() if "FAIL" in line.upper() and "timer" in line], (
        report.stdout
    )


def test_job_is_deleted_on_time_by_a_timer_in_nats(witness: Witness) -> None:
    with installation.without_ticks():
        for thing in finished_jobs("plain", 5):
            gone(witness, thing)


def test_pending_timers_survive_the_kill_of_one_pod_of_timers(witness: Witness) -> None:
    with installation.without_ticks():
        things = finished_jobs("pod", 10)
        uid, name = next(iter(installation.pods_of("timers").items()))
        forced = ("--grace-period=0", "--force", "--wait=false")
        kubectl("-n", installation.NAMESPACE, "delete", "pod", name, *forced)
        for thing in things:
            gone(witness, thing)
        wait("two Pods again", lambda: len(installation.pods_of("timers")) == 2)
        assert uid not in installation.pods_of("timers")


def test_pending_timers_survive_the_kill_of_the_server(witness: Witness) -> None:
    if server_pid() is None:
        pytest.skip("the server keeps its folder only where Pods are processes of this machine")
    with installation.without_ticks():
        things = finished_jobs("server", 10)
        kill_server()
        for thing in things:
            gone(witness, thing)


def test_timers_are_set_again_after_the_kill_of_the_server(witness: Witness) -> None:
    with installation.without_ticks():
        for thing in finished_jobs("after", 3):
            gone(witness, thing)
