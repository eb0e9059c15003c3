"""What all processes know of each other: what stands, and what was deleted.

It is looked at every few seconds, and only while somebody wants to delete. Such a look is a read where this process has
nothing to add, else a read and a write of what it did since the last one. So others know of it within seconds, or when
it ends, and nothing is asked of the API server for each deletion. No object is deleted on a look that is older, or that
failed: a person may have stopped all deletions.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from shared.core.objects import format_instant
from shared.errors import PermanentError, TryLaterError, TtlError
from shared.ports import Clock, State, Telemetry
from shared.safeguards.recreation import NAMES_MAX
from shared.safeguards.state_schema import (
    NAME,
    OPEN,
    Data,
    StateContents,
    Tell,
    Trip,
    parse_standing,
    with_loop,
    with_trip,
)

CACHED_SECONDS = 3.0
"""How long a look counts, from when it was asked for: so long after a stop or a trip, another process may delete.

What is left of five seconds is for the DELETE to leave the process.
"""

TROUBLED_SECONDS = 1.0
"""How long it counts that the API server was busy or away: not everybody need ask it at once."""

FLUSH_SECONDS_MAX = 3.0
"""What the last look of a process may take."""

_UNREAD = "could not read the state"
_UNWRITTEN = "could not write the state: what this process does, no other knows"


class SharedPart(Protocol):
    """What a process counts, and the others too."""

    @property
    def has_unwritten(self) -> bool:
        """Whether this process knows something that the others do not."""
        ...

    def merge(self, data: Data, now: datetime) -> Data:
        """The data with what only this process knew. It may be asked more than once: others write, too."""
        ...

    def learn(self, data: Data, now: datetime, *, is_written: bool) -> None:
        """Take what all know.

        Args:
            data: What is there now.
            now: By the clock on the wall.
            is_written: Whether it is what `merge` made of it.
        """
        ...


@dataclass(frozen=True, slots=True)
class Runtime:
    """What tells the time, and whom it is reported to.

    Attributes:
        clock: For times that people read.
        monotonic: Seconds that never jump.
        telemetry: Told of waits, loops, an open breaker, and what cannot be read or written.
    """

    clock: Clock
    monotonic: Callable[[], float]
    telemetry: Telemetry


class SharedState:
    """The shared state and, where there is none or it cannot be written, this process's own.

    Args:
        state: Where it is shared; None where this process has it to itself.
        runtime: Clocks and telemetry.
        write_event: Writes a Kubernetes Event about the installation.
        namespace: Where the state is.

    Attributes:
        releases: How often this process has seen the breaker released, or the deletions started again.
    """

    def __init__(self, state: State | None, runtime: Runtime, *, write_event: Tell, namespace: str = "") -> None:
        self._state, self._write_event, self._namespace = state, write_event, namespace
        self._clock, self._monotonic = runtime.clock, runtime.monotonic
        self._telemetry = runtime.telemetry
        self._contents = StateContents()
        self._fresh_until: float | None = None
        self._error: TtlError | None = None
        self._unwritten: Trip | None = None
        self._shared: tuple[SharedPart, ...] = ()
        self._looking = asyncio.Lock()
        self._reported: dict[str, str] = {}
        self._is_refused = False
        self._told = ""
        self.releases = 0

    @property
    def how_to_release(self) -> str:
        """For people, wherever an open breaker is told of."""
        if self._state is None or (self._unwritten and self._is_refused):  # nobody else knows of it
            return "see what wanted to be deleted, then start this process anew"
        return f"see what wanted to be deleted, then `kubectl ttl release --breaker -n {self._namespace}`"

    def share(self, *shared: SharedPart) -> None:
        """Share these from now on, in place of those before; what others know of them is looked up at once."""
        self._shared, self._fresh_until = shared, None

    @property
    def how_to_start(self) -> str:
        """For people, wherever a stop is reported."""
        return f"`kubectl ttl start -n {self._namespace}` starts them again"

    async def look(self) -> StateContents:
        """What stands, as far as this process knows: read again where it is old, or where it keeps everything."""
        is_kept = self._contents.trip is not None or self._contents.stop is not None
        if self._state is not None and (is_kept or not self._is_fresh()):
            async with self._looking:
                await self._refresh(self._state)
        self._measure()
        return self._contents

    async def read(self) -> StateContents | None:
        """What stands, to delete by; what was read lately counts.

        Returns:
            None where it may not be read.

        Raises:
            TryLaterError: It cannot be read now, or not soon enough.
        """
        if self._state is not None and not self._is_fresh():
            async with self._looking:
                if not self._is_fresh():  # nobody else read it meanwhile
                    await self._refresh(self._state)
        self._measure()
        if isinstance(self._error, PermanentError):
            return None
        if self._error:
            raise self._error
        return self._contents

    async def trip(self, why: str, *, by: str) -> None:
        """Open the breaker: here at once, and for all others as soon as it is written; tell it once."""
        if self._contents.trip:
            return
        trip = Trip(self._clock.now().replace(microsecond=0), why, by)
        self._contents = replace(self._contents, trip=trip)
        self._unwritten = trip if self._state is not None else None
        self._telemetry.breaker(is_open=True)
        self._telemetry.problem("the breaker is open", why=why, by=by, then=self.how_to_release)
        if self._state is None:
            await self._tell_open(trip)
            return
        async with self._looking:
            await self._refresh(self._state)

    async def flush(self) -> None:
        """Write what nobody else knows yet, before this process ends; if it cannot be done soon, it is not."""
        if self._state is None or not self._has_unwritten():
            return
        try:
            async with asyncio.timeout(FLUSH_SECONDS_MAX), self._looking:
                await self._refresh(self._state)
        except TimeoutError:
            self._telemetry.problem(_UNWRITTEN, configmap=NAME, error=f"no answer within {FLUSH_SECONDS_MAX:.0f} s")

    async def leave_alone(self, name: str, until: datetime) -> None:
        """Remember a name that is in a loop, here and for a restart."""
        now = self._clock.now()
        loops = {one: at for one, at in self._contents.loops.items() if at > now}
        while len(loops) >= NAMES_MAX:
            del loops[min(loops, key=loops.__getitem__)]
        self._contents = replace(self._contents, loops={**loops, name: until})
        if self._state is None:
            return
        try:
            await self._state.write(lambda data: with_loop(data, name, until, now))
        except TtlError as error:
            self._report(_UNWRITTEN, error)

    async def _refresh(self, state: State) -> None:
        """Look at what stands, and add what only this process knows."""
        try:
            asked_at, data, is_written = await self._look(state)
        except TtlError as error:
            self._error = error
            lasts = CACHED_SECONDS if isinstance(error, PermanentError) else TROUBLED_SECONDS
            self._fresh_until = self._monotonic() + lasts
            self._report(_UNWRITTEN if self._has_unwritten() else _UNREAD, error)
            return
        self._error, self._fresh_until = None, asked_at + CACHED_SECONDS
        if not self._is_fresh():  # an answer of then may be from before a stop
            self._error = TryLaterError(f"the ConfigMap {NAME} could not be read within {CACHED_SECONDS:.0f} s")
            self._fresh_until = self._monotonic() + TROUBLED_SECONDS
        self._reported.pop(_UNREAD, None)
        for one in self._shared:
            one.learn(data, self._clock.now(), is_written=is_written)
        await self._stand(parse_standing(data))

    async def _look(self, state: State) -> tuple[float, Data, bool]:
        """When it was asked for, what is there now, and whether what this process had to say is in it."""
        asked_at = self._monotonic()
        if not self._has_unwritten():
            return asked_at, await state.read(), False
        try:
            data = await state.write(self._merge)
        except TtlError as error:  # what stands may be readable all the same, as where the disk of etcd is full
            self._is_refused = isinstance(error, PermanentError)
            self._report(_UNWRITTEN, error)
            asked_at = self._monotonic()
            return asked_at, await state.read(), False
        self._is_refused = False
        self._reported.pop(_UNWRITTEN, None)
        return asked_at, data, True

    async def _stand(self, found: StateContents) -> None:
        mine, now = self._unwritten, self._clock.now()
        if found.trip is not None or (mine and found.has_ended(mine)):
            self._unwritten = None  # written, or another's is there, which is as good
        trip = found.trip or self._unwritten
        if self._contents.trip is not None and trip is None:
            self.releases += 1
            self._telemetry.problem("the breaker is released", configmap=NAME)
        self._see_stop(found)
        own = {name: at for name, at in self._contents.loops.items() if at > now}
        self._contents = StateContents(trip, {**own, **found.loops}, stop=found.stop)
        if mine is not None and trip == mine:  # who was first tells it
            await self._tell_open(mine)

    def _see_stop(self, found: StateContents) -> None:
        """Report a stop, another reason for it, and its end."""
        if found.stop == self._contents.stop:
            return
        if found.stop is None:
            self.releases += 1
            self._telemetry.problem("deletions are started again", configmap=NAME)
            return
        told = {"why": found.stop.why, "by": found.stop.by, "since": found.stop.at and format_instant(found.stop.at)}
        self._telemetry.problem("deletions are stopped", **told, then=self.how_to_start)

    def _measure(self) -> None:
        self._telemetry.breaker(is_open=self._contents.trip is not None)
        self._telemetry.stopped(is_stopped=self._contents.stop is not None)

    def _has_unwritten(self) -> bool:
        return self._unwritten is not None or any(one.has_unwritten for one in self._shared)

    def _merge(self, data: Data) -> Data:
        for one in self._shared:
            data = one.merge(data, self._clock.now())
        return with_trip(data, self._unwritten) if self._unwritten else data

    async def _tell_open(self, trip: Trip) -> None:
        message = f"nothing is deleted {trip}; {self.how_to_release}"
        if message == self._told:
            return
        self._told = message
        try:
            await self._write_event(OPEN, message, "Warning")
        except TtlError as error:  # it is open, told or not
            self._telemetry.problem("could not write an Event", error=str(error))

    def _is_fresh(self) -> bool:
        return self._fresh_until is not None and self._monotonic() < self._fresh_until

    def _report(self, what: str, error: TtlError) -> None:
        """Once, not at every look, for as long as it is the same."""
        if str(error) != self._reported.get(what):
            self._reported[what] = str(error)
            self._telemetry.problem(what, configmap=NAME, error=str(error))
