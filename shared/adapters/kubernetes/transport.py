"""The HTTP session of an API server: each request passes here, with its TLS settings, its proxy and its span.

A redirect is refused. A request that may be sent once is not repeated after its connection was dropped. Another process
may rotate a CA file, as the kubelet does with `ca.crt` of a Pod.

Source: https://opentelemetry.io/docs/specs/semconv/http/http-spans/#http-client-span.
"""

import asyncio
import logging
import re
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
from shared.adapters.kubernetes.access import CaFile
from shared.adapters.tracing.current import (
    NAMESPACE,
    Kind,
    current_traceparent,
    get_name_attribute,
    get_tracer,
    note_status,
    within_span,
)
from shared.core.values.traceparent import TRACEPARENT
from shared.errors import TryLaterError

_log = logging.getLogger("ttl")


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


Request = Callable[..., Awaitable[ClientResponse]]
"""`ClientSession.request`."""


_PLACE = re.compile("(?P<prefix>/(?:.+?/)??(?:api|apis/(?P<group>[^/]+))/v[0-9][^/]*)/(?P<rest>.+)")
"""The path of a collection or an object; an API server behind a proxy has a path of its own before it."""


def is_traced() -> bool:
    """Return whether this process sends traces, and the running task works in one."""
    return get_tracer() is not None and current_traceparent() != ""


def traced(request: Request) -> Request:
    """Return a request function that sends each request in a span, whose identity the API server gets too."""

    async def send(method: str, url: str, *, headers: Mapping[str, str], **options: Any) -> ClientResponse:
        tracer = get_tracer()
        if tracer is None:
            return await request(method, url, headers=headers, **options)
        about = describe(method, url)
        name = f"{method} {about['url.template']}"
        span = tracer.start(name, Kind.CLIENT, about, parent=current_traceparent(), is_linked=False)
        with within_span(span):
            response = await request(method, url, headers={**headers, TRACEPARENT: span.traceparent}, **options)
            note_status(span, response.status)
            return response

    return send


def describe(method: str, url: str) -> dict[str, str | int]:
    """Return the attributes of a request; those of the object that its path names, but no query and no password."""
    parts = urlsplit(url)
    template, named = _template_of(parts.path)
    about: dict[str, str | int] = {
        "http.request.method": method,
        "server.address": parts.hostname or "",
        "server.port": parts.port or (443 if parts.scheme == "https" else 80),
        "url.full": f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}",  # no password in a trace
        "url.template": template,
    }
    return about | named


def _template_of(path: str) -> tuple[str, dict[str, str]]:
    """Return a path with placeholders, and the attributes of what it names."""
    if (found := _PLACE.fullmatch(path)) is None:
        return path, {}
    prefix, group, rest, named = [found["prefix"]], found["group"] or "", found["rest"].split("/"), {}
    if rest[0] == "namespaces" and len(rest) > 2:  # noqa: PLR2004 - more than the namespace itself
        named[NAMESPACE], prefix, rest = rest[1], [*prefix, "namespaces", "{namespace}"], rest[2:]
    plural, *names = rest
    if names and (attribute := get_name_attribute(group, plural)):
        named[attribute] = names[0]
    return "/".join([*prefix, plural, *(["{name}", *names[1:]] if names else [])]), named
