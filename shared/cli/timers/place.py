"""Where the timers of a command are."""

from collections.abc import AsyncIterator
from typing import NoReturn

import click

from shared.adapters.config.settings import Settings, read_settings
from shared.cli.input.options import named_by_option
from shared.ports import EVERY_TIMER, PendingTimers, TimerFilter, TimerPage

timers_option = click.option(
    "--timers",
    metavar="ADDRESS",
    help="Where the timers are: sqlite:FILE, nats://HOST:PORT or another value of $TTL_TIMERS. Default: $TTL_TIMERS, "
    "else sqlite:timers.db.",
)


def settings_of(address: str | None, option: str = "--timers") -> Settings:
    """Read the settings, with the address of an option in place of $TTL_TIMERS.

    Raises:
        SettingsError: A setting or the address is invalid.
    """
    with named_by_option({"TTL_TIMERS": (option, address)}) as values:
        return read_settings(values)


async def read_pages(timers: PendingTimers, wanted: TimerFilter = EVERY_TIMER) -> AsyncIterator[TimerPage]:
    """Yield all pages of the pending timers."""
    page = await timers.page(wanted=wanted)
    yield page
    while page.after:
        page = await timers.page(page.after, wanted=wanted)
        yield page


def reject_file(path: object) -> NoReturn:
    """Raise the error of a file that exists.

    Raises:
        UsageError: Always.
    """
    raise click.UsageError(f"FILE: expected a new file, got {path}, which exists; set --force to replace it")
