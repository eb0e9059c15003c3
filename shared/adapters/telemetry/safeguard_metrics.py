"""The metrics about the breaker and the brake."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from shared.adapters.telemetry.scraping import run_in_loop
from shared.ports import Telemetry


class SafeguardMetrics:
    """The part of the metrics about the shared state of the safeguards; it passes each call on.

    Args:
        telemetry: The telemetry that receives each call.
        registry: Where the metrics are registered.
    """

    def __init__(self, telemetry: Telemetry, registry: CollectorRegistry) -> None:
        self._next = telemetry
        self._is_open = self._is_stopped = False
        self._breaker = Gauge(
            "ttl_breaker_open", "1 while the breaker is open and nothing is deleted.", registry=registry
        )
        self._stopped = Gauge("ttl_stopped", "1 while deletions are stopped by kubectl ttl stop.", registry=registry)

    def breaker(self, *, is_open: bool) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.breaker(is_open=is_open)
        self._is_open = is_open
        self._breaker.set(is_open)

    def stopped(self, *, is_stopped: bool) -> None:
        """See `shared.ports.Telemetry`."""
        self._next.stopped(is_stopped=is_stopped)
        self._is_stopped = is_stopped
        self._stopped.set(is_stopped)

    def watch_shared_state(self, read: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Read the shared state at each scrape, in the running loop; an idle process reads it at no other time.

        Args:
            read: Reads the shared state, and reports it to `breaker` and `stopped`.
        """
        loop = asyncio.get_running_loop()

        def is_open() -> float:
            run_in_loop(read, loop)
            return self._is_open

        def is_stopped() -> float:  # collected after `ttl_breaker_open`, which has read the state for both
            return self._is_stopped

        self._breaker.set_function(is_open)
        self._stopped.set_function(is_stopped)
