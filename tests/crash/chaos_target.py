"""The target of a chaos run: a real HTTP server that refuses, hangs or is gone, behind a link that breaks."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiohttp import web

from shared.adapters.clock import SystemClock
from shared.adapters.events.cloudevents import parse_event, parse_message
from shared.messages import Timer
from tests.crash.chaos_ledger import ChaosLedger
from tests.loopback import answering_with

REFUSED = 0.03
"""The part of the deliveries that the target refuses while it is well."""

CHUNK_BYTES = 65_536

now = SystemClock().now


class Target:
    """Takes deliveries, and notes each in the ledger before anything else.

    Attributes:
        refuses: Whether it answers 503.
        answers: Cleared while it hangs.
    """

    def __init__(self, ledger: ChaosLedger, chance: random.Random) -> None:
        self.refuses = False
        self.answers = asyncio.Event()
        self.answers.set()
        self._ledger, self._chance = ledger, chance

    async def take(self, request: web.Request) -> web.Response:
        at = now()
        headers = {name.lower(): value for name, value in request.headers.items()}
        timer = parse_message(parse_event(headers, await request.read()), Timer)
        self._ledger.arrived(timer.ref.uid, timer.due_at, at)
        await self.answers.wait()
        if self.refuses or self._chance.random() < REFUSED:
            return web.Response(status=503)
        self._ledger.accepted(timer.ref.uid, timer.due_at, now())
        return web.Response(status=202)


@asynccontextmanager
async def serving(target: Target) -> AsyncIterator["Link"]:
    """Serve the target behind a link until the block ends."""
    async with answering_with(target.take) as url:
        link = Link(int(url.rpartition(":")[2]))
        await link.open()
        try:
            yield link
        finally:
            target.answers.set()
            await link.close()


class Link:
    """A TCP connection that can break: forwards what connects to its port.

    Args:
        upstream: The port on loopback to which it forwards.

    Attributes:
        port: Its own port; 0 before it was opened once.
    """

    def __init__(self, upstream: int) -> None:
        self.port = 0
        self._upstream = upstream
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        """Accept connections."""
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def drop(self) -> None:
        """Reset all connections."""
        for writer in self._open:
            writer.transport.abort()

    async def close(self) -> None:
        """Refuse connections, and reset those that are open."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.drop()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
            pair = {writer, upstream_writer}
            self._open |= pair
            try:
                await asyncio.gather(_copy(reader, upstream_writer), _copy(upstream_reader, writer))
            finally:
                self._open -= pair
                for one in pair:
                    one.transport.abort()
            return
        writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until either side ends; the end is an error, so that the other direction ends too."""
    while chunk := await reader.read(CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    raise ConnectionResetError
