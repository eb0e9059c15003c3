"""The shared state as one process sees it: the brake, the breaker, names in a recreate loop, and recent deletions.

A process reads the state every few seconds, and only while it wants to delete. It writes its deletions before its next
deletion that is more than `CACHED_SECONDS` later, and when it ends. So a deletion costs no additional request. A DELETE
is never sent after a read that is too old or failed: a person may have stopped all deletions.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from shared.core.archive.identity import KnownArchive
from shared.core.values.objects import format_instant
from shared.errors import PermanentError, TryLaterError, TtlError
from shared.ports import Clock, EventReason, State, Telemetry, WriteEvent
from shared.safeguards.denials import NAMES_MAX
from shared.safeguards.state_schema import (
    NAME,
    Data,
    StateContents,
    StatePart,
    Trip,
    parse_state,
    with_archive,
    with_loop,
    with_trip,
)

UNREAD = "could not read shared state"
UNWRITTEN = "could not write shared state: other processes will not see these deletions"

CACHED_SECONDS = 3.0
"""How long a read counts, from when it was sent: another process may delete for so long after a stop or a trip. Then
`LEAVE_SECONDS_MAX` limits how long the DELETE may take to be sent."""

ERROR_CACHED_SECONDS = 1.0
"""How long a failed read counts if the API server is busy or away, so that not every caller asks it again at once."""

FLUSH_SECONDS_MAX = 3.0
"""How long the last write of a process may take."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """The clocks of a process, and its telemetry.

    Attributes:
        clock: The wall clock, for instants that people read.
        monotonic: Seconds that never jump.
        telemetry: Receives delays, recreate loops, an open breaker, and failed reads and writes.
    """

    clock: Clock
    monotonic: Callable[[], float]
    telemetry: Telemetry


class SharedState:
    """The shared state; if there is none, or it cannot be written, the state of this process alone.

    Args:
        state: Where it is stored; None if this process shares it with no other.
        runtime: Clocks and telemetry.
        write_event: Writes a Kubernetes Event about the installation.
        namespace: The namespace of the state.

    Attributes:
        releases: How often this process has seen a release of the breaker or a start of the deletions.
    """

    def __init__(self, state: State | None, runtime: Runtime, *, write_event: WriteEvent, namespace: str = "") -> None:
        self._state, self._namespace, self._write_event = state, namespace, write_event
        self._clock, self._monotonic, self._telemetry = runtime.clock, runtime.monotonic, runtime.telemetry
        self._problems: dict[str, str] = {}  # a message -> its last error
        self._last_event = ""
        self._contents = StateContents()
        self._fresh_until: float | None = None
        self._error: TtlError | None = None
        self._unwritten: Trip | None = None
        self._parts: tuple[StatePart, ...] = ()
        self._reading = asyncio.Lock()
        self._is_refused = False
        self.releases = 0

    @property
    def how_to_release(self) -> str:
        """Say how to release an open breaker, in texts that people read."""
        if self._state is None or (self._unwritten and self._is_refused):  # no other process knows of the trip
            return "check what was about to be deleted, then restart this process"
        return f"check what was about to be deleted, then `kubectl ttl release --breaker -n {self._namespace}`"

    @property
    def how_to_start(self) -> str:
        """Say how to start the deletions again, in texts that people read."""
        return f"`kubectl ttl start -n {self._namespace}` starts them again"

    def share(self, *parts: StatePart) -> None:
        """Share these parts from now on, instead of those before; the state is read again at the next use."""
        self._parts, self._fresh_until = parts, None

    async def read_for_report(self) -> StateContents:
        """Return the state to report it; it is read again if it is old, or if brake or breaker keep objects."""
        is_kept = self._contents.trip is not None or self._contents.stop is not None
        if self._state is not None and (is_kept or not self._is_fresh()):
            async with self._reading:
                await self._refresh(self._state)
        self._measure()
        return self._contents

    async def read(self, *, is_fresh: bool = False) -> StateContents | None:
        """Return the state for a DELETE; a recent read counts, unless a fresh one is needed.

        Returns:
            None if the right to read it is missing.

        Raises:
            TryLaterError: It cannot be read now, or the answer took too long.
        """
        if self._state is not None and (is_fresh or not self._is_fresh()):
            async with self._reading:
                if is_fresh or not self._is_fresh():  # no other caller has read it in the meantime
                    await self._refresh(self._state)
        self._measure()
        if isinstance(self._error, PermanentError):
            return None
        if self._error:
            raise self._error
        return self._contents

    async def trip(self, why: str, *, by: str) -> None:
        """Open the breaker: in this process at once, in the others as soon as it is written. Report it once."""
        if self._contents.trip:
            return
        trip = Trip(self._clock.now().replace(microsecond=0), why, by)
        self._contents = replace(self._contents, trip=trip)
        self._unwritten = trip if self._state is not None else None
        self._telemetry.breaker(is_open=True)
        self._telemetry.problem("the breaker is open", why=trip.why, by=trip.by, then=self.how_to_release)
        if self._state is None:
            await self._write_open(trip)
        else:
            async with self._reading:
                await self._refresh(self._state)

    async def flush(self) -> None:
        """Write what only this process knows before it ends; give up after `FLUSH_SECONDS_MAX`."""
        if self._state is None or not self._has_unwritten():
            return
        try:
            async with asyncio.timeout(FLUSH_SECONDS_MAX), self._reading:
                await self._refresh(self._state)
        except TimeoutError:
            self._telemetry.problem(UNWRITTEN, configmap=NAME, error=f"no answer within {FLUSH_SECONDS_MAX:.0f} s")

    async def keep_name(self, name: str, until: datetime) -> None:
        """Remember a name that is in a recreate loop, here and in the state."""
        loops = dict(self._contents.loops)
        while len(loops) >= NAMES_MAX:
            del loops[min(loops, key=loops.__getitem__)]
        self._contents = replace(self._contents, loops={**loops, name: until})
        if self._state is None:
            return
        try:
            await self._state.write(lambda data: with_loop(data, name, until, self._clock.now()))
        except TtlError as error:
            self._problem(UNWRITTEN, error)

    async def remember_archive(self, name: str, known: KnownArchive) -> StateContents:
        """Remember an archive, here and in the state, unless another one is remembered; return what is remembered.

        Raises:
            TtlError: The state cannot be written.
        """
        archives: Mapping[str, KnownArchive] | None = {name: known, **(self._contents.archives or {})}
        if self._state is not None:
            archives = parse_state(await self._state.write(lambda data: with_archive(data, name, known))).archives
        self._contents = replace(self._contents, archives=archives)
        return self._contents

    async def _refresh(self, state: State) -> None:
        """Read the state, and write what only this process knows."""
        try:
            sent_at, data, is_written = await self._exchange(state)
        except TtlError as error:
            self._error = error
            lasts = CACHED_SECONDS if isinstance(error, PermanentError) else ERROR_CACHED_SECONDS
            self._fresh_until = self._monotonic() + lasts
            self._problem(UNWRITTEN if self._has_unwritten() else UNREAD, error)
            return
        self._error, self._fresh_until = None, sent_at + CACHED_SECONDS
        if not self._is_fresh():  # so slow an answer may be older than a stop
            self._error = TryLaterError(f"the ConfigMap {NAME} could not be read within {CACHED_SECONDS:.0f} s")
            self._fresh_until = self._monotonic() + ERROR_CACHED_SECONDS
        self._problems.pop(UNREAD, None)
        for part in self._parts:
            part.learn(data, self._clock.now(), is_written=is_written)
        await self._follow(parse_state(data))

    async def _exchange(self, state: State) -> tuple[float, Data, bool]:
        """Return when the request was sent, the present data, and whether they contain what this process added."""
        sent_at = self._monotonic()
        if not self._has_unwritten():
            return sent_at, await state.read(), False
        try:
            data = await state.write(self._merge)
        except TtlError as error:  # a read may still work, for example if the disk of etcd is full
            self._is_refused = isinstance(error, PermanentError)
            self._problem(UNWRITTEN, error)
            sent_at = self._monotonic()
            return sent_at, await state.read(), False
        self._is_refused = False
        self._problems.pop(UNWRITTEN, None)
        return sent_at, data, True

    async def _follow(self, found: StateContents) -> None:
        """Take over the state that was read, and report what has changed."""
        unwritten, now = self._unwritten, self._clock.now()
        if found.trip is not None or (unwritten and found.has_ended(unwritten)):
            self._unwritten = None  # written, or the trip of another process is there, which has the same effect
        trip = found.trip or self._unwritten
        if self._contents.trip is not None and trip is None:
            self.releases += 1
            self._telemetry.problem("the breaker is released", configmap=NAME)
        self._follow_stop(found)
        own = {name: at for name, at in self._contents.loops.items() if at > now}
        self._contents = StateContents(trip, {**own, **found.loops}, stop=found.stop, archives=found.archives)
        if unwritten is not None and trip == unwritten:  # the process that tripped first writes the Event
            await self._write_open(unwritten)

    def _follow_stop(self, found: StateContents) -> None:
        """Report a stop, another reason for it, and its end."""
        stop = found.stop
        if stop == self._contents.stop:
            return
        if stop is None:
            self.releases += 1
            self._telemetry.problem("deletions are started again", configmap=NAME)
        else:
            since = stop.at and format_instant(stop.at)
            how = {"since": since, "then": self.how_to_start}
            self._telemetry.problem("deletions are stopped", why=stop.why, by=stop.by, **how)

    def _has_unwritten(self) -> bool:
        return self._unwritten is not None or any(part.has_unwritten for part in self._parts)

    def _merge(self, data: Data) -> Data:
        for part in self._parts:
            data = part.merge(data, self._clock.now())
        return with_trip(data, self._unwritten) if self._unwritten else data

    def _is_fresh(self) -> bool:
        return self._fresh_until is not None and self._monotonic() < self._fresh_until

    def _measure(self) -> None:
        self._telemetry.breaker(is_open=self._contents.trip is not None)
        self._telemetry.stopped(is_stopped=self._contents.stop is not None)

    def _problem(self, message: str, error: TtlError) -> None:
        """Report a problem with the state once, until it is solved or its error is another."""
        if str(error) != self._problems.get(message):
            self._problems[message] = str(error)
            self._telemetry.problem(message, configmap=NAME, error=str(error))

    async def _write_open(self, trip: Trip) -> None:
        """Write the Event about a trip, once."""
        message = f"nothing is deleted {trip}; {self.how_to_release}"
        if message != self._last_event:
            self._last_event = message
            try:
                await self._write_event(EventReason.BREAKER_OPEN, message, "Warning")
            except TtlError as error:  # the breaker is open anyway
                self._telemetry.problem("could not write an Event", error=str(error))
