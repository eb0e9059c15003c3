"""What is asked at each scrape, in the running loop, from the thread that answers it."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from shared.errors import TtlError
from shared.ports import CountedTimers

SECONDS_MAX = 2.0
"""A scrape waits no longer for an answer; then it goes without."""

_T = TypeVar("_T")


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
        yield GaugeMetricFamily("ttl_timers_pending", "Timers that have not fired.", pending)
        if next_due:
            about = "When the next timer fires, or is tried again; the past, where it should have."
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
