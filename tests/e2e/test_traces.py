"""Traces on a real Knative: each function is a process of its own, and a timer waits between two of them.

The collector is a process of this machine, so these tests need a cluster whose Pods are such processes. The functions
send their spans and metrics only when they end: Knative has scaled them to zero. The tests build on each other, in this
order.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e import installation
from tests.e2e.cluster import create, get, job, kubectl, server_pid, wait
from tests.e2e.ticks import wait_until_delivered
from tests.e2e.witness import Witness, finish_of, witnessed
from tests.otlp_receiver import ReceivedSpan, Receiver, receiving

NAMESPACE = "ttl-e2e-traces"
OBSERVABILITY = "config-observability"
"""The ConfigMap by which Knative Eventing sends traces of its own."""

NEVER_MS = "3600000"
TTL_SECONDS = 60
"""Longer than Knative gives a Pod for its requests, 30 seconds: `schedule` ends while the timer waits."""

WAITED_SECONDS = 5
"""At least as long the timer waits: its TTL without the way of its event, which is long on a busy machine."""

STORED_SECONDS = 3
"""The way of an event from the source to the stored timer."""

UPDATED = "dev.knative.apiserver.resource.update"
SET, FIRED = "dev.ttlafterfinished.timer.set", "dev.ttlafterfinished.timer.fired"

Object = dict[str, Any]


@pytest.fixture(scope="module")
def witness() -> Iterator[Witness]:
    if server_pid() is None:
        pytest.skip("the Pods of this cluster are not processes of this machine")
    with witnessed(NAMESPACE) as seen:
        yield seen


@pytest.fixture(scope="module")
def receiver(witness: Witness) -> Iterator[Receiver]:
    host = kubectl("get", "pods", "-A", "-o", "jsonpath={.items[0].status.hostIP}")
    with receiving(host) as receiver:
        yield receiver


@pytest.fixture(scope="module", autouse=True)
def installed(receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The two-minute start with the settings of docs/how-to/trace-deletions.md, and without ticks."""
    installation.prepare()
    settings = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_BSP_SCHEDULE_DELAY": NEVER_MS,
        "OTEL_METRIC_EXPORT_INTERVAL": NEVER_MS,
    }
    folder = installation.overlay(tmp_path_factory.mktemp("traces"), components=[], settings=settings)
    installation.apply(folder)
    installation.wait_until_ready()
    wait_until_delivered()
    kubectl("-n", installation.NAMESPACE, "delete", "pingsources", "--all")
    yield
    installation.uninstall(folder)


@pytest.fixture
def knative_traces(receiver: Receiver) -> Iterator[None]:
    """Knative Eventing sends its own traces to the receiver."""
    data = {
        "tracing-protocol": "http/protobuf",
        "tracing-endpoint": f"{receiver.url}/v1/traces",
        "tracing-sampling-rate": "1",
    }
    observe(data)
    installation.restart_knative()
    wait("the tracing of the source", lambda: receiver.url in source_settings())
    installation.wait_until_ready()
    wait("the end of the source without tracing", lambda: not installation.ending_pods())
    yield
    observe(dict.fromkeys(data))


def source_settings() -> str:
    """What Knative Eventing gives the process of the ApiServerSource; it follows the ConfigMap a moment later."""
    label = "eventing.knative.dev/source=apiserver-source-controller"
    return kubectl("-n", installation.NAMESPACE, "get", "deployments", "-l", label, "-o", "json")


def observe(data: dict[str, Any]) -> None:
    kubectl(
        "-n",
        installation.KNATIVE,
        "patch",
        "configmap",
        OBSERVABILITY,
        "--type=merge",
        "-p",
        json.dumps({"data": data}),
    )


def end(function: str) -> None:
    """End the Pods of a function as Knative does when it scales it to zero: they may end their requests."""
    before = installation.pods_of(function)
    selector = f"serving.knative.dev/service={function}"
    kubectl("-n", installation.NAMESPACE, "delete", "pods", "-l", selector, "--ignore-not-found", "--timeout=90s")
    assert not before.keys() & installation.pods_of(function).keys()


def finished_job(name: str) -> Object:
    thing = create(job(name, "true", namespace=NAMESPACE, ttl=f"{TTL_SECONDS}s"))
    wait(f"the end of {name}", lambda: finish_of(get("job", name, namespace=NAMESPACE)))
    time.sleep(STORED_SECONDS)
    return thing


def delete_of(receiver: Receiver, name: str) -> ReceivedSpan:
    """Wait for the span of the DELETE of a Job."""

    def find() -> ReceivedSpan | None:
        deletes = (one for one in receiver.spans if one.attributes.get("http.request.method") == "DELETE")
        return next((one for one in deletes if one.attributes["k8s.job.name"] == name), None)

    span: ReceivedSpan = wait(f"the span of the DELETE of {name}", find)
    return span


def steps(spans: list[ReceivedSpan]) -> list[tuple[str, str]]:
    """Which function did what, of the spans of functions."""
    of_functions = [one for one in spans if one.resource.get("service.namespace") == "ttl-after-finished"]
    return [(one.resource["service.name"], one.name) for one in of_functions]


STEPS = [
    ("expire", "DELETE /apis/batch/v1/namespaces/{namespace}/jobs/{name}"),
    ("expire", f"CloudEvents Process {FIRED}"),
    ("timers", f"CloudEvents Process {SET}"),
    ("schedule", f"CloudEvents Process {UPDATED}"),
]
"""From the DELETE back to the event of the source."""


def test_one_trace_leads_to_the_delete_through_functions_that_scale_to_zero(
    witness: Witness, receiver: Receiver
) -> None:
    """`schedule` ends while the timer waits, and each function sends its spans and metrics before it ends."""
    thing = finished_job("waits")
    assert receiver.spans == []
    end("schedule")
    wait("the spans of schedule", lambda: receiver.named(f"Process {UPDATED}"))
    assert witness.gone(thing["metadata"]["uid"]) is None
    wait("the deletion", lambda: witness.gone(thing["metadata"]["uid"]), 3 * TTL_SECONDS)
    for function in ("timers", "expire"):
        assert function not in {name for name, _ in steps(receiver.spans)}
        end(function)

    way = receiver.ancestors(delete_of(receiver, "waits"))
    assert steps(way) == STEPS
    assert len(way) == len(STEPS)
    assert len({one.trace_id for one in way}) == 1
    delete, fired, stored, reported = way
    assert delete.attributes["http.response.status_code"] == 200
    assert all(one.links == ((one.trace_id, one.parent_id),) for one in (fired, stored))
    assert reported.attributes["k8s.job.name"] == "waits"
    assert (fired.start_ns - stored.end_ns) / 1e9 > WAITED_SECONDS
    pushed = {one["service.name"] for one in receiver.resources}
    assert pushed >= {"schedule", "timers", "expire"}
    deleted = receiver.metrics["ttl_objects_total"].sum.data_points
    assert [one.as_double for one in deleted if "deleted" in str(one.attributes)] == [1.0]


def test_trace_begins_in_knative_if_its_tracing_is_on(
    knative_traces: None, witness: Witness, receiver: Receiver
) -> None:
    thing = finished_job("begins-in-knative")
    wait("the deletion", lambda: witness.gone(thing["metadata"]["uid"]), 3 * TTL_SECONDS)
    for function in ("schedule", "timers", "expire"):
        end(function)

    way = receiver.ancestors(delete_of(receiver, "begins-in-knative"))
    assert steps(way) == STEPS
    assert len({one.trace_id for one in way}) == 1
    assert way[-1].resource["service.name"] == "apiserversource"
