"""`ui`: a read-only page in the browser, and the JSON that it shows.

Connections with TLS are accepted here, with limits on the handshakes. The server of asyncio ends a handshake only after
60 seconds, and does not limit their number. So clients that connect and send nothing could fill the memory: the limits
of HTTP apply only after the handshake.
"""

import asyncio
import json
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
import uvicorn

from shared.adapters.events.http_limits import InProcessServer, LimitedHttp
from shared.adapters.kubernetes.reviews import Reviews
from shared.cli.input.command import command
from shared.cli.input.options import (
    Options,
    all_namespaces_option,
    cluster_options,
    duration_option,
    kinds_dir_option,
    kinds_option,
    policy_in_force_option,
)
from shared.cli.input.target import connected
from shared.cli.output.printing import inform
from shared.cli.ui.app import FrontDoor, UiServer, is_loopback, make_app
from shared.cli.ui.cluster_view import CachedView, read_cluster_view
from shared.cli.ui.overview import overview
from shared.cli.ui.shown import Asked, show_view
from shared.errors import PermanentError, TtlError

if TYPE_CHECKING:  # the client takes half a second to load
    from shared.adapters.kubernetes.cluster import KubernetesCluster


CERT_OPTION, KEY_OPTION = "--tls-cert-file", "--tls-private-key-file"

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

UI_REFRESH_SECONDS_MIN = 5.0
"""The shortest time between two reads: each lists all objects of the kinds."""

_log = logging.getLogger("ttl")


class ServerCertificate:
    """A certificate chain and its private key.

    A new connection uses the current files. If they cannot be used, the last good ones stay, with one warning a change.

    Args:
        chain: The file of the certificate and of its intermediate CAs, in PEM.
        key: The file of the private key, in PEM, without a passphrase.

    Raises:
        TtlError: The files cannot be used at the start; the message names the option.
    """

    def __init__(self, chain: Path, key: Path) -> None:
        self._chain, self._key = chain, key
        self._status = self._find_status()
        self._current = _load(chain, key)

    def find_tls(self) -> ssl.SSLContext:
        """Return the TLS settings of the next connection, from what the files have now.

        A callback of OpenSSL at each handshake would do this too, but Python prints a traceback for each client that
        sends an SNI name that is not ASCII.
        """
        found = self._find_status()
        if found != self._status:
            self._reload(found)
        return self._current

    def _reload(self, found: Sequence[tuple[int, ...]]) -> None:
        """Take what the files have now; if it cannot be used, keep what they had."""
        self._status = found  # what cannot be used is reported once, and tried again when it changes
        try:
            self._current = _load(self._chain, self._key)
        except TtlError as error:
            _log.warning("certificate not reloaded", extra={"fields": {"error": str(error)}})
        else:
            _log.info("certificate reloaded", extra={"fields": {"file": str(self._chain)}})

    def _find_status(self) -> Sequence[tuple[int, ...]]:
        return [_status_of(file) for file in (self._chain, self._key)]


@command()
@all_namespaces_option
@kinds_option
@kinds_dir_option
@policy_in_force_option
@cluster_options
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8090, show_default=True, help="The port; 0 for a free one."
)
@click.option(
    "--auth",
    type=click.Choice(["none", "kubernetes"]),
    default="none",
    show_default=True,
    help="none: each reader sees what your kubeconfig may list. kubernetes: each reader sends a bearer token, and sees "
    "what its user may list. An address beyond loopback requires kubernetes.",
)
@click.option(
    CERT_OPTION,
    "tls_cert",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Serve HTTPS with the certificate chain in this PEM file. The file is read again when it changes.",
)
@click.option(
    KEY_OPTION,
    "tls_key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The private key of the certificate, in PEM, without a passphrase.",
)
@click.option(
    "--refresh",
    callback=duration_option,
    metavar="TIME",
    default="30s",
    show_default=True,
    help="The time between two reads, at least 5s. Each read lists all objects of the kinds.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["page", "json"]),
    default="page",
    show_default=True,
    help="page: serve the page until Ctrl-C. json: print its data once, and end.",
)
async def ui(
    options: Options,
    *,
    host: str,
    port: int,
    auth: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    refresh: timedelta,
    output: str,
) -> None:
    """Show deletions, the forecast and the state of the deleters in the browser, until Ctrl-C. Read-only.

    The page is http://127.0.0.1:8090/, and its data is http://127.0.0.1:8090/api/v1/overview. Any user of this machine
    can open it while it is served. With --auth kubernetes, the API server checks each reader by a TokenReview and
    SubjectAccessReviews.

    With -o json, the exit code is 1 if the policy in force is unknown, or another part could not be read.
    """
    if auth == "none" and not is_loopback(host):
        raise click.UsageError(f"--host {host}: an address beyond loopback requires --auth kubernetes")
    seconds = refresh.total_seconds()
    if seconds < UI_REFRESH_SECONDS_MIN:
        raise click.UsageError(f"--refresh: expected at least {UI_REFRESH_SECONDS_MIN:.0f}s")
    certificate = _read_certificate(tls_cert, tls_key)
    async with connected(options, is_server=output != "json") as cluster:
        if output == "json":
            shown = await show_view(await read_cluster_view(cluster, options), Asked(), None)
            click.echo(json.dumps(overview(shown, refresh_seconds=seconds), indent=2))
            if not shown.view.is_complete:
                raise SystemExit(1)
            return
        await cluster.check()
        is_checked = auth == "kubernetes"
        async with serve_page(
            cluster, options, host, port, seconds=seconds, is_checked=is_checked, certificate=certificate
        ) as url:
            inform(f"serving {url}, read-only, for {cluster.server}; Ctrl-C ends it")
            if certificate is None and not is_loopback(host):
                inform(f"note: without {CERT_OPTION}, the tokens of the readers travel unencrypted")
            with suppress(asyncio.CancelledError):  # Ctrl-C, or the end of the Pod
                await asyncio.Event().wait()


def _read_certificate(chain: Path | None, key: Path | None) -> ServerCertificate | None:
    if (chain is None) != (key is None):
        raise click.UsageError(f"{CERT_OPTION} and {KEY_OPTION}: expected both, or none")
    return None if chain is None or key is None else ServerCertificate(chain, key)


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


def _status_of(file: Path) -> tuple[int, ...]:
    """Return modification time, size and inode of a file; nothing if it does not exist."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


class _PassphraseError(Exception):
    """The key is encrypted."""


def _refuse_passphrase() -> NoReturn:
    raise _PassphraseError


def _load(chain: Path, key: Path) -> ssl.SSLContext:
    for file, option in ((chain, CERT_OPTION), (key, KEY_OPTION)):
        try:
            file.read_bytes()
        except OSError as error:
            raise TtlError(f"{option}: {file} cannot be read: {error.strerror}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(chain, key, password=_refuse_passphrase)
    except _PassphraseError:
        raise TtlError(f"{KEY_OPTION}: {key}: expected a key without a passphrase") from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TtlError(f"{KEY_OPTION}: {key}: expected the key of the certificate in {chain}") from None
        what = f"expected a certificate chain in {chain} and its private key in {key}, both in PEM"
        raise TtlError(f"{CERT_OPTION}, {KEY_OPTION}: {what}: {error.reason or error}") from None
    except OSError as error:  # another process replaces them at this moment
        raise TtlError(f"{CERT_OPTION}, {KEY_OPTION}: cannot be read: {error.strerror}") from None
    return context
