"""Standard streams that cannot be written.

If standard output cannot be written, the command ends with one message and exit code 1; if its reader closed the pipe,
it ends silently. If standard error cannot be written, the command goes on: a full disk under a log must not prevent
`stop`.
"""

import io
import os
import sys
from typing import Any

import click

_STANDARD = 3
"""File descriptors below this number are standard input, output and error."""


class OutputError(OSError):
    """Standard output cannot be written, for instance because its disk is full."""


class _Output(io.FileIO):
    """Standard output that raises an error of its own class."""

    _has_reader = True

    def write(self, data: Any) -> int:
        """See `io.RawIOBase`.

        Raises:
            OutputError: The write failed.
            BrokenPipeError: The reader, such as `head`, closed the pipe; click then ends the process silently.
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
    """Standard error that drops what cannot be written."""

    def write(self, data: Any) -> int:
        """See `io.RawIOBase`."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def prepare_errors() -> None:
    """Prepare standard error; call this before anything is written or opened, including a log.

    Each closed standard stream becomes /dev/null; otherwise the next opened file or socket gets its file descriptor.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < _STANDARD:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = io.TextIOWrapper(_Errors(_STANDARD - 1, "w", closefd=False), write_through=True)
    elif sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):  # not a test's stream
        original = sys.stderr
        raw = io.BufferedWriter(_Errors(original.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, original.encoding, original.errors, line_buffering=True)


def prepare_output() -> None:
    """Prepare standard output; call this before a command writes its result.

    Raises:
        ClickException: Standard output is closed, so the result would be lost.
    """
    if sys.stdout is None:
        raise click.ClickException("standard output is closed; expected a terminal, a file, a pipe or /dev/null")
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):  # not a test's stream
        original = sys.stdout
        raw = _Output(original.fileno(), "w", closefd=False)
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw), original.encoding, original.errors, line_buffering=original.line_buffering
        )


def explain_output(error: OutputError) -> click.ClickException:
    """Return the error to show, and send what the interpreter still flushes at its end to /dev/null."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
    return click.ClickException(f"standard output cannot be written: {error.strerror}")
