"""A file that is complete as soon as it has its name."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from shared.cli.timers.place import reject_file
from shared.errors import TtlError

PRIVATE = 0o600
"""Mode of the file: a timer has an object's name, its namespace and when it is deleted."""


@contextmanager
def new_file(path: Path, *, force: bool, source: Path | None = None) -> Iterator[Path]:
    """Create a file under another name, and give it its name after the block; after an error, delete it.

    Args:
        path: Its name.
        force: Whether to replace a file of this name.
        source: The timer file that is read, which is never replaced.

    Yields:
        The path of the empty file to write.

    Raises:
        UsageError: There is a file of this name, and `force` is not set; or it is the timer file.
        TtlError: The file cannot be created.
    """
    if source is not None and path.exists() and path.samefile(source):
        raise click.UsageError(f"FILE: expected another file than the timer file, got {path}; choose another name")
    if not force and os.path.lexists(path):
        reject_file(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))
        yield part
        if force:
            part.replace(path)
        else:
            os.link(part, path)  # unlike a rename, it never replaces a file
    except FileExistsError:
        reject_file(path)
    except OSError as error:
        raise TtlError(f"FILE: {path} cannot be written: {error}") from error
    finally:
        for ending in ("", "-journal", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                Path(f"{part}{ending}").unlink()
