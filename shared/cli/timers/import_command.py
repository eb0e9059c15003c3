"""`timers import`: set the timers of an export; not `import.py`, which Python could not import."""

import itertools
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO

import click

from shared.adapters.clock import SystemClock
from shared.bootstrap.open_timers import open_timers
from shared.cli.input.command import command
from shared.cli.output.plural import plural
from shared.cli.output.width import echo
from shared.cli.timers.place import settings_of
from shared.cli.timers.timer_lines import LineError, parse_lines
from shared.errors import TryLaterError, TtlError
from shared.messages import TIMERS_MAX, Timer
from shared.ports import Timers


@command("import")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), default="-", metavar="[FILE]")
@click.option(
    "--to",
    metavar="ADDRESS",
    help="Where to set the timers: sqlite:FILE, nats://HOST:PORT or another value of $TTL_TIMERS. "
    "Default: $TTL_TIMERS.",
)
async def import_timers(file: Path, *, to: str | None) -> None:
    """Set the timers of an export: of FILE, or of standard input.

    All lines are checked before the first timer is set. In SQLite, a timer of the export replaces the pending one of
    its object and purpose, so import before the process uses the new timers. If an export of NATS or Cloud Tasks has
    several timers of one object and purpose, the earliest is set. An import that was interrupted can be repeated.
    """
    settings = settings_of(to, "--to")
    if settings.timers is None:
        raise click.UsageError("--to: expected where to set the timers, as TTL_TIMERS is not set; set --to ADDRESS")
    with _opened(file) as lines:
        name = "standard input" if file == Path("-") else f"{file}"
        try:
            earliest = _earliest_in(parse_lines(lines, name))
        except LineError as error:
            raise TtlError(f"{error}; no timer was set") from None
        lines.seek(0)
        count = len(earliest)
        async with open_timers(settings, SystemClock()) as target:
            await _set(target, _only(earliest, parse_lines(lines, name)), count)
    echo(f"{plural(count, 'timer')} set in {settings.timers}")


def _earliest_in(timers: Iterator[Timer]) -> dict[int, datetime]:
    """Return the earliest due time of each key; by its hash, since an export may have a million timers."""
    earliest: dict[int, datetime] = {}
    for timer in timers:
        key = hash(timer.key)
        earliest[key] = min(earliest.get(key, timer.due_at), timer.due_at)
    return earliest


def _only(earliest: dict[int, datetime], timers: Iterator[Timer]) -> Iterator[Timer]:
    """Yield the earliest timer of each key: too early costs a read, whose answer sets the right timer."""
    for timer in timers:
        if earliest.get(key := hash(timer.key)) == timer.due_at:
            del earliest[key]
            yield timer


async def _set(target: Timers, found: Iterator[Timer], count: int) -> None:
    done = 0
    while batch := list(itertools.islice(found, TIMERS_MAX)):
        try:
            await target.set(batch)
        except TryLaterError as error:
            raise TtlError(f"{error}; {done:,} of {plural(count, 'timer')} are set: repeat the import") from error
        done += len(batch)


@contextmanager
def _opened(file: Path) -> Iterator[IO[bytes]]:
    """Open a file that is read twice; standard input is stored in a temporary file."""
    if file == Path("-"):
        with _spooled() as stored:
            yield stored
        return
    try:
        opened = file.open("rb")
    except OSError as error:
        raise TtlError(f"FILE: {file} cannot be read: {error}") from error
    with opened:
        yield opened


def _spooled() -> IO[bytes]:
    try:
        stored = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        shutil.copyfileobj(sys.stdin.buffer, stored)
        stored.seek(0)
    except OSError as error:  # a Pod whose file system is read-only has no /tmp
        raise TtlError(
            f"FILE: standard input cannot be stored: {error}; set TMPDIR to a folder, or name FILE"
        ) from error
    return stored
