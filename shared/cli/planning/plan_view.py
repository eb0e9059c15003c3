"""What `plan` shows of the objects, as its options choose it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from shared.cli.planning.due_rows import By, DueRow, Order, sort_rows

CallableT = TypeVar("CallableT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    """The values of the options.

    Attributes:
        by: What the objects of one row share; None for namespace and kind.
        sort: The order of rows; None for the default.
        top: The most rows and names; None for all.
        names: Whether each due object is listed.
        forecast: Whether the plot is printed; None for only on a terminal.
    """

    by: By | None = None
    sort: Order | None = None
    top: int | None = None
    names: bool = False
    forecast: bool | None = None

    @property
    def is_default(self) -> bool:
        """Return whether no option is set."""
        return self == PlanView()

    def choose(self, rows: Sequence[DueRow]) -> list[DueRow]:
        """Return the rows that are shown, in their order; with `top` alone, those with the most due objects."""
        order = self.sort or (Order.NAME if self.top is None else Order.DUE)
        return sort_rows(rows, order)[: self.top]


def view_options(command: CallableT) -> CallableT:
    """Add the options of `PlanView` to a command, which gets them in the argument `view`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = (
    click.option(
        "--by",
        type=click.Choice([one.value for one in By]),
        help="One row for each namespace, kind, source of the TTL, or owner. Default: for each namespace and kind.",
    ),
    click.option(
        "--sort",
        type=click.Choice([one.value for one in Order]),
        help="The order of the rows: by name, by what is due first or next, by what stays, or by the number of "
        "objects. Default: name; due if --top is set.",
    ),
    click.option("--top", type=click.IntRange(min=1), metavar="N", help="Only the first N rows, and N names."),
    click.option("--names", is_flag=True, help="Also list each object that is due, with its due time."),
    click.option(
        "--forecast/--no-forecast",
        default=None,
        help="Print a plot of what is due in the next 24 hours. Default: only on a terminal.",
    ),
)


def view_of(*, by: str | None, sort: str | None, top: int | None, names: bool, forecast: bool | None) -> PlanView:
    """Make a view of the values that click gives."""
    return PlanView(
        by=By(by) if by else None, sort=Order(sort) if sort else None, top=top, names=names, forecast=forecast
    )
