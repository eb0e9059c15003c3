"""Open the timers of TTL_TIMERS for a command: they are read or set, and this process fires none."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import NoReturn

from shared.adapters.config.settings import Settings
from shared.adapters.config.timers_address import SqliteAddress
from shared.bootstrap.timer_engine import DEFAULT_ADDRESS, build_timers
from shared.errors import TryLaterError, TtlError
from shared.messages import Message
from shared.ports import Clock, ConnectedTimers, DurableTimers, PendingTimers

OPEN_SECONDS = 10.0
"""How long a command waits for the connection to the timers."""


class _NoPublisher:
    """The publisher of an engine that is not run."""

    async def publish(self, message: Message) -> NoReturn:
        raise TryLaterError(f"{message.id}: this process fires no timers")


@asynccontextmanager
async def open_pending(settings: Settings, clock: Clock) -> AsyncIterator[PendingTimers]:
    """Open the timers to read them, beside the processes that fire them.

    Raises:
        TtlError: The timers cannot be read.
    """
    match settings.timers or DEFAULT_ADDRESS:
        case SqliteAddress(path):
            from shared.adapters.timers.sqlite.reader import SqliteReader  # noqa: PLC0415 - of this engine only

            with closing(SqliteReader(path)) as reader:
                yield reader
        case _:
            async with _opened(settings, clock, creates=False) as timers:
                yield timers


@asynccontextmanager
async def open_timers(settings: Settings, clock: Clock) -> AsyncIterator[DurableTimers]:
    """Open the timers to set some; a file must not be used by another process.

    Raises:
        TtlError: The timers cannot be set.
    """
    async with _opened(settings, clock, creates=True) as timers:
        yield timers


@asynccontextmanager
async def _opened(settings: Settings, clock: Clock, *, creates: bool) -> AsyncIterator[DurableTimers]:
    timers = build_timers(settings, clock, _NoPublisher())
    try:
        if isinstance(timers, ConnectedTimers):
            await _connect(timers, creates=creates)
        yield timers
    finally:
        await timers.close()


async def _connect(timers: ConnectedTimers, *, creates: bool) -> None:
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            await timers.open(creates=creates)
    except TimeoutError as error:
        raise TtlError(
            f"the servers of the timers were not ready within {OPEN_SECONDS:g} s; check their address"
        ) from error
