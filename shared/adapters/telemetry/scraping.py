"""The port of the metrics, and what is asked at each scrape, in the running loop, from the thread that answers it."""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from datetime import datetime
from functools import partial
from socketserver import ThreadingMixIn
from threading import Lock, Thread
from typing import Any, TypeVar
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from shared.errors import TtlError
from shared.ports import CountedTimers

SECONDS_MAX = 2.0
"""A scrape waits no longer for an answer; then it goes without."""

SCRAPES_MAX = 8
"""Connections of the metrics' port at once; one more closes the oldest. Each has a thread and up to 7 MB of headers."""

SCRAPE_SECONDS = 10.0
"""For each read of a request, and each write of an answer; Prometheus itself waits 10 s for the whole."""

_T = TypeVar("_T")


def serve_registry(registry: CollectorRegistry, port: int, address: str) -> Callable[[], None]:
    """Serve metrics from a thread.

    Returns:
        What ends it.

    Raises:
        OSError: The port is taken.
    """
    server = make_server(address, port, make_wsgi_app(registry), _Server, _Handler)
    thread = Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return close


class _Handler(WSGIRequestHandler):
    timeout = SCRAPE_SECONDS

    def log_message(self, format: str, *_: Any) -> None:  # noqa: A002 - its name there
        """Log no request."""


class _Server(ThreadingMixIn, WSGIServer):
    """One thread a connection; a connection that sends nothing holds a place for a moment only."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, *args: Any, **options: Any) -> None:
        self._open: dict[int, socket.socket] = {}
        self._lock = Lock()
        super().__init__(*args, **options)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Close the oldest connection where there are too many, and answer this one."""
        with self._lock:
            self._open[id(request)] = request
            if len(self._open) > SCRAPES_MAX:
                oldest = self._open.pop(next(iter(self._open)))
                with suppress(OSError):  # its thread reads the end, and ends
                    oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Give back the place of a connection."""
        with self._lock:
            self._open.pop(id(request), None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: a sender that breaks off is no error of ours."""


class CountsTimers(Collector):
    """Counts the pending timers.

    Args:
        timers: The engine of the moment, if there is one.
        loop: The engine's own.
    """

    def __init__(self, timers: Callable[[], object], loop: asyncio.AbstractEventLoop) -> None:
        self._timers = timers
        self._loop = loop

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """How many there are, and when the next one fires; nothing where that cannot be told now."""
        timers = self._timers()
        counted = ask(partial(_count, timers), self._loop) if isinstance(timers, CountedTimers) else None
        if counted is None:
            return
        pending, next_due = counted
        yield GaugeMetricFamily("ttl_timers_pending", "Timers that are pending.", pending)
        if next_due:
            about = "When the next timer fires or is tried again. In the past, if it is overdue."
            yield GaugeMetricFamily("ttl_timers_next_due_timestamp_seconds", about, next_due.timestamp())


def ask(question: Callable[[], Coroutine[Any, Any, _T]], loop: asyncio.AbstractEventLoop) -> _T | None:
    """The answer from another thread's loop; None where it comes too late, or not at all."""
    if loop.is_closed():
        return None
    asking = asyncio.run_coroutine_threadsafe(question(), loop)
    try:
        return asking.result(SECONDS_MAX)
    except (TtlError, RuntimeError, TimeoutError, CancelledError):  # busy, or about to end
        asking.cancel()
        return None


async def _count(timers: CountedTimers) -> tuple[int, datetime | None]:
    return await timers.pending(), await timers.next_due()
