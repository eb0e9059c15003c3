"""Tables that fit a terminal. Their library takes 30 ms to load: only commands that print a table import it."""

from collections.abc import Sequence
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shared.cli.output.printing import shorten, terminal_width

WIDE = 1_000
"""The width of a table that is not printed on a terminal: no cell is longer."""

_NAME_MIN = 12
_WORD_MAX = 20
"""The smallest width of a column while the table fits: _NAME_MIN for names, up to _WORD_MAX for other words."""


def make_table(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int,
    names: int = 1,
    justify: Literal["left", "right"] = "right",
    gap: int = 3,
) -> Table:
    """Make a table that fits: names are shortened in their middle, other text is wrapped at word borders.

    Args:
        titles: The titles of the columns.
        rows: The cells, one for each title.
        width: The most columns of a line.
        names: How many of the first columns are names.
        justify: How the columns after the names are aligned.
        gap: Spaces between two cells, 2 or 3.
    """
    cells = list(zip(titles, *rows, strict=True))
    room = width - gap * len(titles)
    widths = _fit(cells, names, room)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1) if gap == 3 else (0, 1, 0, 0), pad_edge=False)  # noqa: PLR2004
    for index, title in enumerate(titles):
        table.add_column(
            Text(title), justify="left" if index < names else justify, width=widths[index], overflow="ellipsis"
        )
    for row in rows:
        table.add_row(*(Text(shorten(cell, widths[i]) if i < names else cell) for i, cell in enumerate(row)))
    return table


def _fit(cells: Sequence[Sequence[str]], names: int, room: int) -> list[int]:
    """Return the width of each column: titles are wrapped first, then the widest columns are narrowed."""
    widths = [max(map(cell_len, column)) for column in cells]
    if sum(widths) > room:
        widths = [max(_longest_word(title), *map(cell_len, rest), 0) for title, *rest in cells]
    words = [max(map(_longest_word, column)) for column in cells]
    least = [_NAME_MIN if index < names else min(most, _WORD_MAX) for index, most in enumerate(words)]
    for limits in (least, [1] * len(cells)):
        while sum(widths) > room and any(map(int.__gt__, widths, limits)):
            widest = max(
                (index for index in range(len(widths)) if widths[index] > limits[index]), key=widths.__getitem__
            )
            widths[widest] -= 1
    return widths


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)


def output_console() -> Console:
    """Return a console as wide as the terminal; without one its lines are not wrapped, since scripts search them."""
    return Console(width=terminal_width() or WIDE, highlight=False)
