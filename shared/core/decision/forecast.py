"""How many objects of each kind are due in each of the next hours."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

GroupKind = tuple[str, str]
"""An API group and a kind of it."""

FORECAST_HOURS = 24
"""Hours of a forecast; what is due after them is counted together."""


def find_window(due_at: datetime, now: datetime, *, hours: int = 1) -> int:
    """Return the number of the window in which an instant lies.

    Args:
        due_at: The instant.
        now: When the first window starts.
        hours: The hours of each window, a divisor of FORECAST_HOURS.

    Returns:
        0 for the past, 1 for the first window, and so on; the number after the last window for everything later.
    """
    windows = (due_at - now) / timedelta(hours=hours)
    return min(max(math.ceil(windows), 0), FORECAST_HOURS // hours + 1)


@dataclass(slots=True)
class Forecast:
    """Counts objects by kind and hour.

    Attributes:
        counts: For each group and kind: how many objects are due now, in each of the hours, and later.
    """

    counts: dict[GroupKind, list[int]] = field(default_factory=dict)

    def add(self, group: str, kind: str, due_at: datetime, now: datetime) -> None:
        """Count an object that is due at an instant."""
        counts = self.counts.get((group, kind))
        if counts is None:
            counts = self.counts[group, kind] = [0] * (FORECAST_HOURS + 2)
        counts[find_window(due_at, now)] += 1

    def forget(self, kinds: Iterable[str]) -> None:
        """Forget what was counted of some kinds, since not all of their objects were.

        Args:
            kinds: `apiVersion/Kind` of each.
        """
        for name in kinds:
            api_version, _, kind = name.rpartition("/")
            self.counts.pop((api_version.rpartition("/")[0], kind), None)
