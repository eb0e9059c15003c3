"""HTTP as our processes serve it: uvicorn's httptools protocol, with limits that hold before any token is looked at.

httptools has no limit of its own: 60 MiB of headers make a process 765 MiB larger. h11 has one, for headers alone, and
costs `schedule` 24 % of its requests a CPU second; these limits cost 6 to 9 % (`python -m tests.benchmarks.front`).
So the faster parser gets limits, in bytes, counts and seconds:

    a head larger than HEADER_BYTES_MAX, or of more headers than HEADERS_MAX    431
    a request larger than REQUEST_BYTES_MAX                                     413
    a request that is not complete after READ_SECONDS_MAX                       408
    answers that are not read for READ_SECONDS_MAX                              the connection is closed
    more than READING_BYTES_MAX of all requests of the process                  503 to the largest incomplete one
    more than CONNECTIONS_MAX                                                   the one that waits longest is closed

Knative sends an event again after 408 and 503, and not after 413 and 431. The connection that fills a limit is refused
first: a small event that comes at once is answered while others hold back theirs. Start every uvicorn with

    --http shared.adapters.events.http_limits:LimitedHttp
"""

import asyncio
import logging
from collections import Counter
from http import HTTPStatus
from typing import Any
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from shared.adapters.events.cloudevents import BODY_BYTES_MAX

HEADER_BYTES_MAX = 64 * 1024
"""Of a request line and its headers. A head that is not complete is looked at after each read, of 256 KiB at most."""

HEADERS_MAX = 128
"""Of a request: Envoy takes 100 unless it is told otherwise, and Knative's parts add a few."""

REQUEST_BYTES_MAX = HEADER_BYTES_MAX + BODY_BYTES_MAX + 1024 * 1024
"""Of a request on the wire, with what frames the chunks of a body. A function refuses a body too large before this."""

READING_BYTES_MAX = 16 * 1024 * 1024
"""Of all requests that are read or not answered yet, in the whole process; in memory each byte is there three times."""

READ_SECONDS_MAX = 20.0
"""From the first byte of a request to its last; less than the 25 s that an end of the process leaves a request."""

LATE_SECONDS = 1.0
"""Longer than a deadline, so that what came while this process was busy is read before it counts as late."""

CONNECTIONS_MAX = 512
"""Twice what the runner's broker opens: 64 for each of four Triggers."""

PIPELINED_MAX = 8
"""Requests that wait on one connection for the answer of the one before: no client of ours sends any."""

REPORT_SECONDS = 10.0
"""At most one line of the log in so many seconds: a flood must not fill the disk too."""

_REASONS = {
    HTTPStatus.REQUEST_TIMEOUT: f"expected the whole request within {READ_SECONDS_MAX:g} s",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: f"expected at most {REQUEST_BYTES_MAX} bytes of a request",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: (
        f"expected at most {HEADER_BYTES_MAX} bytes of headers, and at most {HEADERS_MAX} of them"
    ),
    HTTPStatus.SERVICE_UNAVAILABLE: "too many requests, connections or bytes at once: send the request again later",
}

_log = logging.getLogger("ttl")


class _RefusedError(Exception):
    """Ends the parsing of what was read; the parser passes it on as an error of the request."""


class _Door:
    """What all connections of a server share.

    Attributes:
        held: Bytes of requests that are read or not answered yet.
    """

    def __init__(self) -> None:
        self.held = 0
        self._refused: Counter[int] = Counter()
        self._quiet_until = 0.0

    def report(self, status: HTTPStatus, at: float) -> None:
        """One line for the first, and later one for all since the line before."""
        self._refused[status.value] += 1
        if at >= self._quiet_until:
            self._quiet_until = at + REPORT_SECONDS
            fields = {"status": status.value, "why": _REASONS[status], "refused": dict(self._refused)}
            _log.warning("request refused before it was read", extra={"fields": fields})
            self._refused.clear()


_doors: WeakKeyDictionary[ServerState, _Door] = WeakKeyDictionary()


