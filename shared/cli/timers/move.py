"""`timers export`, `timers import` and `timers backup`: move and copy pending timers.

An export has JSON lines, a header first and the number of timers last. The last line tells a complete export from one
that was cut off.
"""

import hashlib
import itertools
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO

import click
from pydantic import ValidationError

from shared.adapters.clock import SystemClock
from shared.adapters.config.timers_address import SqliteAddress
from shared.bootstrap.timer_engine import open_pending, open_timers
from shared.cli.input.command import command
from shared.cli.output.printing import echo, inform, plural
from shared.cli.timers.place import new_file, read_pages, settings_of, settings_of_pending, timers_option
from shared.core.values.jsontext import parse_json
from shared.core.values.traceparent import TRACEPARENT
from shared.errors import TryLaterError, TtlError
from shared.messages import TIMERS_MAX, Timer
from shared.ports import PendingTimers, Timers


@command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), default="-", metavar="[FILE]")
@timers_option
@click.option(
    "--except",
    "earlier",
    type=click.Path(path_type=Path),
    metavar="EXPORT",
    help="Leave out the timers of this earlier export: only what was set since then is written.",
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
async def export(file: Path, *, timers: str | None, earlier: Path | None, force: bool) -> None:
    """Write all pending timers to FILE, or to standard output, one JSON line for each.

    The process that fires the timers may run. A timer that is set during the export may be missing. The first line has
    the version of the format, and the last line has the number of timers: an export that was cut off is refused by
    `timers import`.
    """
    known = _read_known(earlier) if earlier else frozenset()
    settings = settings_of_pending(timers)
    source = settings.timers.path if isinstance(settings.timers, SqliteAddress) else None
    async with open_pending(settings, SystemClock()) as pending:
        if file == Path("-"):
            count = await _write(pending, known, click.echo)
        else:
            with new_file(file, force=force, source=source) as part, part.open("w", encoding="utf-8") as lines:
                count = await _write(pending, known, lambda line: lines.write(f"{line}\n"))
    inform(f"{plural(count, 'timer')} exported")


async def _write(pending: PendingTimers, known: AbstractSet[bytes], write: Callable[[str], object]) -> int:
    write(first_line())
    count = 0
    async for page in read_pages(pending):
        lines = [line for line in map(exported_line, page.timers) if not known or _digest(line) not in known]
        if lines:
            write("\n".join(lines))
        count += len(lines)
    write(last_line(count))
    return count


def _read_known(earlier: Path) -> AbstractSet[bytes]:
    try:
        with earlier.open("rb") as file:
            return {_digest(exported_line(timer)) for timer in parse_lines(file, f"{earlier}")}
    except OSError as error:
        raise TtlError(f"--except: {earlier} cannot be read: {error}") from error


def _digest(line: str) -> bytes:
    return hashlib.blake2b(line.encode(), digest_size=12).digest()  # about 100 MB for a million lines


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


@command()
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@timers_option
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
async def backup(file: Path, *, timers: str | None, force: bool) -> None:
    """Copy the timer file to FILE, while a process uses it.

    FILE is a timer file with all timers that were set before the copy began. For timers in NATS, use `nats stream
    backup`, or `timers export`, which works with each engine.
    """
    from shared.adapters.timers.sqlite.reader import SqliteReader  # noqa: PLC0415 - only if it is used

    address = settings_of_pending(timers).timers
    if not isinstance(address, SqliteAddress):
        raise click.UsageError(f"--timers: expected sqlite:FILE, got {address}; use `timers export`")
    with closing(SqliteReader(address.path)) as reader, new_file(file, force=force, source=address.path) as part:
        await reader.copy(part)
        with closing(SqliteReader(part)) as copied:
            count = await copied.pending()
    echo(f"{plural(count, 'timer')} copied to {file}")


EXPORT_FORMAT = "ttl-after-finished/timers"
EXPORT_VERSION = 1

EXPORT_LINE_BYTES = 64 * 1024
"""Maximum length of a line; the longest timer that Kubernetes' names allow takes 2 KiB."""


class LineError(TtlError):
    """A line of an export is wrong."""


def first_line() -> str:
    """Return the header."""
    return json.dumps({"format": EXPORT_FORMAT, "version": EXPORT_VERSION})


def timer_line(timer: Timer) -> str:
    """Return the line of a timer: the data of `timer.fired`."""
    return timer.model_dump_json(by_alias=True, warnings=False)  # the purpose may be of a later version


def exported_line(timer: Timer) -> str:
    """Return the line of a timer in an export: also with the span that set it, which is no data of `timer.fired`."""
    line = timer_line(timer)
    return f'{line[:-1]},"{TRACEPARENT}":"{timer.traceparent}"}}' if timer.traceparent else line


def change_line(change: str, timer: Timer) -> str:
    """Return the line of a change: the data of the timer, after what happened to it."""
    return f'{{"change":"{change}",{timer_line(timer)[1:]}'


def last_line(count: int) -> str:
    """Return the line after the timers."""
    return json.dumps({"count": count})


def parse_lines(file: IO[bytes], name: str) -> Iterator[Timer]:
    """Read the timers of an export.

    Args:
        file: The file, at its begin.
        name: What an error calls the file.

    Raises:
        LineError: A line is wrong, or the export is not complete.
    """
    header, line = f"{name}: line 1", file.readline(EXPORT_LINE_BYTES + 1)
    found = _parse(line, header)
    if found.get("format") != EXPORT_FORMAT:
        raise LineError(f"{header}: format: expected {EXPORT_FORMAT!r}, got {_quote(found.get('format'))}")
    if found.get("version") != EXPORT_VERSION:
        raise LineError(f"{header}: version: expected {EXPORT_VERSION}, got {_quote(found.get('version'))}")
    count = 0
    while line := file.readline(EXPORT_LINE_BYTES + 1):
        place = f"{name}: line {count + 2}"
        if len(line) > EXPORT_LINE_BYTES:
            raise LineError(f"{place}: expected at most {EXPORT_LINE_BYTES} bytes")
        if line.startswith(b'{"count":'):
            _check_end(_parse(line, place), count, place, file)
            return
        yield _parse_timer(line, place)
        count += 1
    raise LineError(f"{name}: line {count + 2}: expected a timer or the count, got the end: the export is not complete")


def _check_end(found: dict[str, object], count: int, place: str, file: IO[bytes]) -> None:
    if found["count"] != count:
        raise LineError(f"{place}: count: expected {count}, the number of lines before, got {_quote(found['count'])}")
    if file.read(1):
        raise LineError(f"{place}: expected the end of the export, got more lines")


def _parse(line: bytes, place: str) -> dict[str, object]:
    try:
        found = parse_json(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise LineError(f"{place}: expected a JSON object of an export by `timers export`")
    return found


def _parse_timer(line: bytes, place: str) -> Timer:
    try:
        return Timer.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(map(str, first["loc"]))
        problem = first["msg"].removeprefix("Value error, ")
        raise LineError(f"{place}: {f'{path}: ' if path else ''}{problem}") from None


def _quote(value: object) -> str:
    return json.dumps(value)[:100]
