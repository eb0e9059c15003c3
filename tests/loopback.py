"""An HTTP or HTTPS server of one handler, on loopback. None of its sockets is open after its block."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiohttp import web


@asynccontextmanager
async def answering_with(
    handle: Callable[[web.Request], Awaitable[web.StreamResponse]],
    *,
    tls: ssl.SSLContext | None = None,
    port: int = 0,
    **options: Any,
) -> AsyncIterator[str]:
    """Serve each method and path until the block ends. Yields the URL, without a slash at the end.

    Args:
        handle: Answers each request.
        tls: With the server's certificate, for HTTPS; None for HTTP.
        port: Where it listens; 0 for a free port.
        options: Of aiohttp's AppRunner.
    """
    app = web.Application()
    app.router.add_route("*", r"/{path:[\s\S]*}", handle)
    runner = web.AppRunner(app, **options)
    await runner.setup()
    connections = _Connections(runner, tls)
    with socket.create_server(("127.0.0.1", port)) as listener:
        listener.setblocking(False)
        accepting = asyncio.create_task(connections.accept(listener))
        try:
            yield f"{'https' if tls else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            accepting.cancel()
            await asyncio.wait([accepting])
            await runner.cleanup()
            await connections.close()


def answering_without_end(
    status: int = 200,
) -> tuple[Callable[[web.Request], Awaitable[web.StreamResponse]], list[int]]:
    """A handler whose answers have 64 MiB, and the number of bytes that each of them has sent: a client may hang up."""
    sent: list[int] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        sent.append(0)
        with suppress(ConnectionError):
            for _ in range(1024):
                await response.write(b" " * 65_536)
                sent[-1] += 65_536
        return response

    return handle, sent


class _Connections:
    """The accepted connections, each with the task that makes its transport, for TLS by a handshake.

    asyncio's server does not close a connection during its handshake, or while it waits for the peer to end TLS. Such a
    connection outlives the server, and a later test fails by the warning of an unclosed socket.
    """

    def __init__(self, runner: web.AppRunner, tls: ssl.SSLContext | None) -> None:
        self._runner, self._tls = runner, tls
        self._handshakes: dict[socket.socket, asyncio.Task[asyncio.Transport | None]] = {}

    async def accept(self, listener: socket.socket) -> None:
        while True:
            accepted, _ = await asyncio.get_running_loop().sock_accept(listener)
            self._handshakes = {each: task for each, task in self._handshakes.items() if _has_socket(each)}
            self._handshakes[accepted] = asyncio.create_task(self._shake_hands(accepted))

    async def _shake_hands(self, accepted: socket.socket) -> asyncio.Transport | None:
        server, loop = self._runner.server, asyncio.get_running_loop()
        assert server is not None
        with suppress(OSError):  # the client refuses the certificate: asyncio has closed the connection
            return (await loop.connect_accepted_socket(server, accepted, ssl=self._tls))[0]
        return None

    async def close(self) -> None:
        for handshake in self._handshakes.values():
            handshake.cancel()
        for ended in await asyncio.gather(*self._handshakes.values(), return_exceptions=True):
            if isinstance(ended, asyncio.Transport):
                with suppress(AttributeError):  # Python 3.11.2 fails to abort a TLS connection that is lost
                    ended.abort()
        await asyncio.sleep(0)  # a transport closes its socket in the next turn of the loop
        for accepted in self._handshakes:
            accepted.close()  # of a task that was cancelled before it began


def _has_socket(connection: socket.socket) -> bool:
    return connection.fileno() != -1


@asynccontextmanager
async def elsewhere() -> AsyncIterator[tuple[str, list[tuple[str, str]]]]:
    """Serve an address to which a test redirects. Yields its URL, and the method and path of each request to it."""
    arrived: list[tuple[str, str]] = []

    async def take(request: web.Request) -> web.Response:
        arrived.append((request.method, request.path))
        return web.json_response({"issuer": "elsewhere", "keys": [], "items": []})

    async with answering_with(take) as url:
        yield url, arrived
