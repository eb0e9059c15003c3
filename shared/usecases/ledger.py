"""What stands, as this process knows it: read at most every few seconds, and written when something trips."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from shared.errors import PermanentError, TtlError
from shared.ports import Clock, State, Telemetry
from shared.usecases.recreation import NAMES_MAX
from shared.usecases.standing import NAME, OPEN, Standing, Tell, Trip, parse_standing, with_loop, with_trip

CACHED_SECONDS = 5.0
"""How long what was read counts: so long after one process tripped, another may go on deleting."""

TROUBLED_SECONDS = 1.0
"""How long it counts that the API server was busy or away: not everybody need ask it at once."""


@dataclass(frozen=True, slots=True)
class Instruments:
    """What tells the time, and whom it is reported to.

    Attributes:
        clock: For times that people read.
        monotonic: Seconds that never jump.
        telemetry: Told of waits, loops, an open breaker, and what cannot be read or written.
    """

    clock: Clock
    monotonic: Callable[[], float]
    telemetry: Telemetry


class Ledger:
    """The shared state and, where there is none or it cannot be written, this process's own.

    Args:
        state: Where it is shared; None where this process has it to itself.
        instruments: Clocks and telemetry.
        tell: Writes a Kubernetes Event about the installation.
        namespace: Where the state is.

    Attributes:
        releases: How often this process has heard of a release.
    """

    def __init__(self, state: State | None, instruments: Instruments, *, tell: Tell, namespace: str = "") -> None:
        self._state, self._tell, self._namespace = state, tell, namespace
        self._clock, self._monotonic = instruments.clock, instruments.monotonic
        self._telemetry = instruments.telemetry
        self._standing = Standing()
        self._fresh_until: float | None = None
        self._error: TtlError | None = None
        self._unwritten: Trip | None = None
        self._reading = asyncio.Lock()
        self._reported = ""
        self.releases = 0

    @property
    def how_to_release(self) -> str:
        """For people, wherever an open breaker is told of."""
        if self._state is None:
            return "see what wanted to be deleted, then start this process anew"
        return f"see what wanted to be deleted, then `kubectl ttl release --breaker -n {self._namespace}`"

    async def is_open(self) -> bool:
        """Whether nothing may be deleted: read anew where it was so lately, and not at all where nothing tripped."""
        if self._standing.trip is not None and self._state is not None:
            async with self._reading:
                await self._refresh(self._state)
            self._telemetry.breaker(is_open=self._standing.trip is not None)
        return self._standing.trip is not None

    async def read(self, *, demand: bool) -> Standing | None:
        """What stands; what was read lately counts.

        Args:
            demand: Whether nothing may be done without knowing.

        Returns:
            None where it is demanded and may not be read.

        Raises:
            TryLaterError: It is demanded, and cannot be read now.
        """
        if self._state is not None and not self._is_fresh():
            async with self._reading:
                if not self._is_fresh():  # nobody else read it meanwhile
                    await self._refresh(self._state)
        self._telemetry.breaker(is_open=self._standing.trip is not None)
        if demand and self._error:
            if isinstance(self._error, PermanentError):
                return None
            raise self._error
        return self._standing

    async def trip(self, why: str, *, by: str) -> None:
        """Open the breaker: here at once, and for all others as soon as it is written; tell it once."""
        if self._standing.trip:
            return
        trip = Trip(self._clock.now().replace(microsecond=0), why, by)
        self._standing = Standing(trip, self._standing.loops)
        self._telemetry.breaker(is_open=True)
        self._telemetry.problem("the breaker is open", why=why, by=by, then=self.how_to_release)
        if self._state is None:
            await self._tell_open(trip)
            return
        self._unwritten = trip
        async with self._reading:
            await self._refresh(self._state)

    async def leave_alone(self, name: str, until: datetime) -> None:
        """Remember a name that is in a loop, here and for a restart."""
        now = self._clock.now()
        loops = {one: at for one, at in self._standing.loops.items() if at > now}
        while len(loops) >= NAMES_MAX:
            del loops[min(loops, key=loops.__getitem__)]
        self._standing = Standing(self._standing.trip, {**loops, name: until})
        if self._state is None:
            return
        try:
            await self._state.write(lambda data: with_loop(data, name, until, now))
        except TtlError as error:
            self._report("could not write the state", error)

    async def _refresh(self, state: State) -> None:
        """Read what stands; what this process has to say and could not write yet is written first."""
        unwritten, now = self._unwritten, self._clock.now()
        try:
            data = await (state.write(lambda data: with_trip(data, unwritten)) if unwritten else state.read())
        except TtlError as error:
            self._error = error
            lasts = CACHED_SECONDS if isinstance(error, PermanentError) else TROUBLED_SECONDS
            self._fresh_until = self._monotonic() + lasts
            self._report("could not write the state" if unwritten else "could not read the state", error)
            return
        self._error, self._unwritten, self._reported = None, None, ""
        self._fresh_until = self._monotonic() + CACHED_SECONDS
        found = parse_standing(data)
        own = {name: at for name, at in self._standing.loops.items() if at > now}
        if self._standing.trip is not None and found.trip is None:
            self.releases += 1
            self._telemetry.problem("the breaker is released", configmap=NAME)
        self._standing = Standing(found.trip, {**own, **found.loops})
        if unwritten and found.trip == unwritten:  # who was first tells it
            await self._tell_open(unwritten)

    async def _tell_open(self, trip: Trip) -> None:
        try:
            await self._tell(OPEN, f"nothing is deleted {trip}; {self.how_to_release}", "Warning")
        except TtlError as error:  # it is open, told or not
            self._telemetry.problem("could not write an Event", error=str(error))

    def _is_fresh(self) -> bool:
        return self._fresh_until is not None and self._monotonic() < self._fresh_until

    def _report(self, what: str, error: TtlError) -> None:
        """Once, not at every look, for as long as it is the same."""
        if str(error) != self._reported:
            self._reported = str(error)
            self._telemetry.problem(what, configmap=NAME, error=str(error))
