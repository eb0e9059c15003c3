"""An HTTP server of one handler, on loopback."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@asynccontextmanager
async def answering_with(
    handle: Callable[[web.Request], Awaitable[web.StreamResponse]], **options: Any
) -> AsyncIterator[str]:
    """Serve until the block ends, any method and path; gives the URL, without a slash at the end.

    Args:
        handle: Answers each request.
        options: Of aiohttp's AppRunner.
    """
    app = web.Application()
    app.router.add_route("*", r"/{path:[\s\S]*}", handle)
    runner = web.AppRunner(app, **options)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield "http://{}:{}".format(*runner.addresses[0])
    finally:
        await runner.cleanup()


@asynccontextmanager
async def elsewhere() -> AsyncIterator[tuple[str, list[tuple[str, str]]]]:
    """Where a redirect leads: its URL, and the method and path of each request that arrived there."""
    arrived: list[tuple[str, str]] = []

    async def take(request: web.Request) -> web.Response:
        arrived.append((request.method, request.path))
        return web.json_response({"issuer": "elsewhere", "keys": [], "items": []})

    async with answering_with(take) as url:
        yield url, arrived
