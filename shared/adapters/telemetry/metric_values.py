"""The values that labels of metrics may have, and the buckets of histograms."""

from collections.abc import Mapping
from http import HTTPStatus

from shared.adapters.events.cloudevents import SOURCED, TICK
from shared.core.decision.forecast import FORECAST_HOURS
from shared.core.kinds.catalogue import Catalogue
from shared.core.policy.unused import USAGE_KINDS
from shared.messages import ObjectDeleted, ObjectStopped, ObjectWarned, SweepStep, Timer, TimersSet

LATENESS_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600, 1_200, 3_600, 14_400)
"""Buckets: from a deletion at its due time to one that waited for one or two sweeps."""

WAIT_SECONDS = (0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1_200, 3_600)
"""Buckets: from the next free slot to the end of a long backlog."""

WINDOW_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Buckets: from the pass of a small namespace to one that lists many cluster-scoped objects."""

FORECAST_WINDOWS = (*(f"{hour:02}" for hour in range(FORECAST_HOURS + 1)), "later")
"""The values of the label `hour`: `00` is now, `01` the first hour. They have two digits, so that they sort as text."""

OTHER = "other"
"""The value of a label if the real value is not known."""

EVENT_TYPES = {
    TICK,
    *SOURCED,
    *(message.type for message in (Timer, TimersSet, ObjectDeleted, ObjectStopped, ObjectWarned, SweepStep)),
}
"""The types of the CloudEvents of this project."""

STATUSES = frozenset(str(status.value) for status in HTTPStatus)
"""All HTTP statuses."""


def labels_of_kinds(kinds: Catalogue) -> Mapping[tuple[str, str], str]:
    """Return the label of each known kind, by group and kind; Secrets and ConfigMaps are always known."""
    every = (*USAGE_KINDS.rules, *kinds.rules)
    return {(rule.group, rule.kind): kinds.label_of(rule.group, rule.kind) for rule in every}
