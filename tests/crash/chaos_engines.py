"""The timer engines of a chaos run: the address of each, and its server to kill, if it has one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.builders import not_none
from tests.crash.chaos_target import Link
from tests.nats_servers import NatsServer, nats_server


@dataclass
class ChaosEngine:
    """An engine under chaos.

    Attributes:
        address: The value of TTL_TIMERS.
        processes: How many processes of `timers` share the work.
        link: What the processes reach the server by; None if there is no server.
    """

    address: str
    processes: int = 1
    link: Link | None = None

    async def kill_server(self) -> None:
        """Kill the server with SIGKILL."""

    async def start_server(self) -> None:
        """Start the server over the same files, and wait until it is ready."""


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[ChaosEngine]:
    """One process over a file."""
    yield ChaosEngine(f"sqlite:{folder}/timers.db")


@dataclass
class _NatsEngine(ChaosEngine):
    server: NatsServer | None = None

    async def kill_server(self) -> None:
        await asyncio.to_thread(not_none(self.server).kill)

    async def start_server(self) -> None:
        await asyncio.to_thread(not_none(self.server).start)


@asynccontextmanager
async def nats(folder: Path) -> AsyncIterator[ChaosEngine]:
    """Two processes that share a stream of one server."""
    with nats_server(folder / "nats") as server:
        link = Link(server.port)
        await link.open()
        try:
            yield _NatsEngine(f"nats://127.0.0.1:{link.port}", 2, link, server)
        finally:
            await link.close()


CHAOS_ENGINES: dict[str, Callable[[Path], AbstractAsyncContextManager[ChaosEngine]]] = {
    "sqlite": sqlite,
    "nats": nats,
}
