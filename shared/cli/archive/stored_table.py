"""The table of `archive ls`, printed a page at a time.

The columns never get narrower while the terminal has room. A name is shortened only if its line does not fit.
"""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from shared.cli.output.width import shorten, terminal_width
from shared.core.objects import format_instant, printable
from shared.ports.archive import Stored

_GAP = "  "
_NAME_WIDTH_MIN = 12
_KIND_WIDTH_MAX = 20


class StoredTable:
    """Rows of stored resource versions.

    Args:
        with_namespace: Whether to show the namespace of each object.
    """

    def __init__(self, *, with_namespace: bool) -> None:
        self._with_namespace = with_namespace
        self._widths: list[int] = []

    def lines(self, page: Sequence[Stored]) -> Iterator[str]:
        """Yield the lines of a page; the first page begins with the titles."""
        rows = [self._cells(one) for one in page]
        if not self._widths:
            rows.insert(0, [*(["NAMESPACE"] if self._with_namespace else []), "KIND", "NAME", "VERSION", "ARCHIVED"])
            self._widths = [0] * len(rows[0])
        longest = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
        self._widths = self._fit(list(map(max, self._widths, longest)))
        for row in rows:
            widths = self._widths_of(row)
            cells = [self._padded(*one) for one in zip(row, widths, self._widths, strict=True)]
            yield _GAP.join(cells).rstrip()

    def _widths_of(self, row: Sequence[str]) -> list[int]:
        """The widths of one line: a cell is longer than its column as long as the line fits."""
        widths = [max(width, cell_len(cell)) for cell, width in zip(row, self._widths, strict=True)]
        room = self._room()
        while room is not None and sum(widths) > room and widths != self._widths:
            widest = max(range(len(widths)), key=lambda index: widths[index] - self._widths[index])
            widths[widest] -= 1
        return widths

    def _room(self) -> int | None:
        """The columns of all cells of a line; None if there is no terminal."""
        width = terminal_width()
        return None if width is None else width - len(_GAP) * (len(self._widths) - 1)

    @staticmethod
    def _padded(cell: str, most: int, width: int) -> str:
        text = shorten(cell, most)
        return text + " " * (width - cell_len(text))

    def _cells(self, one: Stored) -> list[str]:
        key = one.key
        names = [key.namespace or "-"] if self._with_namespace else []
        stored_at = format_instant(one.stored_at.replace(microsecond=0))
        return [*map(printable, (*names, key.kind, key.name, key.resource_version)), stored_at]

    def _fit(self, widths: list[int]) -> list[int]:
        """Narrow the names until a line fits the terminal."""
        room = self._room()
        names = [0, 2] if self._with_namespace else [1]
        kind = 1 if self._with_namespace else 0
        if room is None or sum(widths) <= room:
            return widths
        widths[kind] = min(widths[kind], _KIND_WIDTH_MAX)
        while sum(widths) > room:
            widest = max(names, key=widths.__getitem__)
            if widths[widest] <= _NAME_WIDTH_MIN:
                break
            widths[widest] -= 1
        return widths
