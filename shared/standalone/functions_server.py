"""Serve all functions in one process, each with functions-framework, on one unix socket."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from functions_framework.aio import create_asgi_app

import functions
from shared.adapters.events.http_limits import LimitedHttp
from shared.bootstrap.process import Process
from shared.bootstrap.start import loading_for
from shared.standalone.embedded_uvicorn import InProcessServer

NAMES = ("schedule", "timers", "expire", "enforce", "archive", "sweep", "usage")
URLS = {name: f"http://functions/{name}" for name in NAMES}
"""The URL of each function on the socket, by the name of its Knative Service."""

GRACE_SECONDS = 20

Application = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI application."""


def load_functions(process: Process) -> Application:
    """Load the functions for a process; the application routes each path to the function of that name."""
    folder = Path(functions.__file__ or "").parent
    with loading_for(process):
        apps = {
            f"/{name}": create_asgi_app(name, str(folder / f"{name}.py"), "http")  # type: ignore[no-untyped-call]
            for name in NAMES
        }

    async def route(scope: Any, receive: Any, send: Any) -> None:
        await apps[scope["path"]](scope, receive, send)

    return route


@asynccontextmanager
async def serve_functions(socket: Path, application: Application) -> AsyncIterator[None]:
    """Serve the functions on a unix socket until the block ends; requests in flight are then finished."""
    config = uvicorn.Config(
        application,
        uds=str(socket),
        http=LimitedHttp,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # there is no proxy
        timeout_keep_alive=75,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = InProcessServer(config)
    serving = asyncio.create_task(server.serve(), name="functions")
    try:
        while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn offers no event to wait for
            await asyncio.sleep(0.005)
        if serving.done():
            serving.result()
        yield
    finally:
        server.should_exit = True
        await serving
