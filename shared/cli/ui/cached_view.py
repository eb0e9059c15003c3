"""Read the cluster for the page: at most once at a time, and not again before the view is old enough."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from shared.cli.ui.cluster_view import ClusterView


class CachedView:
    """The newest view of a cluster, for any number of readers.

    Args:
        read: Reads the cluster.
        seconds: How long a view is used. For as long again, readers get the old view while a new one is read.
        monotonic: A clock, in seconds.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[ClusterView]],
        *,
        seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._seconds, self._monotonic = read, seconds, monotonic
        self._view: ClusterView | None = None
        self._read_at = 0.0
        self._reading: asyncio.Task[ClusterView] | None = None

    async def get(self) -> ClusterView:
        """Return the view; if it is too old, wait for a new one.

        Raises:
            TtlError: The cluster cannot be read.
        """
        age = self._monotonic() - self._read_at
        if self._view is not None and age < self._seconds:
            return self._view
        reading = self._start()
        if self._view is not None and age < 2 * self._seconds:
            return self._view
        return await asyncio.shield(reading)  # a reader that leaves must not end it for the others

    async def close(self) -> None:
        """Stop reading."""
        if self._reading:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    def _start(self) -> asyncio.Task[ClusterView]:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._renew())
            self._reading.add_done_callback(_ignore_error)
        return self._reading

    async def _renew(self) -> ClusterView:
        view = await self._read()
        self._view, self._read_at = view, self._monotonic()
        return view


def _ignore_error(task: asyncio.Task[ClusterView]) -> None:
    """Mark the error of a read as seen: each reader that waits gets it, and maybe no reader waits."""
    if not task.cancelled():
        task.exception()
