"""The clocks of the world: only the loop's time is real, and no process of the system can read it."""

import random
from datetime import UTC, datetime, timedelta

from tests.simulation.virtualloop import VirtualLoop

BEGIN = datetime(2026, 3, 14, 15, 0, tzinfo=UTC)
SKEW_MAX = 90.0
"""How far the local clock may be off, either way: far more than NTP allows, less than a time zone."""

SERVER_SKEW_MAX = 20.0
CONTROLLER_SKEW_MAX = 2.0


class Clocks:
    """The API server's clock, which never steps; this process's, which does; and the controllers', who write statuses.

    The timer engine may stand on another node than `expire`, so its clock is a little off from the process's.
    """

    def __init__(self, loop: VirtualLoop, rng: random.Random) -> None:
        self._loop = loop
        self._server = rng.uniform(-SERVER_SKEW_MAX, SERVER_SKEW_MAX)
        self._local = rng.choice((0.0, rng.uniform(-0.2, 0.2), rng.uniform(-5, 5), rng.uniform(-SKEW_MAX, SKEW_MAX)))
        self._timers = rng.choice((0.0, 0.0, rng.uniform(-0.5, 0.5), rng.uniform(-5, 5)))
        self._controller = rng.uniform(0, CONTROLLER_SKEW_MAX)

    def server(self) -> datetime:
        return self._at(self._server)

    def local(self) -> datetime:
        return self._at(self._local)

    def timers(self) -> datetime:
        return self._at(self._local + self._timers)

    def controller(self) -> datetime:
        """Never behind the API server's: a finish before the creation would count as unknown."""
        return self._at(self._server + self._controller)

    def step(self, seconds: float) -> None:
        """Set the local clock forward or back."""
        self._local = max(-SKEW_MAX, min(SKEW_MAX, self._local + seconds))

    @property
    def timers_lag_max(self) -> float:
        """Seconds that a timer may be late by the API server's clock.

        The engine's clock may be behind that one; or behind the process's, where that one had to count the rest.
        """
        return max(0.0, self._server - self._local - self._timers, -self._timers)

    def _at(self, offset: float) -> datetime:
        return BEGIN + timedelta(seconds=self._loop.time() + offset)
