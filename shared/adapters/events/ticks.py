"""Check the ticks of PingSources."""

from shared.adapters.events.cloudevents import TICK, Event
from shared.core.objects import quote
from shared.errors import EventError

PURPOSE = "purpose"
"""The extension attribute of a tick on which the Triggers filter: `usage`, or absent for a sweep."""


def check_tick(event: Event) -> None:
    """Check that an event is a tick; it has no data.

    Raises:
        EventError: The event has another type.
    """
    if event.type != TICK:
        raise EventError(f"type: expected {TICK}, got {quote(event.type)}")
