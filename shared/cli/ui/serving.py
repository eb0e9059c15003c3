"""Serve the page from the running event loop."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import uvicorn

from shared.adapters.events.http_limits import LimitedHttp
from shared.adapters.kubernetes.reviews import Reviews
from shared.cli.input.options import Options
from shared.cli.ui.app import UiServer, make_app
from shared.cli.ui.cached_view import CachedView
from shared.cli.ui.certificate import ServerCertificate
from shared.cli.ui.cluster_view import read_cluster_view
from shared.cli.ui.front_door import FrontDoor
from shared.cli.ui.handshakes import accept_tls
from shared.errors import PermanentError
from shared.standalone.embedded_uvicorn import InProcessServer

if TYPE_CHECKING:  # the client takes half a second to load
    from shared.adapters.kubernetes.cluster import KubernetesCluster

_CLOSING_SECONDS = 5


@asynccontextmanager
async def serve_page(
    cluster: "KubernetesCluster",
    options: Options,
    host: str,
    port: int,
    *,
    seconds: float,
    is_checked: bool,
    certificate: ServerCertificate | None = None,
) -> AsyncIterator[str]:
    """Serve the page until the end of the block.

    Args:
        cluster: The cluster.
        options: What is read from it.
        host: The address to listen on.
        port: The port; 0 for a free one.
        seconds: How long a view of the cluster is used.
        is_checked: Whether the API server checks each reader.
        certificate: Serves HTTPS; None for plain HTTP.

    Yields:
        The URL of the page.

    Raises:
        PermanentError: The address cannot be used.
    """
    views = CachedView(partial(read_cluster_view, cluster, options), seconds=seconds)
    app = make_app(UiServer(views, seconds, Reviews(cluster) if is_checked else None), loopback_only=not is_checked)
    try:
        async with serve_app(app, host, port, certificate) as url:
            yield url
    finally:
        await views.close()


@asynccontextmanager
async def serve_app(
    app: FrontDoor, host: str, port: int, certificate: ServerCertificate | None = None
) -> AsyncIterator[str]:
    """Serve an application until the end of the block; yields its URL, and raises as `serve_page` does."""
    listener = _listen(host, port)
    tls = certificate.find_tls() if certificate else None
    config = uvicorn.Config(
        app, http=LimitedHttp, lifespan="off", ws="none", server_header=False, access_log=False, log_level="warning",
        proxy_headers=False, timeout_graceful_shutdown=_CLOSING_SECONDS,
        ssl_context_factory=(lambda _config, _default: tls) if tls else None,
    )  # fmt: skip
    server = InProcessServer(config)
    task = asyncio.create_task(server.serve([] if tls else [listener]))
    connection = partial(LimitedHttp, config=config, server_state=server.server_state, app_state={})
    accepting = asyncio.create_task(accept_tls(listener, certificate.find_tls, connection)) if certificate else None
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"{'https' if tls else 'http'}://{shown}:{listener.getsockname()[1]}/"
    finally:
        if accepting:
            accepting.cancel()
        server.should_exit = True
        with suppress(asyncio.CancelledError):
            await task
        listener.close()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise PermanentError(f"cannot listen on {host} port {port}: {error.strerror}; set another --port") from None
    # asyncio sets TCP_NODELAY only if the protocol is explicit. Without it, an answer in two writes takes 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setblocking(False)
    return listener
