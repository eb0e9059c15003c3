"""The values that labels of metrics may have, and the buckets of histograms."""

from http import HTTPStatus

from shared.adapters.events.cloudevents import SOURCED, TICK
from shared.messages import ObjectDeleted, ObjectStopped, SweepStep, Timer, TimersSet

LATENESS_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600, 1_200, 3_600, 14_400)
"""Buckets: from a deletion at its due time to one that waited for one or two sweeps."""

WAIT_SECONDS = (0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1_200, 3_600)
"""Buckets: from the next free slot to the end of a long backlog."""

OTHER = "other"
"""The value of a label if the real value is not known."""

EVENT_TYPES = {
    TICK,
    *SOURCED,
    *(message.type for message in (Timer, TimersSet, ObjectDeleted, ObjectStopped, SweepStep)),
}
"""The types of the CloudEvents of this project."""

STATUSES = frozenset(str(status.value) for status in HTTPStatus)
"""All HTTP statuses."""