class LimitedHttp(HttpToolsProtocol):
    """A connection.

    Attributes:
        held: Bytes of requests that are read or not answered yet.
        is_reading: A request has begun, and is not complete.
        is_refused: It is about to be closed.
        was_answered: At least one request was.
        waits_since: When it was opened, or answered the last time; seconds of the loop's clock.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._door = _doors.setdefault(self.server_state, _Door())
        self.held = 0
        self._head_bytes = 0
        self.is_reading = self._is_in_head = self.was_answered = self.is_refused = False
        self.waits_since = 0.0
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close the one that waits longest where there are too many; this one, where all the others work."""
        super().connection_made(transport)
        self.waits_since = self.loop.time()
        # uvicorn waits for ever for the first byte of a connection.
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
        if len(self.connections) > CONNECTIONS_MAX:
            self._longest_waiting().refuse(HTTPStatus.SERVICE_UNAVAILABLE)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give back what was held."""
        self._release()
        self._unset_deadline()
        self._unset_keepalive_if_required()  # it would keep this object for as long, where the sender reset
        if self._unread:
            self._unread.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count, parse, and see whether what is still incomplete is within the limits."""
        self.held += len(data)
        self._door.held += len(data)
        super().data_received(data)
        if self.is_refused:
            return
        if self.is_reading and self._deadline is None:
            self._deadline = self.loop.call_later(READ_SECONDS_MAX, self._on_deadline)
        elif self._deadline and not self.is_reading:
            self._unset_deadline()
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEADER_BYTES_MAX:
                self.refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if self.held > REQUEST_BYTES_MAX:
            self.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if self._door.held > READING_BYTES_MAX:
            self._largest_incomplete().refuse(HTTPStatus.SERVICE_UNAVAILABLE)

    def on_message_begin(self) -> None:
        """See the parser."""
        self.is_reading = self._is_in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """See the parser. No application is started for a head that is too large."""
        self._is_in_head = False
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > HEADER_BYTES_MAX or len(self.headers) > HEADERS_MAX:
            self._stop(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if len(self.pipeline) >= PIPELINED_MAX:
            self._stop(HTTPStatus.SERVICE_UNAVAILABLE)
        super().on_headers_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        """See the parser, which also calls this for the trailers of a chunked body."""
        if len(self.headers) > HEADERS_MAX:
            self._stop(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        super().on_header(name, value)

    def on_message_complete(self) -> None:
        """See the parser. What came after an early answer was not kept."""
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
        """See uvicorn. Answers that are not read take a place and memory as well."""
        super().pause_writing()
        self._unread = self.loop.call_later(READ_SECONDS_MAX, self.transport.abort)

    def resume_writing(self) -> None:
        """See uvicorn."""
        super().resume_writing()
        if self._unread:
            self._unread.cancel()

    def send_400_response(self, msg: str) -> None:
        """What cannot be parsed; nothing more where it is us who stopped the parser."""
        if not self.is_refused:
            super().send_400_response(msg)

    def refuse(self, status: HTTPStatus) -> None:
        """Answer with a status, unless an answer is under way or nothing was asked, and close the connection."""
        if self.is_refused or self.transport.is_closing():
            return
        self.is_refused = True
        cycle = self.cycle
        is_answering = cycle is not None and cycle.response_started and not cycle.response_complete
        if (self.is_reading or self.held) and not is_answering:
            self._door.report(status, self.loop.time())
            self.transport.write(_response(status))
        if cycle is not None and not cycle.response_complete:  # its function learns that the sender is gone
            cycle.disconnected = True
            cycle.body = bytearray()
            cycle.message_event.set()
        self._release()
        self._unset_deadline()
        self.transport.close()
        self.loop.call_later(LATE_SECONDS, self.transport.abort)  # a sender that does not read, either

    def _stop(self, status: HTTPStatus) -> None:
        self.refuse(status)
        raise _RefusedError

    def _should_upgrade_to_ws(self) -> bool:
        return False  # no function has WebSockets, and another protocol would have no limits

    def is_waiting(self) -> bool:
        """Whether it waits for its sender, and no function works for it."""
        return self.is_reading or self.cycle is None or self.cycle.response_complete

    def _longest_waiting(self) -> "LimitedHttp":
        """First those that have never sent a whole request; this connection where all others work."""
        waiting = [one for one in self.connections if isinstance(one, LimitedHttp) and one.is_waiting()]
        others = [one for one in waiting if one is not self and not one.is_refused]
        return min(others, key=lambda one: (one.was_answered, one.waits_since), default=self)

    def _largest_incomplete(self) -> "LimitedHttp":
        """This connection where all requests are complete."""
        reading = [one for one in self.connections if isinstance(one, LimitedHttp) and one.is_reading]
        return max(reading, key=lambda one: one.held, default=self)

    def _on_deadline(self) -> None:
        self._deadline = self.loop.call_later(LATE_SECONDS, self.refuse, HTTPStatus.REQUEST_TIMEOUT)

    def _unset_deadline(self) -> None:
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None

    def _release(self) -> None:
        self._door.held -= self.held
        self.held = 0


def _response(status: HTTPStatus) -> bytes:
    text = f"{_REASONS[status]}\n".encode()
    again = b"retry-after: 1\r\n" if status is HTTPStatus.SERVICE_UNAVAILABLE else b""
    kind = b"content-type: text/plain; charset=utf-8\r\n"
    length = b"content-length: %d\r\n" % len(text)
    return STATUS_LINE[status] + again + kind + length + b"connection: close\r\n\r\n" + text
