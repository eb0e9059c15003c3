"""The read-only HTTP server of the page: GET / and GET /api/v1/overview, and a probe.

The page is one HTML file with its style and its script, and the Content-Security-Policy that allows only these. Only
some requests are handled at once: of all users together, and of each user.
"""

import asyncio
import base64
import ipaddress
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Any

import click
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shared.adapters.kubernetes.reviews import Reviews
from shared.cli.input.options import home_namespace, namespace_name
from shared.cli.ui.cluster_view import CachedView, ClusterView
from shared.cli.ui.overview import overview
from shared.cli.ui.shown import PLACES_CHECKED_MAX, Asked, FindGrant, ShownView, UserGrants, show_view
from shared.errors import TryLaterError, TtlError

TOKEN_HEADERS = ("authorization", "x-ttl-authorization")
"""Where a reader sends a token. The API server's proxy to a Service removes Authorization, and passes the other on."""

KIND_NAME_MAX = 253
"""Characters of the name of a kind in a query."""

UNREAD_NAMED_MAX = 5
"""The maximum number of kinds that a 403 names because this process could not read them."""

_PAGE = Path(__file__).with_name("page.html")
_INLINE = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)

REQUESTS_AT_ONCE_MAX = 64
"""Requests for data that are handled at once. If a client leaves, its request keeps its place while a review of its
token or rights runs. If the client sent a second request on that connection, the first one keeps its place to its end.
"""

REQUESTS_OF_USER_MAX = 8
"""Requests of one user that are handled at once, so that one user cannot block all others. Each ServiceAccount is a
user, so a user who may create eight of them can still block all."""


class FrontDoor:
    """Allows only GET and HEAD, and adds security headers to every answer.

    Args:
        app: The application behind.
        policy: The Content-Security-Policy.
        loopback_only: Whether the Host header must name this machine.
    """

    def __init__(self, app: ASGIApp, *, policy: str, loopback_only: bool) -> None:
        self._app, self._loopback_only = app, loopback_only
        fixed = {**_FIXED, "Content-Security-Policy": policy}
        self._headers = [(name.lower().encode(), value.encode()) for name, value in fixed.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *self._headers]}
            await send(message)

        if scope["method"] not in ("GET", "HEAD"):
            what = "this server is read-only: expected GET"
            await _answer(send_with_headers, HTTPStatus.METHOD_NOT_ALLOWED, what, (b"allow", b"GET, HEAD"))
        elif self._loopback_only and not _names_loopback(scope):
            what = "the Host header does not name this machine: open the page as localhost or 127.0.0.1"
            await _answer(send_with_headers, HTTPStatus.MISDIRECTED_REQUEST, what)
        else:
            await self._app(scope, receive, send_with_headers)


@dataclass(frozen=True, slots=True)
class Reader:
    """Who sends a request.

    Attributes:
        name: The name of the user; empty if rights are not checked.
        find_grant: Finds out the rights of the user; None if rights are not checked.
    """

    name: str = ""
    find_grant: FindGrant | None = None


@dataclass(frozen=True, slots=True)
class UiServer:
    """What the server answers with.

    Attributes:
        views: The newest view of the cluster.
        refresh_seconds: How long a view is used.
        reviews: Checks each user; None if every reader has the rights with which the cluster is read.
    """

    views: CachedView
    refresh_seconds: float
    reviews: Reviews | None = None

    async def find_reader(self, request: Request) -> Reader:
        """Find out who sends a request.

        Raises:
            HTTPException: The request has no token or more than one, or the API server rejects the token (401).
            TtlError: The API server cannot be asked.
        """
        if self.reviews is None:
            return Reader()
        user = await self.reviews.find_user(_read_token(request))
        if user is None:
            raise _unauthorized("the API server rejects the token: expected a valid token of a user of this cluster")
        return Reader(user.name, UserGrants(self.reviews, user, home_namespace()).find)


def _read_token(request: Request) -> str:
    given = [value for name in TOKEN_HEADERS for value in request.headers.getlist(name)]
    if len(given) > 1:  # the answer must not depend on which of them is read
        raise _unauthorized(f"expected one bearer token of a user of this cluster, got {len(given)}")
    scheme, _, token = "".join(given).partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise _unauthorized("expected a bearer token of a user of this cluster, got none")
    return token.strip()


def _unauthorized(message: str) -> HTTPException:
    return HTTPException(HTTPStatus.UNAUTHORIZED, message, headers={"WWW-Authenticate": "Bearer"})


