"""Text for a terminal: counts and instants, lines that fit its width, and messages on standard error beside the output.

Into a pipe or a file nothing is shortened or wrapped, unless $COLUMNS is set: scripts search whole lines. If the log is
JSON, the messages are JSON lines.
"""

import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, TextIO

import click
from rich.cells import cell_len, chop_cells

from shared.adapters.telemetry.log_lines import is_json
from shared.core.values.objects import format_instant, printable
from shared.core.values.timing import format_duration


def plural(count: int, one: str, several: str = "") -> str:
    """`1 child`, `2 children`."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


def describe_time(instant: datetime, now: datetime) -> str:
    """Return `in 5m` or `3h ago`."""
    distance = instant - now
    if distance < timedelta(0):
        return f"{format_duration(now - instant)} ago"
    return f"in {format_duration(distance)}"


def describe_instant(instant: datetime, now: datetime) -> str:
    """Return `2026-01-02T03:04:05Z (in 5m)`."""
    is_now = abs(instant - now) < timedelta(seconds=1)
    return f"{format_instant(instant)} ({'just now' if is_now else describe_time(instant, now)})"


def instant_as_json(instant: datetime | None) -> str | None:
    """Return an instant as RFC 3339 in UTC; None, which is null, if it is unknown."""
    return None if instant is None else format_instant(instant)


LABEL_COLUMNS = 12
"""Columns before the text of a line with a label, as in `explain`."""

_WIDTH_MIN = 40
"""The smallest width; a narrower terminal wraps the lines itself."""

_WORD = re.compile(r"(?:`[^`]*`|\S)+")
"""A word, or text between backticks with the characters that adjoin it."""

_SHELL_WORD = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|\S)+""")
_COMMAND = re.compile(r"`(?:kubectl|ttl-after-finished) ")
_QUOTES = re.compile(r"""['"\\]""")


def terminal_width(stream: TextIO | None = None) -> int | None:
    """Return the width by $COLUMNS, else of the terminal on a stream; None if there is neither.

    Args:
        stream: The stream; None for standard output.
    """
    given = os.environ.get("COLUMNS", "")  # noqa: TID251 - of the terminal, not a setting
    columns = int(given) if given.isdecimal() else 0
    if not columns:
        try:
            columns = os.get_terminal_size((stream or sys.stdout).fileno()).columns
        except (OSError, ValueError):  # a pipe, a file, or a stream of a test
            return None
    return max(columns, _WIDTH_MIN) if columns > 0 else None


def echo(text: str, *, indent: int = 0) -> None:
    """Print one line of prose, wrapped if there is a terminal.

    Args:
        text: One line.
        indent: Columns before it; the lines after the first get two more.
    """
    width = terminal_width()
    first = " " * indent
    click.echo("\n".join(wrap(text, width, first=first, indent=indent + 2)) if width else first + text)


def wrap(text: str, width: int, *, first: str = "", indent: int = 0) -> list[str]:
    """Wrap prose at word borders; text between backticks stays on one line if it fits one.

    Args:
        text: One line.
        width: The most columns of a line.
        first: The text before it on the first line.
        indent: Columns before each other line; fewer than `width`.

    Returns:
        At least one line. A longer word is folded. A longer `kubectl` command continues with a backslash, so that it
        can be pasted.
    """
    if cell_len(first) + cell_len(text) <= width:
        return [first + text]
    lines, line = [], first
    is_empty = True  # whether the line has nothing but its indent
    for word in _pieces(text, width - indent):
        if not is_empty and cell_len(line) + 1 + cell_len(word) > width:
            lines.append(line)
            line, is_empty = " " * indent, True
        if is_empty and cell_len(line) + cell_len(word) > width:  # only a command is as long
            start, *rest = _indented(word, width, indent)
            if line.strip() and cell_len(line) + cell_len(start.strip()) <= width:
                start = line + start.strip()
            elif line.strip():
                lines.append(line.rstrip())
            *before, line = start, *rest
            lines += before
        else:
            line += word if is_empty else f" {word}"
        is_empty = False
    return [*lines, line]


def _indented(command: str, width: int, indent: int) -> list[str]:
    """Indent a command that fits a line as far as the line has room; divide only a longer one."""
    if (left := width - cell_len(command)) >= 0:
        return [" " * min(indent, left) + command]
    return wrap_command(command, width, indent=indent)


def _pieces(text: str, room: int) -> Iterator[str]:
    """Yield the parts that are not divided: words, text between backticks if it fits, and whole commands."""
    for word in _WORD.findall(text):
        if cell_len(word) <= room or _COMMAND.search(word):
            yield word
        else:
            yield from (piece for part in word.split() for piece in chop_cells(part, room))


def wrap_labelled(lines: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield lines with a label each, wrapped if there is a terminal; a label that repeats is printed once."""
    width, before = terminal_width(), ""
    for label, line in lines:
        first, text = f"  {'' if label == before else label:9} ", printable(line)
        before = label
        yield from wrap(text, width, first=first, indent=LABEL_COLUMNS) if width else [first + text]


def wrap_command(command: str, width: int, *, indent: int = 0) -> list[str]:
    r"""Wrap a shell command so that it can be pasted: each line but the last ends with a backslash.

    Args:
        command: One line.
        width: The most columns of a line; only a word with quotes or backslashes may be longer.
        indent: Columns before each line that has room for them.

    Returns:
        At least one line.
    """
    if indent + cell_len(command) <= width:
        return [" " * indent + command]
    lines, line = [], ""
    for word in _SHELL_WORD.findall(command):
        if line and cell_len(line) + len(" ") + cell_len(word) + len(" \\") > width:
            lines.append(f"{line} \\")
            line = ""
        if line:
            line += f" {word}"
            continue
        left = " " * indent if indent + cell_len(word) + len(" \\") <= width else ""  # an indent would divide the word
        is_plain = not _QUOTES.search(word)
        *before, rest = chop_cells(word, width - len(" \\")) if is_plain else [word]
        lines += [f"{part}\\" for part in before]
        line = left + rest
    return [*lines, line]


def shorten(text: str, width: int) -> str:
    """Shorten a long name in its middle, since generated names differ at their ends."""
    if cell_len(text) <= width:
        return text
    tail = max(width - 1, 0) // 2
    return f"{text[: max(width - 1 - tail, 0)]}…{text[len(text) - tail :]}"


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
