"""The spans of events and requests, as the SDK of OpenTelemetry ends them."""

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from shared.adapters.events.answers import responding
from shared.adapters.events.cloudevents import Event, event_of, send_traced, to_http
from shared.adapters.kubernetes.transport import describe, is_traced, traced
from shared.adapters.tracing.current import current_traceparent, install, within
from shared.adapters.tracing.otel_tracer import OtelTracer, build_resource
from shared.core.values.objects import ref_of
from shared.errors import TryLaterError
from shared.messages import Purpose, SweepStep, Timer, TimersSet
from tests.builders import NOW, job

pytestmark = pytest.mark.anyio

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = f"{PARENT[:-2]}00"
TIMER = Timer(ref=ref_of(job()), purpose=Purpose.EXPIRE, due_at=NOW)


@pytest.fixture
def spans():
    exporter = InMemorySpanExporter()
    tracer = OtelTracer(Resource({}), exporter)
    tracer._provider.add_span_processor(SimpleSpanProcessor(exporter))
    install(tracer)
    yield exporter.get_finished_spans
    install(None)
    tracer._provider.shutdown()


def identity(span):
    return f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{span.context.trace_flags:02x}"


async def answered(function, carried="", **headers):
    given, body = to_http(event_of(TIMER, source="s"))
    extra = {"ce-traceparent": carried} if carried else {}
    return await responding(function)({**given, **extra, **headers}, body)


async def replies(event):
    return TimersSet(timers=(TIMER,))


async def test_span_of_an_event_is_a_child_of_its_creation_and_linked_to_it(spans):
    answer = await answered(replies, PARENT)

    (span,) = spans()
    assert (span.name, span.kind) == (f"CloudEvents Process {Timer.type}", SpanKind.CONSUMER)
    assert f"{span.parent.span_id:016x}" == PARENT[36:52]
    assert [one.context.span_id for one in span.links] == [span.parent.span_id]
    assert answer.headers["ce-traceparent"] == identity(span)
    assert span.attributes["cloudevents.event_type"] == Timer.type
    assert span.attributes["code.function.name"] == "functions.replies"
    assert span.attributes["http.response.status_code"] == 200
    assert "ce-traceparent" not in str(span.attributes)


async def test_header_of_the_request_counts_if_the_event_has_no_trace(spans):
    await answered(replies, traceparent=PARENT)
    await answered(replies, UNSAMPLED.replace("0af7", "1111"), traceparent=PARENT)

    (span,) = spans()  # the event's own parent is not sampled
    assert f"{span.context.trace_id:032x}" == PARENT[3:35]


@pytest.mark.parametrize("wrong", [PARENT.upper(), f"01{PARENT[2:]}", "x" * 5_000])
async def test_wrong_traceparent_starts_a_trace_of_its_own(spans, wrong):
    answer = await answered(replies, wrong)

    (span,) = spans()
    assert (answer.status, span.parent, span.links) == (200, None, ())


async def test_trace_that_is_not_sampled_is_carried_and_not_sent(spans):
    answer = await answered(replies, UNSAMPLED)

    assert spans() == ()
    assert answer.headers["ce-traceparent"][:36] == UNSAMPLED[:36]
    assert answer.headers["ce-traceparent"].endswith("-00")


async def test_refused_event_is_a_failed_span(spans):
    async def busy(event):
        raise TryLaterError("busy")

    async def broken(event):
        raise RuntimeError("bug")

    await answered(busy, PARENT)
    with pytest.raises(RuntimeError):
        await answered(broken, PARENT)

    assert [one.status.status_code for one in spans()] == [StatusCode.ERROR] * 2
    assert [one.attributes["error.type"] for one in spans()] == ["503", "RuntimeError"]
    assert current_traceparent() == ""


async def test_event_of_the_watch_starts_a_trace_and_names_its_object(spans):
    sent = []
    extensions = {"apiversion": "batch/v1", "kind": "Job", "namespace": "ci", "name": "a" * 600}
    event = Event("1", "server", "dev.knative.apiserver.resource.add", subject="/apis", extensions=extensions)

    async def send(event):
        sent.append(event)

    await send_traced(send, event)

    (span,) = spans()
    assert (span.kind, span.parent) == (SpanKind.PRODUCER, None)
    assert sent[0].extensions == {**extensions, "traceparent": identity(span)}
    assert span.attributes["k8s.namespace.name"] == "ci"
    assert span.attributes["k8s.job.name"] == "a" * 500
    assert span.attributes["messaging.operation.type"] == "send"


