"""Start and stop the timer engine of a process."""

import asyncio
from contextlib import suppress
from pathlib import Path

from shared.adapters.config.settings import Settings
from shared.ports import Clock, Publisher

TIMERS_PATH = Path("timers.db")
"""The SQLite file of the timers if TTL_TIMERS_PATH is empty."""


class TimerEngine:
    """The SQLite timer engine, running as a task of the event loop.

    Args:
        settings: The settings, with the path of the SQLite file.
        clock: The clock.
        publisher: Publishes the timers that fire.
    """

    def __init__(self, settings: Settings, clock: Clock, publisher: Publisher) -> None:
        from shared.adapters.timers.sqlite import SqliteTimers  # noqa: PLC0415 - only `timers` keeps timers

        self.timers = SqliteTimers(settings.timers_path or TIMERS_PATH, clock, publisher)
        self._task = asyncio.get_running_loop().create_task(self.timers.run(), name="timers")

    async def ended(self) -> None:
        """Wait until the engine ends, and raise the error that ended it. Without an error it runs until `stop`."""
        await asyncio.shield(self._task)

    async def stop(self) -> None:
        """Finish the deliveries in flight, and close the file."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self.timers.close()  # a task that is cancelled before its first step closes nothing
