"""Read the Events about sweeps, which the API server keeps for an hour: they also show a sweep that deleted nothing."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shared.core.values.objects import get_in, get_text, parse_instant
from shared.installation.inventory import Obj
from shared.ports import EventReason

ABOUT_INSTALLATION = "involvedObject.kind=Namespace"
"""The field selector of the Events about an installation."""

_SWEEP_REASONS = (EventReason.SWEPT, EventReason.SWEPT_IN_PART)


@dataclass(frozen=True, slots=True)
class LastSweep:
    """The last sweep of all kinds.

    Attributes:
        at: When it ended, by the API server's clock.
        is_complete: Whether it could list all kinds.
        message: What it saw.
    """

    at: datetime
    is_complete: bool
    message: str


def find_last_sweep(events: Iterable[Obj]) -> LastSweep | None:
    """Find the last sweep in the Events about an installation; None if they have none."""
    sweeps = [(at, event) for event in events if get_text(event, "reason") in _SWEEP_REASONS and (at := time_of(event))]
    if not sweeps:
        return None
    at, event = max(sweeps, key=lambda one: one[0])
    return LastSweep(at, get_text(event, "reason") == EventReason.SWEPT, get_text(event, "message"))


def time_of(event: Obj) -> datetime | None:
    """Return when the API server stored an Event, by its clock; an Event of ours is written only once."""
    candidates: list[Any] = [get_in(event, path) for path in ("metadata.creationTimestamp", "lastTimestamp")]
    for text in candidates:
        try:
            return parse_instant(text)
        except ValueError:
            continue
    return None
