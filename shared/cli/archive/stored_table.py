"""The table of `archive ls`, printed a page at a time: the columns get their widths from the first page."""

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
        self._is_limited = terminal_width() is not None

    def lines(self, page: Sequence[Stored]) -> Iterator[str]:
        """Yield the lines of a page; the first page begins with the titles."""
        rows = [self._cells(one) for one in page]
        if not self._widths:
            titles = [*(["NAMESPACE"] if self._with_namespace else []), "KIND", "NAME", "VERSION", "ARCHIVED"]
            rows.insert(0, titles)
            self._widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
            self._fit()
        for row in rows:
            cells = [self._padded(cell, width) for cell, width in zip(row, self._widths, strict=True)]
            yield _GAP.join(cells).rstrip()

    def _padded(self, cell: str, width: int) -> str:
        text = shorten(cell, width) if self._is_limited else cell
        return text + " " * (width - cell_len(text))

    def _cells(self, one: Stored) -> list[str]:
        key = one.key
        names = [key.namespace or "-"] if self._with_namespace else []
        stored_at = format_instant(one.stored_at.replace(microsecond=0))
        return [*map(printable, (*names, key.kind, key.name, key.resource_version)), stored_at]

    def _fit(self) -> None:
        """Narrow the names until a line fits the terminal."""
        width = terminal_width()
        if width is None:
            return
        last = len(self._widths) - 1
        names = [0, 2] if self._with_namespace else [1]
        kind = 1 if self._with_namespace else 0
        room = width - len(_GAP) * last
        self._widths[kind] = min(self._widths[kind], _KIND_WIDTH_MAX)
        while sum(self._widths) > room:
            widest = max(names, key=self._widths.__getitem__)
            if self._widths[widest] <= _NAME_WIDTH_MIN:
                return
            self._widths[widest] -= 1
