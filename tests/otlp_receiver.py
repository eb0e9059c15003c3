"""A small receiver of OTLP over HTTP: it keeps the spans and the metrics that arrive."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class ReceivedSpan:
    """A span, with its ids as hexadecimal digits."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    links: tuple[tuple[str, str], ...]
    attributes: dict[str, Any]
    resource: dict[str, Any]
    is_error: bool
    start_ns: int
    end_ns: int


@dataclass
class Receiver:
    """What arrived.

    Attributes:
        url: The value of OTEL_EXPORTER_OTLP_ENDPOINT.
        headers: Those of the last request.
    """

    url: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    resources: list[dict[str, Any]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)

    def named(self, part: str) -> list[ReceivedSpan]:
        """The spans whose names contain a text."""
        return [span for span in self.spans if part in span.name]

    def ancestors(self, span: ReceivedSpan) -> list[ReceivedSpan]:
        """The span, its parent, and so on up to the root; all of them must have arrived."""
        by_id = {one.span_id: one for one in self.spans}
        found = [span]
        while found[-1].parent_id:
            found.append(by_id[found[-1].parent_id])
        return found

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            self._take_spans(ExportTraceServiceRequest.FromString(body))
        elif path == "/v1/metrics":
            self._take_metrics(ExportMetricsServiceRequest.FromString(body))

    def _take_spans(self, request: Any) -> None:
        for of_resource in request.resource_spans:
            resource = _values(of_resource.resource.attributes)
            for scope in of_resource.scope_spans:
                self.spans += [
                    ReceivedSpan(
                        span.name,
                        span.kind,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                        _values(span.attributes),
                        resource,
                        is_error=span.status.code == 2,
                        start_ns=span.start_time_unix_nano,
                        end_ns=span.end_time_unix_nano,
                    )
                    for span in scope.spans
                ]

    def _take_metrics(self, request: Any) -> None:
        for of_resource in request.resource_metrics:
            self.resources.append(_values(of_resource.resource.attributes))
            for scope in of_resource.scope_metrics:
                self.metrics |= {metric.name: metric for metric in scope.metrics}


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@contextmanager
def receiving(host: str = "127.0.0.1") -> Iterator[Receiver]:
    """Receive until the block ends.

    Args:
        host: The address of this machine at which the senders reach it.
    """
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.headers = dict(self.headers)
            receiver.take(self.path, gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *_: Any) -> None:  # noqa: A002 - the name in the base class
            pass

    server = ThreadingHTTPServer((host, 0), Handler)
    receiver.url = f"http://{host}:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
