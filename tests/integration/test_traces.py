"""Traces and metrics of `run` and of a function, as a receiver of OTLP gets them; the API server is real."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Api, Run
from tests.integration.processes import FunctionProcess
from tests.integration.test_run import Cluster, await_timer
from tests.otlp_receiver import Receiver, receiving
from tests.servers import shared_server  # noqa: F401 - a fixture

SOURCE = "CloudEvents Create dev.knative.apiserver.resource.update"
FIRED = "CloudEvents Process dev.ttlafterfinished.timer.fired"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiving() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=cleaning")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "300")
        yield receiver


def test_one_trace_leads_from_the_watch_to_the_delete(
    api: Api, namespace: str, start_run: Callable[..., Run], receiver: Receiver
) -> None:
    cluster, run = Cluster(api, namespace), start_run()
    await_timer(cluster, run, "traced", ttl=3)
    api.wait("the deletion", lambda: cluster.job("traced") is None)
    assert run.stop() == 0

    (delete,) = [one for one in receiver.spans if one.attributes.get("http.request.method") == "DELETE"]
    assert delete.name == "DELETE /apis/batch/v1/namespaces/{namespace}/jobs/{name}"
    assert delete.attributes["http.response.status_code"] == 200
    assert delete.attributes["k8s.namespace.name"] == namespace
    assert delete.attributes["k8s.job.name"] == "traced"
    assert [one.name for one in receiver.ancestors(delete)] == [
        delete.name,
        FIRED,
        "CloudEvents Process dev.ttlafterfinished.timer.set",
        SOURCE.replace("Create", "Process"),
        SOURCE,
    ]
    trace = [one for one in receiver.spans if one.trace_id == delete.trace_id]
    handled = [one for one in trace if " Process " in one.name]
    assert all(one.links == ((one.trace_id, one.parent_id),) for one in handled)
    functions = {one.attributes["code.function.name"] for one in handled}
    assert functions >= {"functions.schedule", "functions.timers", "functions.expire"}
    assert delete.resource["service.name"] == "ttl-after-finished"
    assert receiver.headers["x-tenant"] == "cleaning"
    logged = [line for line in run.text.splitlines() if f"trace_id={delete.trace_id}" in line]
    assert [line for line in logged if "deleted" in line and "/traced" in line]
    deleted = receiver.metrics["ttl_objects_total"].sum
    assert deleted.is_monotonic
    assert [one.as_double for one in deleted.data_points if "deleted" in str(one.attributes)] == [1.0]
    assert receiver.metrics["ttl_deletion_lateness_seconds"].histogram.data_points[0].count == 1


def test_function_pushes_its_last_metrics_and_spans_on_sigterm(
    api: Api, tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OTEL_BSP_SCHEDULE_DELAY", "OTEL_METRIC_EXPORT_INTERVAL"):
        monkeypatch.setenv(name, "600000")
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    function = FunctionProcess(api, "schedule", tmp_path)
    job: dict[str, Any] = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "uid": "u"}}
    try:
        assert function.post("dev.knative.apiserver.resource.add", job, traceparent=parent) == 204
        assert not receiver.spans
        function.process.send_signal(signal.SIGTERM)
        function.process.wait(20)
    finally:
        function.end()

    (span,) = receiver.spans
    assert (span.trace_id, span.parent_id) == (parent[3:35], parent[36:52])
    assert span.resource["service.name"] == "schedule"
    (answers,) = receiver.metrics["ttl_events_total"].sum.data_points
    assert answers.as_double == 1


@pytest.mark.parametrize(("flag", "count"), [("01", 1), ("00", 0)])
def test_flag_of_the_parent_decides_whether_a_span_is_sent(
    api: Api, tmp_path: Path, receiver: Receiver, flag: str, count: int
) -> None:
    parent = f"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flag}"
    function = FunctionProcess(api, "schedule", tmp_path)
    try:
        function.post("dev.knative.apiserver.resource.add", {"kind": "X"}, traceparent=parent)
        function.process.send_signal(signal.SIGTERM)
        function.process.wait(20)
    finally:
        function.end()

    assert len(receiver.spans) == count
    assert all(one.is_error and one.attributes["error.type"] == "422" for one in receiver.spans)
