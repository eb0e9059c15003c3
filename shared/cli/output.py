"""Standard output that cannot be written to: one sentence and exit code 1, and for a closed pipe silence.

Standard error that cannot be written to ends nothing: a full disk under a log must not keep `stop` from its work.
"""

import io
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import click

from shared.cli import options

_STANDARD = 3
"""Standard input, output and error are the file descriptors below."""


class OutputError(OSError):
    """Standard output takes no more, for instance since its disk is full."""


class _Output(io.FileIO):
    """Standard output that tells its own errors from those of other files."""

    _has_reader = True

    def write(self, data: Any) -> int:
        """See `io.RawIOBase`.

        Raises:
            OutputError: The write failed.
            BrokenPipeError: The reader, such as `head`, has seen enough; click ends the process quietly.
        """
        if not self._has_reader:  # the interpreter flushes again at its end, and would report the error a second time
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except BrokenPipeError:
            self._has_reader = False
            raise
        except OSError as error:
            raise OutputError(error.errno, error.strerror) from None


class _Errors(io.FileIO):
    """Standard error: what cannot be written is lost."""

    def write(self, data: Any) -> int:
        """See `io.RawIOBase`."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def prepare_errors() -> None:
    """Call before anything is written or opened, a log too.

    A standard stream that is closed becomes /dev/null: else the next file or socket gets its number.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < _STANDARD:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = io.TextIOWrapper(_Errors(_STANDARD - 1, "w", closefd=False), write_through=True)
    elif sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):  # otherwise a test's
        known = sys.stderr
        raw = io.BufferedWriter(_Errors(known.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, known.encoding, known.errors, line_buffering=True)


def prepare_output() -> None:
    """Call before anything is answered.

    Raises:
        ClickException: Standard output is closed: what the command answers would be lost.
    """
    if sys.stdout is None:
        raise click.ClickException("standard output is closed; expected a terminal, a file, a pipe or /dev/null")
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):  # otherwise a test's
        known = sys.stdout
        raw = _Output(known.fileno(), "w", closefd=False)
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw), known.encoding, known.errors, line_buffering=known.line_buffering
        )


def explain_output(error: OutputError) -> click.ClickException:
    """The sentence; what is still to be flushed when the interpreter ends goes nowhere."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
    return click.ClickException(f"standard output cannot be written: {error.strerror}")


COUNT_STEP = 1_000
"""Documents from one count on the terminal to the next."""


def show_count(documents: Iterable[Any]) -> Iterator[Any]:
    """The same documents; while they are read, a terminal on standard error shows how many, and no more afterwards."""
    shown = False
    try:
        for count, one in enumerate(documents, start=1):
            if count % COUNT_STEP == 0:
                shown = True
                options.show_progress(f"{count} documents")
            yield one
    finally:
        if shown:
            options.show_progress("")
