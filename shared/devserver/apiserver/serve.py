"""Run the embedded API server on a port of this machine."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
import yaml

from shared.devserver.apiserver.app import EmbeddedApiServer
from shared.standalone.embedded_uvicorn import InProcessServer

_HOST = "127.0.0.1"
_NAME = "embedded"
_CLOSING_SECONDS = 5


@asynccontextmanager
async def serve(app: EmbeddedApiServer, port: int = 0) -> AsyncIterator[str]:
    """Serve an app in the running event loop.

    Args:
        app: The app; it is closed at the end.
        port: The port on loopback; 0 for a free port.

    Yields:
        The base URL.
    """
    listener = socket.create_server((_HOST, port), backlog=1024)
    # asyncio sets TCP_NODELAY only if the protocol is explicit. Without it, an answer in two writes takes 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    config = uvicorn.Config(
        app, lifespan="off", date_header=False, server_header=False, access_log=False, log_level="warning",
        timeout_graceful_shutdown=_CLOSING_SECONDS,
    )  # fmt: skip
    server = InProcessServer(config)
    task = asyncio.create_task(server.serve([listener]))  # the socket listens already, so connections are accepted
    try:
        yield f"http://{_HOST}:{listener.getsockname()[1]}"
    finally:
        app.close()
        server.should_exit = True
        await task
        listener.close()


def write_kubeconfig(path: Path, url: str) -> Path:
    """Write a kubeconfig for kubectl and other clients.

    Returns:
        The path.
    """
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": _NAME,
        "clusters": [{"name": _NAME, "cluster": {"server": url}}],
        "users": [{"name": _NAME, "user": {}}],
        "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME, "namespace": "default"}}],
    }
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path
