"""The objects that are due, each with its due time, for `plan --names`."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Console

from shared.cli.objects.time_text import describe_time
from shared.cli.output.plural import plural
from shared.cli.output.tables import make_table
from shared.core.decide import Expire, Wait, find_fate
from shared.core.objects import format_instant, printable
from shared.evaluation.batch import BatchResult

_TITLES = ("OBJECT", "DUE AT", "DUE")


def find_due(objects: Sequence[BatchResult]) -> list[tuple[datetime, BatchResult]]:
    """Return the objects that are due, now or later, with their due times; the first due comes first."""
    found = [(at, one) for one in objects if (at := due_at(one)) is not None]
    return sorted(found, key=lambda item: (item[0], str(item[1].ref)))


def due_at(one: BatchResult) -> datetime | None:
    """Return when an object is due; None if it is kept."""
    match find_fate(one.decisions[0]):
        case Expire(since):
            return since
        case Wait(until):
            return until
        case _:
            return None


def print_names(console: Console, objects: Sequence[BatchResult], *, top: int | None) -> None:
    """Print a line for each due object.

    Args:
        console: The console to print to.
        objects: The objects.
        top: The most lines; None for all.
    """
    found = find_due(objects)
    if not found:
        return
    rows = [
        (printable(str(one.ref)), format_instant(at.replace(microsecond=0)), _describe(at, one))
        for at, one in found[:top]
    ]
    console.print(make_table(_TITLES, rows, width=console.width, gap=2))
    if len(found) > len(rows):
        console.print(f"... and {plural(len(found) - len(rows), 'more object')}")


def _describe(at: datetime, one: BatchResult) -> str:
    return "now" if at <= one.now else describe_time(at.replace(microsecond=0), one.now.replace(microsecond=0))
