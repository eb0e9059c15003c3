"""The HTTP session of an API server: each request passes here, with its TLS settings, its proxy and its rules.

A redirect is refused. A request that may be sent once is not repeated after its connection was dropped.
"""

import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from aiohttp import ClientResponse, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

from shared.adapters.http_client import RedirectError, Unrepeated, refuse_redirect

API_CONNECTIONS_MAX = 100
"""Requests at once of one process to the API server."""

_READ_BYTES = 2 * 1024 * 1024
"""Size of the read buffer of a connection: objects in a watch are large."""


def tls_context(*, ca_file: str | None = None, ca: str | None = None) -> ssl.SSLContext:
    """Return the TLS settings that trust a CA; those that trust the CAs of the system if none is given.

    Args:
        ca_file: A file with certificates in PEM.
        ca: Certificates in PEM.

    Raises:
        OSError: The certificates cannot be read, or are not valid.
    """
    context = ssl.create_default_context(cafile=ca_file, cadata=ca)
    # Python 3.13 requires key identifiers, which the CAs of older GKE and EKS clusters lack; kubectl does not require
    # them. The certificate chain, its dates and the host name are still verified.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


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
    """

    def __init__(
        self,
        server: str,
        tls: ssl.SSLContext,
        options: Mapping[str, Any] | None = None,
        authorization: Callable[[], Awaitable[str | None]] | None = None,
    ) -> None:
        self.server = server
        self.tls = tls
        self.authorization = authorization
        self._options = options or {}
        self._session: ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session:
            await self._session.close()

    def _open(self) -> ClientSession:
        """Open the session; it looks up no proxy and no .netrc before each request, which takes half of its time."""
        connector = TCPConnector(limit=API_CONNECTIONS_MAX, ssl=self.tls)
        jar = DummyCookieJar()
        return ClientSession(connector=connector, cookie_jar=jar, trust_env=False, read_bufsize=_READ_BYTES)

    async def send(  # noqa: PLR0913 - each argument is a part of a request
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout: ClientTimeout,  # noqa: ASYNC109 - the parameter of the client
        *,
        is_repeatable: bool,
    ) -> ClientResponse:
        """Send a request; return its answer with the body unread.

        Args:
            method: The method.
            path: The path with its query.
            headers: The headers.
            body: The body; None for none.
            timeout: The timeouts of the request.
            is_repeatable: Whether aiohttp may send it again after its connection was dropped.

        Raises:
            RedirectError: The answer is a redirect.
            TryLaterError: The connection was dropped, and the request is not repeatable.
            ClientError: The API server cannot be reached.
            TimeoutError: No answer in time.
        """
        if self._session is None:
            self._session = self._open()
        response = await self._session.request(
            method,
            f"{self.server}{path}",
            data=body,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
            middlewares=() if is_repeatable else (Unrepeated(),),
            **self._options,
        )
        try:
            refuse_redirect(self.server, response.status, response.headers)
        except RedirectError:
            response.close()
            raise
        return response
