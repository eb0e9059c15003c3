"""The plot of `plan`: how many objects are due now, in each three hours of the next day, and later."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.bar import Bar
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shared.core.decision.decide import Expire, Wait, find_fate
from shared.core.decision.forecast import FORECAST_HOURS, find_window
from shared.evaluation.batch import BatchResult

STEP_HOURS = 3
BAR_WIDTH_MAX = 56
"""Columns of the longest bar."""

_BESIDE = 24
"""Columns for the label and the count of a bar."""


@dataclass(frozen=True, slots=True)
class ForecastBar:
    """The objects that are due in one window of time.

    Attributes:
        label: The window: `now`, `0-3h`, `later`.
        count: The number of objects.
    """

    label: str
    count: int


def forecast(objects: Sequence[BatchResult], step_hours: int = STEP_HOURS) -> list[ForecastBar]:
    """Count the objects that are due, by windows of equal length between the first and the last bar.

    Args:
        objects: The objects.
        step_hours: The hours of a window, a divisor of FORECAST_HOURS.
    """
    counts = Counter(window for one in objects if (window := _window(one, step_hours)) is not None)
    starts = range(0, FORECAST_HOURS, step_hours)
    labels = ["now", *(f"{start}-{start + step_hours}h" for start in starts), "later"]
    return [ForecastBar(label, counts[number]) for number, label in enumerate(labels)]


def _window(one: BatchResult, step_hours: int) -> int | None:
    """Return the number of the bar that counts an object; None if it is kept."""
    match find_fate(one.decisions[0]):
        case Expire():
            return 0
        case Wait(until):
            return max(find_window(until, one.now, hours=step_hours), 1)
        case _:
            return None


def print_forecast(console: Console, objects: Sequence[BatchResult]) -> None:
    """Print one bar for each window, with its number; nothing if no object is due."""
    bars = forecast(objects)
    most = max(one.count for one in bars)
    if not most:
        return
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_column()
    width = max(min(BAR_WIDTH_MAX, console.width - _BESIDE), 1)
    for one in bars:
        table.add_row(Text(f"due {one.label}"), Text(f"{one.count:,}"), Bar(most, 0, one.count, width=width))
    console.print(table)
