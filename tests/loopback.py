"""An HTTP server of one handler, on loopback."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


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
