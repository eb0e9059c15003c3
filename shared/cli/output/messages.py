"""Messages on standard error, beside a command's output: text, or JSON lines if the log is JSON."""

import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from shared.adapters.telemetry.log_lines import is_json
from shared.cli.output.width import terminal_width, wrap

COUNT_STEP = 1_000
"""Documents or objects between two updates of the count on the terminal."""


def wrapped(text: str, *, first: str = "") -> str:
    """Wrap a message to the terminal of standard error; without a terminal it stays as it is, since scripts search it.

    Args:
        text: The message.
        first: What is printed before it on its first line; it is not a part of the result.
    """
    width = terminal_width(sys.stderr)
    if width is None:
        return text
    head, *rest = text.split("\n")
    lines = [*wrap(head, width, first=first, indent=2), *(line for one in rest for line in wrap(one, width, indent=2))]
    return "\n".join(lines)[len(first) :]


def inform(text: str) -> None:
    """Print a message; if the log is JSON, log it at level info."""
    if is_json():
        logging.getLogger("ttl").info(text)
    else:
        click.echo(wrapped(text), err=True)


def warn(text: str, *, fg: str | None = None, bold: bool = False) -> None:
    """Print a warning, colored on a terminal; if the log is JSON, log it at level warning, which every command logs."""
    if is_json():
        logging.getLogger("ttl").warning(text)
    else:
        click.secho(wrapped(text), fg=fg, bold=bold, err=True)


def confirm(question: str) -> None:
    """Ask on the terminal, and end the command unless the answer is yes."""
    click.confirm(question, abort=True, err=True)


def show_progress(text: str) -> None:
    """Replace the current line of a terminal on standard error; an empty text clears the line."""
    if sys.stderr.isatty() and not is_json():
        click.echo(f"\r\x1b[K{text}", nl=False, err=True)


@contextmanager
def counted(what: str) -> Iterator[Callable[[int], None]]:
    """Show a count on a terminal on standard error until the block ends.

    Args:
        what: What is counted: `objects`.

    Yields:
        Adds to the count; the terminal shows each COUNT_STEP.
    """
    total = 0

    def add(number: int) -> None:
        nonlocal total
        total, before = total + number, total
        if total // COUNT_STEP != before // COUNT_STEP:
            show_progress(f"{total} {what}")

    try:
        yield add
    finally:
        if total >= COUNT_STEP:
            show_progress("")


def show_count(documents: Iterable[Any]) -> Iterator[Any]:
    """Yield the same documents, and show their count on a terminal until all are read."""
    with counted("documents") as add:
        for one in documents:
            add(1)
            yield one
