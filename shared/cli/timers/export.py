"""`timers export`: pending timers as JSON lines."""

import hashlib
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from pathlib import Path

import click

from shared.adapters.clock import SystemClock
from shared.adapters.config.timers_address import SqliteAddress
from shared.bootstrap.open_timers import open_pending
from shared.cli.input.command import command
from shared.cli.output.messages import inform
from shared.cli.output.plural import plural
from shared.cli.timers.place import new_file, read_pages, settings_of_pending, timers_option
from shared.cli.timers.timer_lines import exported_line, first_line, last_line, parse_lines
from shared.errors import TtlError
from shared.ports import PendingTimers


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
