"""Where the timers of a benchmark are: a folder, and a server if the engine has one."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import nats as nats_client
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from tests.nats_servers import NatsServer, nats_server

WRITES_AT_ONCE = 512
"""Bare publishes in flight, as many as the engine may have writes."""

BARE_MAX = 50_000
"""Bare publishes to measure."""

BODY = b"x" * 200
"""As long as the reference of a timer."""


@dataclass
class Store:
    """The store of an engine.

    Attributes:
        address: The value of TTL_TIMERS.
        folder: Where its files are.
    """

    address: str
    folder: Path

    def server_rss_mb(self) -> float:
        """The memory of its server; 0 without one."""
        return 0.0

    async def bare_publishes(self, _count: int) -> dict[str, float]:
        """What the server takes without the engine; nothing without a server."""
        return {}


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[Store]:
    """A file."""
    yield Store(f"sqlite:{folder}/timers.db", folder)


@dataclass
class _NatsStore(Store):
    server: NatsServer

    def server_rss_mb(self) -> float:
        return self.server.rss_bytes() / 1024**2

    async def bare_publishes(self, count: int) -> dict[str, float]:
        """Publish messages of the size of a timer to a plain stream, each with a subject of its own.

        `bare_per_s` is what the server takes: all answers come by one subscription and are only counted. `client_per_s`
        is what the client's own `JetStreamContext.publish` takes, which makes a future and a timer for each.
        """
        connection = await nats_client.connect(self.server.url)
        await connection.jetstream().add_stream(name="bare", subjects=["bare.>"])
        messages, inbox = min(count, BARE_MAX), connection.new_inbox()
        places, stored = asyncio.Semaphore(WRITES_AT_ONCE), asyncio.Event()
        left = messages

        async def receive(answer: Msg) -> None:
            nonlocal left
            assert b'"error"' not in answer.data, answer.data
            left -= 1
            places.release()
            if not left:
                stored.set()

        await connection.subscribe(inbox, cb=receive)
        started = time.perf_counter()
        for number in range(messages):
            await places.acquire()
            await connection.publish(f"bare.{number}", BODY, reply=inbox)
        await stored.wait()
        seconds = time.perf_counter() - started
        client_seconds = await _publish_by_client(connection.jetstream(), messages)
        await connection.jetstream().delete_stream("bare")
        await connection.close()
        return {"bare_per_s": messages / seconds, "client_per_s": messages / client_seconds}


async def _publish_by_client(stream: JetStreamContext, messages: int) -> float:
    """Publish with the client's own method; seconds."""
    numbers = iter(range(messages))

    async def publish() -> None:
        for number in numbers:
            await stream.publish(f"bare.{number}", BODY)

    started = time.perf_counter()
    await asyncio.gather(*(publish() for _ in range(WRITES_AT_ONCE)))
    return time.perf_counter() - started


@asynccontextmanager
async def nats(folder: Path) -> AsyncIterator[Store]:
    """A stream of one server."""
    with nats_server(folder / "nats") as server:
        yield _NatsStore(f"{server.url}/timers", folder, server)


STORES: dict[str, Callable[[Path], AbstractAsyncContextManager[Store]]] = {"sqlite": sqlite, "nats": nats}
