"""What a process reports about the shared state: problems, the brake, and the breaker's Kubernetes Event."""

from shared.core.objects import format_instant
from shared.errors import TtlError
from shared.ports import EventReason, Telemetry, WriteEvent
from shared.safeguards.state_schema import NAME, StateContents, Stop, Trip

UNREAD = "could not read shared state"
UNWRITTEN = "could not write shared state: other processes will not see these deletions"


class StateReports:
    """Reports each problem and each trip once.

    Args:
        telemetry: Receives the reports.
        write_event: Writes a Kubernetes Event about the installation.
    """

    def __init__(self, telemetry: Telemetry, write_event: WriteEvent) -> None:
        self._telemetry, self._write_event = telemetry, write_event
        self._errors: dict[str, str] = {}
        self._last_event = ""

    def measure(self, contents: StateContents) -> None:
        """Set the metrics of the breaker and the brake."""
        self._telemetry.breaker(is_open=contents.trip is not None)
        self._telemetry.stopped(is_stopped=contents.stop is not None)

    def problem(self, message: str, error: TtlError) -> None:
        """Report a problem with the state once, until it is solved or its error is another."""
        if str(error) != self._errors.get(message):
            self._errors[message] = str(error)
            self._telemetry.problem(message, configmap=NAME, error=str(error))

    def solved(self, message: str) -> None:
        """Report the problem again if it comes back."""
        self._errors.pop(message, None)

    def not_flushed(self, seconds: float) -> None:
        """Report that the last write of this process got no answer."""
        self._telemetry.problem(UNWRITTEN, configmap=NAME, error=f"no answer within {seconds:.0f} s")

    def tripped(self, trip: Trip, how_to_release: str) -> None:
        """Report that this process opened the breaker."""
        self._telemetry.breaker(is_open=True)
        self._telemetry.problem("the breaker is open", why=trip.why, by=trip.by, then=how_to_release)

    def released(self) -> None:
        """Report that the breaker was released."""
        self._telemetry.problem("the breaker is released", configmap=NAME)

    def stopped(self, stop: Stop, how_to_start: str) -> None:
        """Report that a person stopped the deletions."""
        since = stop.at and format_instant(stop.at)
        self._telemetry.problem("deletions are stopped", why=stop.why, by=stop.by, since=since, then=how_to_start)

    def started(self) -> None:
        """Report that a person started the deletions again."""
        self._telemetry.problem("deletions are started again", configmap=NAME)

    async def write_open(self, trip: Trip, how_to_release: str) -> None:
        """Write the Event about a trip, once."""
        message = f"nothing is deleted {trip}; {how_to_release}"
        if message == self._last_event:
            return
        self._last_event = message
        try:
            await self._write_event(EventReason.BREAKER_OPEN, message, "Warning")
        except TtlError as error:  # the breaker is open anyway
            self._telemetry.problem("could not write an Event", error=str(error))
