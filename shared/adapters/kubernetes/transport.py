"""The HTTP session of an API server: each request passes here, with its TLS settings, its proxy and its rules.

A redirect is refused. A request that may be sent once is not repeated after its connection was dropped.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from aiohttp import (
    ClientConnectorCertificateError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
)

from shared.adapters.http_client import RedirectError, Unrepeated, refuse_redirect
from shared.adapters.kubernetes.tls import CaFile
from shared.adapters.kubernetes.traced_requests import is_traced, traced
from shared.errors import TryLaterError

API_CONNECTIONS_MAX = 100
"""Requests at once of one process to the API server."""

KEEPALIVE_SECONDS = 75.0
"""How long an idle connection stays open, so that a burst needs no new TLS handshakes; kube-apiserver closes it after
90 s. Source: IdleTimeout in k8s.io/apiserver/pkg/server/secure_serving.go."""

_READ_BYTES = 2 * 1024 * 1024
"""Size of the read buffer of a connection: objects in a watch are large."""


def get_proxy(server: str) -> str | None:
    """Return the proxy of the environment for a server; None if there is none, or if the server is exempt."""
    url = urlsplit(server)
    if proxy_bypass(url.hostname or ""):
        return None
    return getproxies_environment().get(url.scheme)


class Transport:
    """Sends requests to one API server.

    Args:
        server: The URL of the API server.
        tls: The trusted CA and the client certificate.
        options: Options of each request: its proxy, and the name that the server's certificate must have.
        authorization: Returns the Authorization header of a kubeconfig's credentials; None if there is none.
        ca: The file of the trusted CA, which is read again if the API server's certificate is not trusted; None if the
            CA is in no file.
    """

    def __init__(
        self,
        server: str,
        tls: ssl.SSLContext,
        options: Mapping[str, Any] | None = None,
        authorization: Callable[[], Awaitable[str | None]] | None = None,
        ca: CaFile | None = None,
    ) -> None:
        self.server = server
        self.tls = tls
        self.authorization = authorization
        self._options = options or {}
        self._ca, self._reloading = ca, asyncio.Lock()
        self._session: ClientSession | None = None
        self._is_closed = False

    async def close(self) -> None:
        """Close the connections; a later request is refused."""
        self._is_closed = True
        if self._session:
            await self._session.close()

    def _open(self) -> ClientSession:
        """Open the session; it looks up no proxy and no .netrc before each request, which takes half of its time."""
        connector = TCPConnector(limit=API_CONNECTIONS_MAX, keepalive_timeout=KEEPALIVE_SECONDS)
        jar = DummyCookieJar()
        return ClientSession(connector=connector, cookie_jar=jar, trust_env=False, read_bufsize=_READ_BYTES)

    async def send(  # noqa: PLR0913 - each argument is a part of a request
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        limits: Callable[[], ClientTimeout],
        *,
        is_repeatable: bool,
    ) -> ClientResponse:
        """Send a request; return its answer with the body unread.

        If the API server's certificate is not trusted, nothing was sent. Then the file of the CA is read, and if it has
        changed, the request is sent.

        Args:
            method: The method.
            path: The path with its query.
            headers: The headers.
            body: The body; None for none.
            limits: Returns the timeouts of the request from now on.
            is_repeatable: Whether aiohttp may send it again after its connection was dropped.

        Raises:
            RedirectError: The answer is a redirect.
            TryLaterError: The connection was dropped, and the request is not repeatable; or this transport is closed.
            ClientError: The API server cannot be reached.
            TimeoutError: No answer in time.
        """
        tls = self.tls
        try:
            response = await self._request(method, path, headers, body, limits(), is_repeatable=is_repeatable)
        except ClientConnectorCertificateError:
            if not await self._reload_ca(tls):
                raise
            response = await self._request(method, path, headers, body, limits(), is_repeatable=is_repeatable)
        try:
            refuse_redirect(self.server, response.status, response.headers)
        except RedirectError:
            response.close()
            raise
        return response

    async def _request(  # noqa: PLR0913 - as above
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout: ClientTimeout,  # noqa: ASYNC109 - the parameter of the client
        *,
        is_repeatable: bool,
    ) -> ClientResponse:
        if self._is_closed:
            raise TryLaterError(f"the connections to the API server at {self.server} are closed: this process ends")
        if self._session is None:
            self._session = self._open()
        request = traced(self._session.request) if is_traced() else self._session.request
        return await request(
            method,
            f"{self.server}{path}",
            data=body,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
            ssl=self.tls,
            middlewares=() if is_repeatable else (Unrepeated(),),
            **self._options,
        )

    async def _reload_ca(self, refused: ssl.SSLContext) -> bool:
        """Trust the CA as its file is now; returns whether that differs from the TLS settings of a refused request."""
        async with self._reloading:
            if self.tls is refused and self._ca:
                changed = await asyncio.to_thread(self._ca.load_changed)  # the file may be on a network volume
                self.tls = changed or refused
        return self.tls is not refused
