"""`archive verify`: read documents, and check that they are what was archived."""

import json
from dataclasses import dataclass, field
from datetime import timedelta

import click

from shared.cli.archive.ls import stored_as_json
from shared.cli.archive.selected import check_selection, report_none, select, selection_options
from shared.cli.archive.source import archive_options, open_source
from shared.cli.input.command import command
from shared.cli.input.options import Options, output_option
from shared.cli.output.messages import show_progress
from shared.cli.output.plural import plural
from shared.cli.output.width import echo
from shared.core.values.objects import printable
from shared.usecases.archives.retention import VerifiedDocument, verify_archive
from shared.usecases.archives.search import prefixes_of

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
    words = check_selection(target, options, all_namespaces=all_namespaces)
    source = await open_source(options)
    source.report_cluster()
    selected = select(source, words, options, all_namespaces=all_namespaces, since=since)
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