async def test_published_event_carries_the_trace_of_the_event_that_is_handled(spans):
    async def publishes(event):
        seen.append(event_of(SweepStep(), source="s").extensions["traceparent"])
        seen.append(event_of(TIMER, source="s").extensions.get("traceparent"))

    seen: list[str | None] = []
    await answered(publishes, PARENT)

    assert seen == [identity(spans()[0]), None]


class Response:
    def __init__(self, status):
        self.status = status


@pytest.mark.parametrize(("status", "is_error"), [(200, False), (409, True)])
async def test_request_is_a_client_span_that_the_api_server_gets(spans, status, is_error):
    calls = []

    async def request(method, url, *, headers, **options):
        calls.append((method, url, headers, options))
        return Response(status)

    with within(PARENT):
        assert is_traced()
        await traced(request)(
            "DELETE", "https://api:6443/api/v1/namespaces/ci/pods/a?x=1", headers={"A": "b"}, data=b""
        )

    (span,) = spans()
    assert (span.name, span.kind) == ("DELETE /api/v1/namespaces/{namespace}/pods/{name}", SpanKind.CLIENT)
    assert calls[0][2] == {"A": "b", "traceparent": identity(span)}
    assert span.attributes["url.full"] == "https://api:6443/api/v1/namespaces/ci/pods/a"
    assert (span.attributes["server.port"], span.attributes["k8s.pod.name"]) == (6443, "a")
    assert (span.status.status_code is StatusCode.ERROR) == is_error


async def test_request_outside_of_a_trace_has_no_span(spans):
    assert not is_traced()
    install(None)
    with within(PARENT):
        assert not is_traced()


@pytest.mark.parametrize(
    ("path", "template"),
    [
        ("/version", "/version"),
        ("/api", "/api"),
        ("/api/v1", "/api/v1"),
        ("/apis/batch/v1/jobs", "/apis/batch/v1/jobs"),
        ("/api/v1/namespaces/ci", "/api/v1/namespaces/{name}"),
        ("/api/v1/namespaces/ci/pods", "/api/v1/namespaces/{namespace}/pods"),
        ("/api/v1/namespaces/ci/pods/a/log", "/api/v1/namespaces/{namespace}/pods/{name}/log"),
        ("/apis/kueue.x-k8s.io/v1/resourceflavors/a", "/apis/kueue.x-k8s.io/v1/resourceflavors/{name}"),
        ("/k8s/clusters/c-1/api/v1/namespaces/api", "/k8s/clusters/c-1/api/v1/namespaces/{name}"),
        ("/api/proxy/apis/batch/v1/jobs/apis", "/api/proxy/apis/batch/v1/jobs/{name}"),
        ("/api/v1/namespaces/apis/pods/v1", "/api/v1/namespaces/{namespace}/pods/{name}"),
    ],
)
def test_template_of_a_path_names_no_object(path, template):
    assert describe("GET", f"https://api{path}?limit=1")["url.template"] == template


def test_span_names_an_object_behind_a_proxy_and_no_password():
    about = describe("DELETE", "https://ann:secret@proxy/k8s/clusters/c-1/apis/batch/v1/namespaces/ci/jobs/a")
    assert (about["k8s.namespace.name"], about["k8s.job.name"]) == ("ci", "a")
    assert about["url.full"] == "https://proxy/k8s/clusters/c-1/apis/batch/v1/namespaces/ci/jobs/a"


def test_resource_of_the_environment_takes_precedence(monkeypatch):
    assert build_resource("expire").attributes["service.name"] == "expire"
    assert build_resource("").attributes["service.name"] == "ttl-after-finished"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "cleaner")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.namespace=mine,k8s.cluster.name=prod")
    found = build_resource("expire").attributes
    assert (found["service.name"], found["service.namespace"]) == ("cleaner", "mine")
    assert found["k8s.cluster.name"] == "prod"
