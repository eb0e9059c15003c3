"""Limits of HTTP requests: the values, the answer to a request that exceeds one, and its log line.

    a head larger than HEADER_BYTES_MAX, or with more headers than HEADERS_MAX    431
    a request larger than REQUEST_BYTES_MAX                                       413
    a request that is incomplete after REQUEST_READ_SECONDS_MAX                           408
    a client that does not read answers for REQUEST_READ_SECONDS_MAX                      the connection is closed
    requests that exceed READING_BYTES_MAX in total                               503 to the largest incomplete one
    more connections than CLIENT_CONNECTIONS_MAX                                         the longest idle one is closed

Knative retries an event after 408 and 503, but not after 413 and 431. The connection that uses most of a limit is
refused first: small complete events are answered while other clients send slowly.
"""

import logging
from collections import Counter
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from shared.adapters.events.cloudevents import EVENT_BYTES_MAX

HEADER_BYTES_MAX = 64 * 1024
"""Maximum size of a request line with its headers. An incomplete head is checked after each read of up to 256 KiB."""

HEADERS_MAX = 128
"""Maximum number of headers of a request: Envoy's default is 100, and Knative's components add a few."""

REQUEST_BYTES_MAX = HEADER_BYTES_MAX + EVENT_BYTES_MAX + 1024 * 1024
"""Maximum size of a request on the wire, chunk framing included. A function rejects too large a body before this."""

READING_BYTES_MAX = 16 * 1024 * 1024
"""Maximum total size of the requests that a process reads or has not answered; each byte is three times in memory."""

REQUEST_READ_SECONDS_MAX = 20.0
"""Maximum time from the first byte of a request to its last; less than the 25 s of a graceful shutdown."""

REQUEST_LATE_SECONDS = 1.0
"""Extra time after a deadline, so that bytes that arrived while this process was busy still count."""

CLIENT_CONNECTIONS_MAX = 512
"""Maximum number of connections: far more than the requests that one process answers at once."""

PIPELINED_MAX = 8
"""Maximum number of pipelined requests on one connection; this project's clients send none."""

REPORT_SECONDS = 10.0
"""Minimum time between two log lines: a flood of requests must not fill the disk."""

_REASONS = {
    HTTPStatus.REQUEST_TIMEOUT: f"expected the whole request within {REQUEST_READ_SECONDS_MAX:g} s",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: f"expected a request of at most {REQUEST_BYTES_MAX} bytes",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: (
        f"expected at most {HEADERS_MAX} headers of at most {HEADER_BYTES_MAX} bytes in total"
    ),
    HTTPStatus.SERVICE_UNAVAILABLE: "too many requests, connections or bytes at once; retry the request later",
}

_log = logging.getLogger("ttl")


class ServerLoad:
    """The state that all connections of one server share.

    Attributes:
        held: Bytes of the requests that are being read or are not answered yet.
    """

    def __init__(self) -> None:
        self.held = 0
        self._refused: Counter[int] = Counter()
        self._quiet_until = 0.0

    def report(self, status: HTTPStatus, at: float) -> None:
        """Log a refused request: the first one at once, later ones as counts, every `REPORT_SECONDS` at most."""
        self._refused[status.value] += 1
        if at >= self._quiet_until:
            self._quiet_until = at + REPORT_SECONDS
            fields = {"status": status.value, "why": _REASONS[status], "refused": dict(self._refused)}
            _log.warning("request refused before it was read", extra={"fields": fields})
            self._refused.clear()


def refusal_of(status: HTTPStatus) -> bytes:
    """Return the whole HTTP answer with a status, its reason as text, and `connection: close`."""
    text = f"{_REASONS[status]}\n".encode()
    again = b"retry-after: 1\r\n" if status is HTTPStatus.SERVICE_UNAVAILABLE else b""
    kind = b"content-type: text/plain; charset=utf-8\r\n"
    length = b"content-length: %d\r\n" % len(text)
    return STATUS_LINE[status] + again + kind + length + b"connection: close\r\n\r\n" + text