def make_app(server: UiServer, *, loopback_only: bool) -> FrontDoor:
    """Make the ASGI application.

    Args:
        server: What it answers with.
        loopback_only: Whether a request must name this machine in its Host header: then a page of another site, whose
            name resolves to this machine, gets no answer.
    """
    page, places = _UiPage.load(), RequestPlaces()

    async def show_page(_: Request) -> Response:
        return HTMLResponse(page.html)

    async def probe(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def show_overview(request: Request) -> Response:
        with places.take():
            asked = _read_query(request)
            reader = await server.find_reader(request)
            with places.take_of(reader.name):
                return await answer(request, asked, reader)

    async def answer(request: Request, asked: Asked, reader: Reader) -> Response:
        view = await _get_while_connected(server.views, request)
        shown = await show_view(view, asked, reader.find_grant)
        if shown.view.groups and not (shown.is_granted or shown.status):
            detail = (
                f"you may not list what was checked, at most {PLACES_CHECKED_MAX} kinds in single namespaces: "
                "ask for a namespace in which you may list a kind, or get the right `list`"
            )
            raise HTTPException(HTTPStatus.FORBIDDEN, detail + _describe_unread(shown))
        return _json(overview(shown, refresh_seconds=server.refresh_seconds))

    routes = [Route("/", show_page), Route("/api/v1/overview", show_overview), Route("/healthz", probe)]
    handlers: dict[Any, Callable[[Request, Any], Awaitable[Response]]] = {
        HTTPException: _refuse,
        TtlError: _fail,
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False  # the target would be the Host header, and http behind a proxy with TLS
    return FrontDoor(app, policy=page.policy, loopback_only=loopback_only)


async def _get_while_connected(views: CachedView, request: Request) -> ClusterView:
    """Get the view, unless the client leaves before: reloads during a slow read would take all places.

    The reviews of a token or a right are not ended: the API server works on them anyway, so they still count.

    Raises:
        TryLaterError: The client has left.
        TtlError: The cluster cannot be read.
    """
    found, left = asyncio.create_task(views.get()), asyncio.create_task(_wait_until_left(request.receive))
    try:
        await asyncio.wait((found, left), return_when=asyncio.FIRST_COMPLETED)
        if not found.done():
            raise TryLaterError("the client has left")
        return found.result()
    finally:
        found.cancel()  # the read of the cluster goes on for other readers
        left.cancel()


async def _wait_until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _describe_unread(shown: ShownView) -> str:
    """Say what this process could not list: a reader without rights sees no other sign of it."""
    names = [one.about for one in shown.view.unread if one.is_public and not one.is_status]
    return f". This page itself could not read: {', '.join(names[:UNREAD_NAMED_MAX])}" if names else ""


def _read_query(request: Request) -> Asked:
    """Read what a request asks for.

    Raises:
        HTTPException: A parameter is unknown, repeated or invalid (400).
    """
    pairs = request.query_params.multi_items()
    given = dict(pairs)
    if len(given) < len(pairs) or not given.keys() <= {"namespace", "kind"}:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "expected the parameters namespace and kind, each at most once")
    asked = Asked(given.get("namespace", ""), given.get("kind", ""))
    try:
        namespace_name(asked.namespace)
    except click.BadParameter as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"namespace: {error.message}") from None
    if len(asked.kind) > KIND_NAME_MAX:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "kind: expected the name of a kind, such as jobs")
    return asked


async def _refuse(_: Request, error: HTTPException) -> Response:
    return _json({"error": error.detail}, status=error.status_code, headers=error.headers)


async def _fail(_: Request, error: TtlError) -> Response:
    if isinstance(error, TryLaterError):
        return _json({"error": str(error)}, status=HTTPStatus.SERVICE_UNAVAILABLE, headers={"Retry-After": "5"})
    return _json({"error": str(error)}, status=HTTPStatus.BAD_GATEWAY)


def _json(value: Any, *, status: int = HTTPStatus.OK, headers: Any = None) -> Response:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return Response(text, status, headers, media_type="application/json")


@dataclass(frozen=True, slots=True)
class _UiPage:
    """The page.

    Attributes:
        html: Its text.
        policy: Its Content-Security-Policy: the style and the script of the file by their hashes, and requests to this
            server. Nothing else is loaded, and no text becomes HTML.
    """

    html: str
    policy: str

    @classmethod
    def load(cls) -> "_UiPage":
        """Read the page."""
        html = _PAGE.read_text(encoding="utf-8")
        hashes = {name: _hash(text) for name, text in _INLINE.findall(html)}
        policy = (
            f"default-src 'none'; style-src {hashes['style']}; script-src {hashes['script']}; connect-src 'self'; "
            "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
            "require-trusted-types-for 'script'; trusted-types 'none'"
        )
        return cls(html, policy)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


class RequestPlaces:
    """Counts the requests that are handled."""

    def __init__(self) -> None:
        self._all = 0
        self._users = Counter[str]()

    @contextmanager
    def take(self) -> Iterator[None]:
        """Take a place until the end of the block.

        Raises:
            TryLaterError: All places are taken.
        """
        if self._all >= REQUESTS_AT_ONCE_MAX:
            raise TryLaterError("too many requests at once: try again")
        self._all += 1
        try:
            yield
        finally:
            self._all -= 1

    @contextmanager
    def take_of(self, user: str) -> Iterator[None]:
        """Count a request of one user until the end of the block. Call it within `take`.

        Args:
            user: The name of the user; empty if rights are not checked, and then only the limit of `take` applies.

        Raises:
            TryLaterError: The user has too many requests.
        """
        if user and self._users[user] >= REQUESTS_OF_USER_MAX:
            raise TryLaterError("too many requests of this user at once: try again")
        self._users[user] += 1
        try:
            yield
        finally:
            self._users[user] -= 1
            if not self._users[user]:
                del self._users[user]


_FIXED = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def _names_loopback(scope: Scope) -> bool:
    hosts = [value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"host"]
    if len(hosts) != 1:
        return False
    host = hosts[0]
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return is_loopback(name)


def is_loopback(host: str) -> bool:
    """Return whether a name or an address leads to this machine, whatever any DNS server answers."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _answer(send: Send, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps({"error": message}).encode()
    about = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": about})
    await send({"type": "http.response.body", "body": body})
