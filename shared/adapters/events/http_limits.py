"""Uvicorn's httptools protocol with limits on each request, enforced before the function reads a token.

httptools has no limits: 60 MiB of headers enlarge a process by 765 MiB. h11 limits headers only, and costs `schedule`
24 % of its requests per CPU second; these limits cost 6 to 9 % (`python -m tests.benchmarks.front`). So this module
adds limits to the faster parser. Start each uvicorn process with

    --http shared.adapters.events.http_limits:LimitedHttp

The answers to a request that exceeds a limit:

    a head larger than HEADER_BYTES_MAX, or with more headers than HEADERS_MAX    431
    a request larger than REQUEST_BYTES_MAX                                       413
    a request that is incomplete after REQUEST_READ_SECONDS_MAX                   408
    a client that does not read answers for REQUEST_READ_SECONDS_MAX              the connection is closed
    requests that exceed READING_BYTES_MAX in total                               503 to the largest incomplete one
    more connections than CLIENT_CONNECTIONS_MAX                                  the longest idle one is closed

Knative retries an event after 408 and 503, but not after 413 and 431. The connection that uses most of a limit is
refused first: small complete events are answered while other clients send slowly.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any
from weakref import WeakKeyDictionary

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

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


class _ServerLoad:
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


def _refusal_of(status: HTTPStatus) -> bytes:
    """Return the whole HTTP answer with a status, its reason as text, and `connection: close`."""
    text = f"{_REASONS[status]}\n".encode()
    again = b"retry-after: 1\r\n" if status is HTTPStatus.SERVICE_UNAVAILABLE else b""
    kind = b"content-type: text/plain; charset=utf-8\r\n"
    length = b"content-length: %d\r\n" % len(text)
    return STATUS_LINE[status] + again + kind + length + b"connection: close\r\n\r\n" + text


class _RefusedError(Exception):
    """Stops the parser; httptools reports it as an error of the request."""


_loads: WeakKeyDictionary[ServerState, _ServerLoad] = WeakKeyDictionary()


class LimitedHttp(HttpToolsProtocol):
    """An HTTP connection with limits.

    Attributes:
        held: Bytes of the requests that are being read or are not answered yet.
        is_reading: A request has begun and is incomplete.
        is_refused: The connection is about to be closed.
        was_answered: At least one request was answered.
        waits_since: The time of the last answer, or of the opening; seconds of the loop's clock.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._load = _loads.setdefault(self.server_state, _ServerLoad())
        self.held = 0
        self._head_bytes = 0
        self.is_reading = self._is_in_head = self.was_answered = self.is_refused = False
        self.waits_since = 0.0
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Above `CLIENT_CONNECTIONS_MAX`, close the longest idle connection; this one if all others are in use."""
        super().connection_made(transport)
        self.waits_since = self.loop.time()
        # uvicorn has no timeout for the first byte of a connection.
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
        if len(self.connections) > CLIENT_CONNECTIONS_MAX:
            self._longest_waiting().refuse(HTTPStatus.SERVICE_UNAVAILABLE)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the bytes and timers of this connection."""
        self._release()
        self._unset_deadline()
        self._unset_keepalive_if_required()  # after a reset, the timer would keep this object in memory
        if self._unread:
            self._unread.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count and parse the bytes, then check the limits of an incomplete request."""
        self.held += len(data)
        self._load.held += len(data)
        super().data_received(data)
        if self.is_refused:
            return
        if self.is_reading and self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_READ_SECONDS_MAX, self._on_deadline)
        elif self._deadline and not self.is_reading:
            self._unset_deadline()
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEADER_BYTES_MAX:
                self.refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if self.held > REQUEST_BYTES_MAX:
            self.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if self._load.held > READING_BYTES_MAX:
            self._largest_incomplete().refuse(HTTPStatus.SERVICE_UNAVAILABLE)

    def on_message_begin(self) -> None:
        """See httptools."""
        self.is_reading = self._is_in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """See httptools. A head that exceeds a limit starts no application."""
        self._is_in_head = False
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > HEADER_BYTES_MAX or len(self.headers) > HEADERS_MAX:
            self._stop(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if len(self.pipeline) >= PIPELINED_MAX:
            self._stop(HTTPStatus.SERVICE_UNAVAILABLE)
        super().on_headers_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools, which calls this for the trailers of a chunked body too."""
        if len(self.headers) > HEADERS_MAX:
            self._stop(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        super().on_header(name, value)

    def on_message_complete(self) -> None:
        """See httptools. A body that follows an early answer is not kept."""
        self.is_reading = False
        if self.cycle is not None and self.cycle.response_complete:
            self._release()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """See uvicorn."""
        super().on_response_complete()
        self.was_answered = True
        self.waits_since = self.loop.time()
        if not self.pipeline:
            self._release()

    def pause_writing(self) -> None:
        """See uvicorn. A client that does not read answers uses a connection and memory."""
        super().pause_writing()
        self._unread = self.loop.call_later(REQUEST_READ_SECONDS_MAX, self.transport.abort)

    def resume_writing(self) -> None:
        """See uvicorn."""
        super().resume_writing()
        if self._unread:
            self._unread.cancel()

    def send_400_response(self, msg: str) -> None:
        """See uvicorn; send no 400 if this class stopped the parser."""
        if not self.is_refused:
            super().send_400_response(msg)

    def refuse(self, status: HTTPStatus) -> None:
        """Answer with a status and close; do not answer if another answer is in progress or no request has begun."""
        if self.is_refused or self.transport.is_closing():
            return
        self.is_refused = True
        cycle = self.cycle
        is_answering = cycle is not None and cycle.response_started and not cycle.response_complete
        if (self.is_reading or self.held) and not is_answering:
            self._load.report(status, self.loop.time())
            self.transport.write(_refusal_of(status))
        if cycle is not None and not cycle.response_complete:  # signals a disconnect to the function
            cycle.disconnected = True
            cycle.body = bytearray()
            cycle.message_event.set()
        self._release()
        self._unset_deadline()
        self.transport.close()
        self.loop.call_later(REQUEST_LATE_SECONDS, self.transport.abort)  # for a client that does not read

    def _stop(self, status: HTTPStatus) -> None:
        self.refuse(status)
        raise _RefusedError

    def _should_upgrade_to_ws(self) -> bool:
        return False  # functions use no WebSockets, and another protocol would have no limits

    def is_waiting(self) -> bool:
        """Return whether the connection waits for its client, and no function works on a request of it."""
        return self.is_reading or self.cycle is None or self.cycle.response_complete

    def _longest_waiting(self) -> "LimitedHttp":
        """Return the longest idle connection, those without any answer first; this one if all others are in use."""
        waiting = [one for one in self.connections if isinstance(one, LimitedHttp) and one.is_waiting()]
        others = [one for one in waiting if one is not self and not one.is_refused]
        return min(others, key=lambda one: (one.was_answered, one.waits_since), default=self)

    def _largest_incomplete(self) -> "LimitedHttp":
        """Return the largest incomplete request's connection; this one if all requests are complete."""
        reading = [one for one in self.connections if isinstance(one, LimitedHttp) and one.is_reading]
        return max(reading, key=lambda one: one.held, default=self)

    def _on_deadline(self) -> None:
        self._deadline = self.loop.call_later(REQUEST_LATE_SECONDS, self.refuse, HTTPStatus.REQUEST_TIMEOUT)

    def _unset_deadline(self) -> None:
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None

    def _release(self) -> None:
        self._load.held -= self.held
        self.held = 0


class InProcessServer(uvicorn.Server):
    """A uvicorn server inside another program, to which it leaves the signals."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture no signals."""
        yield
