"""The HTTP server for metrics, and values that are read from the running loop at each scrape."""

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

SCRAPED_VALUE_SECONDS_MAX = 2.0
"""Maximum time that a scrape waits for a value; then it leaves the value out."""

SCRAPES_MAX = 8
"""Maximum number of connections; one more closes the oldest. Each has a thread and up to 7 MB of headers."""

SCRAPE_SECONDS = 10.0
"""Timeout of each read of a request and each write of an answer; Prometheus itself waits 10 s for a scrape."""

_T = TypeVar("_T")


def serve_registry(registry: CollectorRegistry, port: int, address: str) -> Callable[[], None]:
    """Serve metrics from a thread.

    Returns:
        A function that stops the server.

    Raises:
        OSError: The port is in use.
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

    def log_message(self, format: str, *_: Any) -> None:  # noqa: A002 - the name in the base class
        """Do not log requests."""


class _Server(ThreadingMixIn, WSGIServer):
    """One thread per connection; `SCRAPES_MAX` limits the connections that send nothing."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, *args: Any, **options: Any) -> None:
        self._open: dict[int, socket.socket] = {}
        self._lock = Lock()
        super().__init__(*args, **options)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection; above `SCRAPES_MAX`, close the oldest one first."""
        with self._lock:
            self._open[id(request)] = request
            if len(self._open) > SCRAPES_MAX:
                oldest = self._open.pop(next(iter(self._open)))
                with suppress(OSError):  # its thread then reads the end of the stream and ends
                    oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Stop counting a connection."""
        with self._lock:
            self._open.pop(id(request), None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do not log an error: a client that disconnects is not an error of this process."""


class PendingTimersCollector(Collector):
    """Counts the pending timers at each scrape.

    Args:
        timers: Returns the timer engine, or another value if there is none yet.
        loop: The event loop of the engine.
        engine: The name of the engine.
    """

    def __init__(self, timers: Callable[[], object], loop: asyncio.AbstractEventLoop, engine: str) -> None:
        self._timers, self._loop, self._engine = timers, loop, engine

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the engine, the number of timers and the time of the next one; no number if it does not answer now."""
        timers = self._timers()
        if timers is not None:
            about = "1, with the name of the timer engine."
            info = GaugeMetricFamily("ttl_timer_engine_info", about, labels=["engine"])
            info.add_metric([self._engine], 1)
            yield info
        counted = run_in_loop(partial(_count, timers), self._loop) if isinstance(timers, CountedTimers) else None
        if counted is None:
            return
        pending, next_due = counted
        yield GaugeMetricFamily("ttl_timers_pending", "Timers that are pending.", pending)
        if next_due:
            about = "When the next timer fires or is tried again. In the past, if overdue. On NATS: only if overdue."
            yield GaugeMetricFamily("ttl_timers_next_due_timestamp_seconds", about, next_due.timestamp())


def run_in_loop(query: Callable[[], Coroutine[Any, Any, _T]], loop: asyncio.AbstractEventLoop) -> _T | None:
    """Run a query in the loop of another thread; return None if it fails or exceeds `SCRAPED_VALUE_SECONDS_MAX`."""
    if loop.is_closed():
        return None
    running = asyncio.run_coroutine_threadsafe(query(), loop)
    try:
        return running.result(SCRAPED_VALUE_SECONDS_MAX)
    except (TtlError, RuntimeError, TimeoutError, CancelledError):  # busy, or shutting down
        running.cancel()
        return None


async def _count(timers: CountedTimers) -> tuple[int, datetime | None]:
    return await timers.pending(), await timers.next_due()
