"""`archive ls` and `archive verify`: what an archive has, and whether it is what was archived.

A list is printed a page at a time, and no document is read for it. The columns of its table never get narrower while
the terminal has room. A name is shortened only if its line does not fit.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import click
from rich.cells import cell_len

from shared.cli.archive.selected import open_selected, report_none, selection_options
from shared.cli.archive.source import ArchiveSource, archive_options
from shared.cli.input.command import command
from shared.cli.input.options import Options, output_option
from shared.cli.output.printing import echo, plural, shorten, show_progress, terminal_width
from shared.core.values.objects import format_instant, printable
from shared.ports.archive import Stored
from shared.usecases.archives.retention import VerifiedDocument, verify_archive
from shared.usecases.archives.search import ArchiveSelection, list_selected, prefixes_of

_GAP = "  "
_NAME_WIDTH_MIN = 12
_KIND_WIDTH_MAX = 20


@command()
@selection_options
@archive_options
@click.option(
    "-o", "--output", type=click.Choice(["table", "json", "name"]), default="table", help="The format. Default: table."
)
async def ls(
    options: Options, *, target: tuple[str, ...], all_namespaces: bool, since: timedelta | None, output: str
) -> None:
    """List archived objects, one for each stored resource version, by kind, by the day of the finish, and by name.

    KIND is a kind, or KIND/NAME one object. The time is that of the archiving, by the clock of the store. The list is
    printed while it is read.
    """
    source, selected = await open_selected(target, options, all_namespaces=all_namespaces, since=since)
    count = await _print(source, selected.selection, output)
    if not count:
        report_none(source, selected)


async def _print(source: ArchiveSource, selection: ArchiveSelection, output: str) -> int:
    """Print what is selected, page by page; return how many resource versions there are."""
    count = 0
    table = _StoredTable(with_namespace=selection.namespaces is None)
    if source.cluster:
        async for page in list_selected(source.archive, selection):
            match output:
                case "json":
                    click.echo(("[\n" if count == 0 else ",\n") + ",\n".join(_json_lines(page)), nl=False)
                case "name":
                    click.echo("\n".join(name_of_stored(one) for one in page))
                case _:
                    click.echo("\n".join(table.lines(page)))
            count += len(page)
    if output == "json":
        click.echo("\n]" if count else "[]")
    return count


def _json_lines(page: Sequence[Stored]) -> Iterator[str]:
    for one in page:
        yield f"  {json.dumps(stored_as_json(one))}"


def stored_as_json(one: Stored) -> dict[str, Any]:
    """Return the documented JSON of one stored resource version."""
    key = one.key
    return {
        "apiVersion": key.api_version,
        "kind": key.kind,
        "namespace": key.namespace or None,
        "name": key.name,
        "uid": key.uid,
        "resourceVersion": key.resource_version,
        "archivedAt": format_instant(one.stored_at),
        "digest": key.digest,
        "cluster": key.cluster,
        "location": one.location,
    }


def name_of_stored(one: Stored) -> str:
    """Return the name of an object as kubectl prints it: `job.batch/build-42`."""
    group = one.key.group
    return f"{one.key.kind.lower()}{'.' if group else ''}{group}/{one.key.name}"


class _StoredTable:
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


_STEP = 100
"""Documents between two updates of the count on the terminal."""


@command()
@selection_options
@archive_options
@output_option
async def verify(
    options: Options, *, target: tuple[str, ...], all_namespaces: bool, since: timedelta | None, output: str
) -> None:
    """Read archived objects, and check the digest and the identity of each.

    The arguments select objects as in `archive ls`. The exit code is 1 if a document is damaged. Damaged documents are
    not deleted. If the object still exists, it is archived again before it is deleted. If not, this is the only copy:
    restore the file from a backup of the store. Several documents of the same version that differ count as damaged,
    unless they are signed: another writer may have stored one of them.
    """
    source, selected = await open_selected(target, options, all_namespaces=all_namespaces, since=since)
    found = _Verification(is_text=output == "text")
    if source.cluster:
        prefixes = [prefix async for prefix in prefixes_of(source.archive, selected.selection)]
        async for one in verify_archive(source.archive, prefixes):
            found.add(one)
    show_progress("")
    found.report()
    if not found.count:
        report_none(source, selected)
    if found.damaged:
        raise SystemExit(1)


@dataclass
class _Verification:
    """Counts documents, and prints those that are damaged.

    Attributes:
        is_text: Whether to print each damaged document at once; otherwise all are printed as JSON at the end.
        count: The documents that were read.
        damaged: Those that are damaged.
    """

    is_text: bool
    count: int = 0
    damaged: list[VerifiedDocument] = field(default_factory=list)

    def add(self, one: VerifiedDocument) -> None:
        """Count a document."""
        self.count += 1
        if self.count % _STEP == 0:
            show_progress(f"{self.count} documents")
        if not one.problem:
            return
        self.damaged.append(one)
        if self.is_text:
            show_progress("")
            echo(printable(one.problem))

    def report(self) -> None:
        """Print the result."""
        if not self.is_text:
            problems = [{**stored_as_json(one.stored), "problem": one.problem} for one in self.damaged]
            click.echo(json.dumps({"verified": self.count, "damaged": problems}, indent=2))
        elif self.count:
            echo(f"{plural(self.count, 'document')} verified, {len(self.damaged):,} damaged")
