"""The timer engine of TTL_TIMERS: a process runs it, and a command opens its timers without firing them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from shared.adapters.config.settings import Settings, SettingsError
from shared.adapters.config.timers_address import CloudTasksAddress, NatsAddress, SqliteAddress
from shared.errors import TryLaterError, TtlError
from shared.messages import Message, Timer, TimerKey
from shared.ports import Clock, ConnectedTimers, DurableTimers, PendingTimers, Publisher, Timers

KNOWN_MAX = 100_000
"""Timers that are known at most; more are not counted."""


class UnstoredTimers:
    """The timers whose last attempt to store them failed, so that the end of a process can say so.

    Attributes:
        reason: Why the last attempt of any timer failed; empty if none did.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._due: dict[TimerKey, datetime] = {}

    def failed(self, timers: Sequence[Timer], reason: str, now: datetime) -> None:
        """Note timers that were not stored, or of which that is unknown."""
        self.reason = reason
        if len(self._due) + len(timers) > KNOWN_MAX:
            self._due = {key: due_at for key, due_at in self._due.items() if due_at > now}
        for timer in timers[: KNOWN_MAX - len(self._due)]:
            self._due[timer.key] = timer.due_at

    def stored(self, timers: Sequence[Timer]) -> None:
        """Note timers that were stored."""
        if self._due:
            for timer in timers:
                self._due.pop(timer.key, None)

    def count(self, now: datetime) -> int:
        """Return how many of them are not due yet; the objects of the others were due, and sweeps delete those."""
        return sum(due_at > now for due_at in self._due.values())


DEFAULT_ADDRESS = SqliteAddress(Path("timers.db"))
"""Where the timers are if TTL_TIMERS is not set."""


class TimerEngine:
    """The timer engine of TTL_TIMERS, as a task of the event loop; it can be started again after it was stopped.

    Args:
        settings: The settings, with the address of the timers.
        clock: The clock.
        timers: An engine that another part runs, if any. It is used as it is: this object does not start or stop it.

    Attributes:
        timers: The engine after `start`, or the given one; None before `start` and after `stop`.
        name: The name of the engine that TTL_TIMERS selects.
        unstored: The timers that the engine did not store.
    """

    def __init__(self, settings: Settings, clock: Clock, timers: Timers | None = None) -> None:
        self.timers, self.name = timers, (settings.timers or DEFAULT_ADDRESS).engine
        self.unstored = UnstoredTimers()
        self._settings, self._clock = settings, clock
        self._running: tuple[DurableTimers, asyncio.Task[None]] | None = None
        self._close_publisher: Callable[[], Awaitable[None]] | None = None

    def start(self, publisher: Publisher, close: Callable[[], Awaitable[None]] | None = None) -> Timers:
        """Start the engine in the running loop, unless there is one; then the arguments are not used.

        Args:
            publisher: Publishes the timers that fire.
            close: Closes the publisher when the engine has stopped; None if the publisher has other users.

        Raises:
            TtlError: As `build_timers` does.
        """
        if self.timers is None:
            timers = build_timers(self._settings, self._clock, publisher)
            self._close_publisher = close
            self._running = timers, asyncio.get_running_loop().create_task(timers.run(), name="timers")
            self.timers = timers
        return self.timers

    async def ended(self) -> None:
        """Wait until the engine that `start` started ends, and raise its error; return at once if there is none."""
        if self._running:
            await asyncio.shield(self._running[1])

    async def stop(self) -> None:
        """Finish the deliveries in flight, and close the engine and its publisher. `ended` raises an engine's error."""
        if self._running:
            timers, task = self._running
            task.cancel()
            await asyncio.wait([task])
            await timers.close()  # a task that is cancelled before its first step closes nothing
            self._running = self.timers = None
            if self._close_publisher:
                await self._close_publisher()


def build_timers(settings: Settings, clock: Clock, publisher: Publisher) -> DurableTimers:
    """Make the engine of TTL_TIMERS; only the chosen engine and its client library are imported.

    Raises:
        TtlError: The timer file cannot be opened, or a setting is missing. No server is contacted.
    """
    match settings.timers or DEFAULT_ADDRESS:
        case SqliteAddress(path):
            from shared.adapters.timers.sqlite.engine import SqliteTimers  # noqa: PLC0415 - only `timers` keeps timers

            return SqliteTimers(path, clock, publisher)
        case NatsAddress(urls, stream):
            return _build_nats(urls, stream, settings, clock, publisher)
        case CloudTasksAddress(queue):
            return _build_cloud_tasks(queue, settings, clock, publisher)


def _build_nats(
    urls: tuple[str, ...], stream: str, settings: Settings, clock: Clock, publisher: Publisher
) -> DurableTimers:
    """Make the engine on NATS JetStream."""
    from shared.adapters.timers.nats.engine import NatsTimers  # noqa: PLC0415 - only this engine
    from shared.adapters.timers.nats.servers import NatsServers  # noqa: PLC0415 - as above

    servers = NatsServers(
        urls, settings.nats_credentials, settings.nats_ca, settings.nats_certificate, settings.nats_key
    )
    replicas, bytes_max = settings.nats_replicas, settings.nats_bytes
    return NatsTimers(servers, stream, clock, publisher, replicas=replicas, bytes_max=bytes_max)


def _build_cloud_tasks(queue: str, settings: Settings, clock: Clock, publisher: Publisher) -> DurableTimers:
    """Make the engine on Cloud Tasks.

    Raises:
        SettingsError: TTL_TASKS_TARGET or TTL_TASKS_ACCOUNT is not set.
    """
    if not settings.tasks_target:
        raise SettingsError("TTL_TASKS_TARGET: expected the URL of `timers`, which cloudtasks needs, got none")
    if not settings.tasks_account:
        raise SettingsError("TTL_TASKS_ACCOUNT: expected the e-mail of an account, which cloudtasks needs, got none")
    from shared.adapters.timers.cloudtasks.engine import CloudTasksTimers  # noqa: PLC0415 - 400 ms, and only this engine
    from shared.adapters.timers.cloudtasks.tasks import TaskForm  # noqa: PLC0415 - as above

    audience = settings.callers_audience or settings.tasks_target
    form = TaskForm(queue, settings.tasks_target, settings.tasks_account, audience)
    return CloudTasksTimers(form, clock, publisher)


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
