"""What the tables of all benchmarks have in common."""

from collections.abc import Mapping
from dataclasses import dataclass

from rich import box
from rich.table import Table


@dataclass(frozen=True)
class Aim:
    """What was hoped for, and what came out."""

    name: str
    aim: str
    measured: str
    met: bool


def new_table(title: str, first: str, *columns: str, caption: str | None = None) -> Table:
    table = Table(title=title, caption=caption, box=box.SIMPLE, title_justify="left", caption_justify="left")
    table.add_column(first, no_wrap=True)
    for column in columns:
        is_text = column.startswith(("calls", "deleted"))
        table.add_column(column, justify="left" if is_text else "right", no_wrap=is_text)
    return table


def rate(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:,.1f}"


def calls(calls: Mapping[str, float]) -> str:
    parts = ", ".join(f"{count:.2g} {name.replace(' jobs', '')}" for name, count in calls.items())
    return f"{sum(calls.values()):.2f}: {parts}"
