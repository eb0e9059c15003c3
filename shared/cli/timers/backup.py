"""`timers backup`: a copy of the timer file, while a process uses it."""

from contextlib import closing
from pathlib import Path

import click

from shared.adapters.config.timers_address import SqliteAddress
from shared.cli.input.command import command
from shared.cli.output.plural import plural
from shared.cli.output.width import echo
from shared.cli.timers.place import new_file, settings_of_pending, timers_option


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
