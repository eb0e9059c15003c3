"""`timers ls`: the pending timers of an engine."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

import click
from rich.cells import cell_len

from shared.adapters.clock import SystemClock
from shared.bootstrap.timer_engine import open_pending
from shared.cli.input.command import command
from shared.cli.input.options import Options, all_namespaces_option, duration_option
from shared.cli.output.printing import inform, plural, warn
from shared.cli.timers.move import change_line, timer_line
from shared.cli.timers.place import read_pages, settings_of_pending, timers_option
from shared.core.values.objects import format_instant, printable
from shared.errors import TryLaterError
from shared.messages import Purpose, Timer, TimerKey
from shared.ports import PendingTimers, TimerFilter

WATCH_INTERVAL_SECONDS_MIN = 1.0
"""The shortest time between two reads of `--watch`."""

_CHANGE = "CHANGE"
_TITLES = ("NAMESPACE", "KIND", "NAME", "PURPOSE", "DUE", "ATTEMPTS")


@dataclass
class _Listed:
    """The timers that were listed so far.

    Attributes:
        purposes: Their number, by purpose.
        first: When the first of them is due.
    """

    purposes: Counter[str] = field(default_factory=Counter)
    first: datetime | None = None

    def add(self, timers: Sequence[Timer]) -> None:
        self.purposes.update(str(timer.purpose) for timer in timers)
        first = min(timer.due_at for timer in timers)
        self.first = min(self.first or first, first)


@command()
@click.option("--purpose", type=click.Choice([one.value for one in Purpose]), help="Only timers of this purpose.")
@click.option("--kind", metavar="KIND", default="", help="Only timers of objects of this kind: Job. Default: all.")
@all_namespaces_option
@click.option(
    "--due-within", callback=duration_option, metavar="TIME", help="Only timers that are due in this time: 1h."
)
@timers_option
@click.option(
    "-w", "--watch", "is_watched", is_flag=True, help="Go on, and print a line for each change, until Ctrl-C."
)
@click.option(
    "--interval",
    callback=duration_option,
    metavar="TIME",
    default="2s",
    show_default=True,
    help="With --watch: the time between two reads of all pending timers.",
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", help="The format. Default: table."
)
async def ls(
    options: Options,
    *,
    purpose: str | None,
    kind: str,
    due_within: timedelta | None,
    timers: str | None,
    is_watched: bool,
    interval: timedelta,
    output: str,
) -> None:
    """List pending timers, with their number for each purpose, and when the first of them is due.

    The list is printed while it is read, in the order of the engine. The process that fires the timers may run.

    With --watch, the first word of each line is `pending`, `moved` (set for another time), `retried` or `gone`
    (fired); with -o json, each line is one object. Each read lists all pending timers: if there are many, set
    --due-within.
    """

    def wanted() -> TimerFilter:
        due_by = None if due_within is None else SystemClock().now() + due_within
        return TimerFilter(Purpose(purpose) if purpose else None, kind, options.namespace, due_by)

    async with open_pending(settings_of_pending(timers, of_dry_run=True), SystemClock()) as pending:
        if is_watched:
            await _watch(pending, wanted, max(interval.total_seconds(), WATCH_INTERVAL_SECONDS_MIN), output)
        else:
            await _list(pending, wanted(), output)


async def _watch(pending: PendingTimers, wanted: Callable[[], TimerFilter], seconds: float, output: str) -> None:
    """Print each change, until the command is cancelled; a read that fails is repeated."""
    changes, table = PendingChanges(), _Table((_CHANGE, *_TITLES))
    while True:
        try:
            found = [timer async for page in read_pages(pending, wanted()) for timer in page.timers]
        except TryLaterError as error:
            warn(f"{error}; the read is repeated")
        else:
            changed = list(changes.find(found))
            if changed and output == "json":
                click.echo("\n".join(change_line(change, timer) for change, timer in changed))
            elif changed:
                click.echo(table.lines([(str(change), *_cells(timer)) for change, timer in changed]), nl=False)
        await asyncio.sleep(seconds)


async def _list(pending: PendingTimers, wanted: TimerFilter, output: str) -> None:
    listed = _Listed()
    printer = _JsonList() if output == "json" else _TimerTable()
    async for page in read_pages(pending, wanted):
        if page.timers:
            click.echo(printer.page(page.timers), nl=False)
            listed.add(page.timers)
    count = await pending.pending()
    click.echo(printer.end(listed, count), nl=False)


class _Table:
    """Lines with aligned columns; the titles are the first line."""

    def __init__(self, titles: Sequence[str]) -> None:
        self._titles = tuple(titles)
        self._widths: list[int] = []

    def lines(self, rows: list[tuple[str, ...]]) -> str:
        if not self._widths:
            rows.insert(0, self._titles)
            self._widths = [0] * len(self._titles)
        longest = (max(map(cell_len, column)) for column in zip(*rows, strict=True))
        self._widths = list(map(max, self._widths, longest))
        return "".join(map(self._line, rows))

    def _line(self, row: Sequence[str]) -> str:
        padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(row, self._widths, strict=True))
        return f"{'  '.join(padded).rstrip()}\n"


class _TimerTable(_Table):
    """The table of a list."""

    def __init__(self) -> None:
        super().__init__(_TITLES)

    def page(self, timers: Sequence[Timer]) -> str:
        return self.lines([_cells(timer) for timer in timers])

    def end(self, listed: _Listed, pending: int) -> str:
        count = listed.purposes.total()
        of = f" of {pending:,} pending" if pending > count else ""  # Cloud Tasks counts the timers of one object once
        parts = ", ".join(f"{number:,} {purpose}" for purpose, number in sorted(listed.purposes.items()))
        first = f"; the first is due at {format_instant(listed.first)}" if listed.first else ""
        inform(f"{plural(count, 'timer')}{of}{f': {parts}' if parts else ''}{first}")
        return ""


class _JsonList:
    """One JSON object, printed while it is read."""

    def __init__(self) -> None:
        self._is_empty = True

    def page(self, timers: Sequence[Timer]) -> str:
        begin = self._begin()
        return begin + ",\n".join(f"  {timer_line(timer)}" for timer in timers)

    def end(self, listed: _Listed, pending: int) -> str:
        begin = self._begin() if self._is_empty else ""
        totals = {
            "listed": listed.purposes.total(),
            "byPurpose": dict(sorted(listed.purposes.items())),
            "firstDueAt": format_instant(listed.first) if listed.first else None,
            "pending": pending,
        }
        return f"{begin}\n], {json.dumps(totals)[1:]}\n"

    def _begin(self) -> str:
        begin, self._is_empty = ('{"timers": [\n' if self._is_empty else ",\n"), False
        return begin


def _cells(timer: Timer) -> tuple[str, ...]:
    ref = timer.ref
    names = map(printable, (ref.namespace or "-", ref.kind, ref.name, str(timer.purpose)))
    return (*names, format_instant(timer.due_at.replace(microsecond=0)), str(timer.attempts))


class TimerChange(StrEnum):
    """What happened to a timer since the read before."""

    PENDING = "pending"
    """It is listed for the first time."""
    MOVED = "moved"
    """It was set again for another time."""
    RETRIED = "retried"
    """Its delivery failed, and is repeated."""
    GONE = "gone"
    """It fired, and its object has no other one of this purpose."""


class PendingChanges:
    """Compares each read of the pending timers with the read before; keeps the timers of one read in memory."""

    def __init__(self) -> None:
        self._before: dict[TimerKey, list[Timer]] = {}

    def find(self, timers: Sequence[Timer]) -> Iterator[tuple[TimerChange, Timer]]:
        """Yield what changed since the read before, in the order of the engine; the timers that are gone come last."""
        before, self._before = self._before, {}
        for timer in timers:
            listed = self._before.setdefault(timer.key, [])  # several: Cloud Tasks, or a set during the read
            if known := before.get(timer.key):
                if change := _change_of(timer, known):
                    yield change, timer
            elif not listed:
                yield TimerChange.PENDING, timer
            listed.append(timer)
        yield from ((TimerChange.GONE, of_key[-1]) for key, of_key in before.items() if key not in self._before)


def _change_of(timer: Timer, known: Sequence[Timer]) -> TimerChange | None:
    """Return what happened to a timer since the read before, which had these timers of its key."""
    of_same_time = [one for one in known if one.due_at == timer.due_at]
    if timer.attempts > max(one.attempts for one in of_same_time or known):
        return TimerChange.RETRIED
    return None if of_same_time else TimerChange.MOVED
