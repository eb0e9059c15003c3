"""Check the ticks of PingSources, and parse what starts the step of a sweep."""

from shared.adapters.events.cloudevents import TICK, Event, parse_message
from shared.core.values.objects import quote
from shared.errors import EventError
from shared.messages import SweepStep

PURPOSE = "purpose"
"""The extension attribute of a tick on which the Triggers filter: `usage`, or absent for a sweep."""


def check_tick(event: Event) -> None:
    """Check that an event is a tick; it has no data.

    Raises:
        EventError: The event has another type.
    """
    if event.type != TICK:
        raise EventError(f"type: expected {TICK}, got {quote(event.type)}")


def parse_sweep(event: Event) -> SweepStep:
    """Parse the step of a sweep: the one in a `sweep.continue` event, or the first step for a PingSource event.

    Raises:
        EventError: The event has another type, or its data is invalid.
    """
    return SweepStep() if event.type == TICK else parse_message(event, SweepStep)
