"""Start and stop the timer engine of a process."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from shared.adapters.config.settings import Settings
from shared.ports import Clock, Publisher, Timers

if TYPE_CHECKING:
    from shared.adapters.timers.sqlite import SqliteTimers

TIMERS_PATH = Path("timers.db")
"""The SQLite file of the timers if TTL_TIMERS_PATH is empty."""


class TimerEngine:
    """The SQLite timer engine, running as a task of the event loop; it can be started again after it was stopped.

    Args:
        settings: The settings, with the path of the SQLite file.
        clock: The clock.
        timers: Another engine that already runs, if any.

    Attributes:
        timers: The timers; None if the engine is not running.
    """

    def __init__(self, settings: Settings, clock: Clock, timers: Timers | None = None) -> None:
        self.timers = timers
        self._settings, self._clock = settings, clock
        self._running: tuple[SqliteTimers, asyncio.Task[None]] | None = None

    def start(self, publisher: Publisher) -> Timers:
        """Start the engine in the running loop, if it is not running.

        Args:
            publisher: Publishes the timers that fire.
        """
        if self.timers is None:
            from shared.adapters.timers.sqlite import SqliteTimers  # noqa: PLC0415 - only `timers` keeps timers

            timers = SqliteTimers(self._settings.timers_path or TIMERS_PATH, self._clock, publisher)
            self._running = timers, asyncio.get_running_loop().create_task(timers.run(), name="timers")
            self.timers = timers
        return self.timers

    async def ended(self) -> None:
        """Wait until the engine ends, and raise the error that ended it; return at once if it is not running."""
        if self._running:
            await asyncio.shield(self._running[1])

    async def stop(self) -> None:
        """Finish the deliveries in flight, and close the file."""
        if self._running:
            timers, task = self._running
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await timers.close()  # a task that is cancelled before its first step closes nothing
            self._running = self.timers = None
