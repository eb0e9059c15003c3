"""Where the timers of a command are, and the new file to which it writes them."""

import hashlib
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import click

from shared.adapters.config.settings import Settings, read_settings, state_folder
from shared.adapters.config.timers_address import SqliteAddress
from shared.bootstrap.timer_engine import DEFAULT_ADDRESS
from shared.cli.input.options import named_by_option
from shared.cli.output.printing import inform
from shared.core.values.objects import printable
from shared.errors import TtlError
from shared.ports import EVERY_TIMER, PendingTimers, TimerFilter, TimerPage

timers_option = click.option(
    "--timers",
    metavar="ADDRESS",
    help="Where the timers are: sqlite:FILE, nats://HOST:PORT or another value of $TTL_TIMERS. Default: $TTL_TIMERS, "
    "else the file of `run` in $XDG_STATE_HOME/ttl-after-finished or ~/.local/state/ttl-after-finished, else "
    "sqlite:timers.db.",
)

_OF_RUN = re.compile(r"timers-[0-9a-f]+(-dry-run)?\.db")
_DRY_RUN = "-dry-run"

_PRIVATE = 0o600
"""Mode of the file: a timer has an object's name, its namespace and when it is deleted."""


def settings_of(address: str | None, option: str = "--timers") -> Settings:
    """Read the settings, with the address of an option in place of $TTL_TIMERS.

    Raises:
        SettingsError: A setting or the address is invalid.
    """
    with named_by_option({"TTL_TIMERS": (option, address)}) as values:
        return read_settings(values)


def settings_of_pending(address: str | None, *, of_dry_run: bool = False) -> Settings:
    """Read the settings for timers to be read: those of the option, else of $TTL_TIMERS, else of a file that is found.

    Args:
        address: The option `--timers`.
        of_dry_run: Whether the file of a `run --dry-run` counts if there is no other one.

    Raises:
        SettingsError: A setting or the address is invalid.
        TtlError: Neither is set, and there is no timer file, or the files of several `run`.
    """
    settings = settings_of(address)
    if settings.timers is not None:
        return settings
    path = _find_file(of_dry_run=of_dry_run)
    inform(f"timers: sqlite:{printable(str(path))}")
    return settings.model_copy(update={"timers": SqliteAddress(path)})


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _find_file(*, of_dry_run: bool) -> Path:
    """Find the timer file of the only cluster on which `run` has worked; else the one in this folder."""
    try:
        files = [one for one in _folder_of_run().iterdir() if _OF_RUN.fullmatch(one.name) and _has_content(one)]
    except FileNotFoundError:
        files = []
    except (OSError, RuntimeError) as error:
        raise TtlError(f"cannot look for the timer file of `run`: {error}; set --timers ADDRESS") from None
    dry, real = ([one for one in sorted(files) if one.stem.endswith(_DRY_RUN) is is_dry] for is_dry in (True, False))
    here = [DEFAULT_ADDRESS.path] if _has_content(DEFAULT_ADDRESS.path) else []
    found = real or here or (dry if of_dry_run else [])
    if len(found) == 1:
        return found[0]
    if dry and not found:
        raise TtlError("expected the timer file of a `run`, got only that of a dry run; set --timers ADDRESS")
    if not found:
        raise TtlError(
            f"expected the timer file of a `run` in {printable(str(_folder_of_run()))}, "
            f"or {DEFAULT_ADDRESS.path} here, got none; set --timers ADDRESS. "
            "For an installation, run the command in a Pod of `timers`, or of `standalone`: "
            "kubectl -n ttl-after-finished exec POD -- ttl-after-finished timers ls"
        )
    listed = printable(", ".join(f"sqlite:{one}" for one in found))
    raise TtlError(f"expected the timer file of one `run`, got {len(found)}; set --timers to one of them: {listed}")


def make_path_of_run(server: str, *, dry_run: bool) -> Path:
    """Return one file for each cluster: a timer of another cluster would find no object, and would be dropped.

    Raises:
        TtlError: The folder cannot be created.
    """
    digest = hashlib.sha256(server.encode()).hexdigest()[:12]
    try:
        folder = _folder_of_run()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:
        raise TtlError(f"cannot create the folder of the timer file: {error}; set --timers sqlite:FILE") from None
    return folder / f"timers-{digest}{_DRY_RUN if dry_run else ''}.db"


def _folder_of_run() -> Path:
    return state_folder() / "ttl-after-finished"


async def read_pages(timers: PendingTimers, wanted: TimerFilter = EVERY_TIMER) -> AsyncIterator[TimerPage]:
    """Yield all pages of the pending timers."""
    page = await timers.page(wanted=wanted)
    yield page
    while page.after:
        page = await timers.page(page.after, wanted=wanted)
        yield page


def _reject_file(path: object) -> NoReturn:
    """Raise the error of a file that exists.

    Raises:
        UsageError: Always.
    """
    raise click.UsageError(f"FILE: expected a new file, got {path}, which exists; set --force to replace it")


@contextmanager
def new_file(path: Path, *, force: bool, source: Path | None = None) -> Iterator[Path]:
    """Create a file under another name, and give it its name after the block; after an error, delete it.

    So a file is complete as soon as it has its name.

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
        _reject_file(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE))
        yield part
        if force:
            part.replace(path)
        else:
            os.link(part, path)  # unlike a rename, it never replaces a file
    except FileExistsError:
        _reject_file(path)
    except OSError as error:
        raise TtlError(f"FILE: {path} cannot be written: {error}") from error
    finally:
        for ending in ("", "-journal", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                Path(f"{part}{ending}").unlink()
