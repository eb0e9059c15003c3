"""Serve the page from the running event loop.

Connections with TLS are accepted here, with limits on the handshakes. The server of asyncio ends a handshake only after
60 seconds, and does not limit their number. So clients that connect and send nothing could fill the memory: the limits
of HTTP apply only after the handshake.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import uvicorn

from shared.adapters.events.http_limits import LimitedHttp
from shared.adapters.kubernetes.reviews import Reviews
from shared.cli.input.options import Options
from shared.cli.ui.app import UiServer, make_app
from shared.cli.ui.certificate import ServerCertificate
from shared.cli.ui.cluster_view import CachedView, read_cluster_view
from shared.cli.ui.front_door import FrontDoor
from shared.errors import PermanentError
from shared.standalone.embedded_uvicorn import InProcessServer

if TYPE_CHECKING:  # the client takes half a second to load
    from shared.adapters.kubernetes.cluster import KubernetesCluster

_CLOSING_SECONDS = 5

HANDSHAKE_SECONDS_MAX = 10.0
"""A handshake that takes longer fails, and its connection is closed."""

HANDSHAKES_AT_ONCE_MAX = 256
"""Handshakes at once, of up to 0.3 MB each. The next connection closes the one whose handshake has lasted longest. So a
reader whose handshake takes 0.2 s is cut off if 1,280 connections a second arrive."""

GOODBYE_SECONDS_MAX = 1.0
"""How long a closed connection waits for the client's close_notify. The server of asyncio waits for 30 seconds, and the
limits of HTTP cannot end such a connection."""

_PAUSE_SECONDS = 1.0


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
    accepting = asyncio.create_task(_accept_tls(listener, certificate.find_tls, connection)) if certificate else None
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


async def _accept_tls(
    listener: socket.socket, find_tls: Callable[[], ssl.SSLContext], make_protocol: Callable[[], asyncio.Protocol]
) -> None:
    """Accept connections until this task is cancelled. Then handshakes in progress end; established connections go on.

    Args:
        listener: A listening socket that does not block.
        find_tls: Returns the TLS settings of one connection, with the certificate of the server.
        make_protocol: Makes what handles one connection after its handshake.
    """
    running: dict[asyncio.Task[None], None] = {}
    async with asyncio.TaskGroup() as handshakes:
        while True:
            accepted = await _accept(listener)
            if len(running) >= HANDSHAKES_AT_ONCE_MAX:
                longest = next(iter(running))
                del running[longest]  # now, since it ends some turns of the loop later
                longest.cancel()
            task = handshakes.create_task(_shake_hands(accepted, find_tls(), make_protocol))
            running[task] = None
            task.add_done_callback(lambda ended: running.pop(ended, None))
            await asyncio.sleep(0)  # the task begins: from now on, its end closes the connection


async def _accept(listener: socket.socket) -> socket.socket:
    while True:
        try:
            return (await asyncio.get_running_loop().sock_accept(listener))[0]
        except ConnectionError:
            continue  # that client has gone, and others wait
        except OSError:  # this process has no file descriptor left
            await asyncio.sleep(_PAUSE_SECONDS)


async def _shake_hands(
    accepted: socket.socket, tls: ssl.SSLContext, make_protocol: Callable[[], asyncio.Protocol]
) -> None:
    with suppress(OSError):  # no client of TLS, or it is too slow, refuses the certificate, or has gone
        await asyncio.get_running_loop().connect_accepted_socket(
            make_protocol,
            accepted,
            ssl=tls,
            ssl_handshake_timeout=HANDSHAKE_SECONDS_MAX,
            ssl_shutdown_timeout=GOODBYE_SECONDS_MAX,
        )
