"""No redirect is followed, at any server: our token, and what we send, are for the configured address alone."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from shared.core.objects import printable, quote
from shared.errors import PermanentError

if TYPE_CHECKING:
    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

_REDIRECTS = frozenset(
    {
        HTTPStatus.MOVED_PERMANENTLY,
        HTTPStatus.FOUND,
        HTTPStatus.SEE_OTHER,
        HTTPStatus.TEMPORARY_REDIRECT,
        HTTPStatus.PERMANENT_REDIRECT,
    }
)

_SHOWN_MAX = 300
"""Characters of an origin in a message: a server writes it."""


class RedirectError(PermanentError):
    """A server sends us elsewhere; the request was not repeated there."""


async def refuse_redirects(request: "ClientRequest", handler: "ClientHandlerType") -> "ClientResponse":
    """Middleware of an aiohttp session: the first redirect ends the request.

    Raises:
        RedirectError: The answer is a redirect.
    """
    response = await handler(request)
    try:
        refuse_redirect(str(request.url), response.status, response.headers)
    except RedirectError:
        response.close()
        raise
    return response


def refuse_redirect(url: str, status: int, headers: Mapping[str, str]) -> None:
    """Refuse an answer that is a redirect.

    The message names the hosts alone: a path or a query may hold a secret.

    Args:
        url: What was asked.
        status: Of the answer.
        headers: Of the answer, without regard to case.

    Raises:
        RedirectError: It is one.
    """
    if status not in _REDIRECTS:
        return
    location = headers.get("location", "")
    target = _origin_of(location, url) if location else "nowhere"
    raise RedirectError(
        f"{_origin_of(url)} answered {status}, a redirect to {target}; no redirect is followed: "
        "expected the address of the server itself, and no login page or proxy before it"
    )


def _origin_of(url: str, base: str = "") -> str:
    """Scheme, host and port; without user and password, which a URL may hold too."""
    try:
        parts = urlsplit(urljoin(base, url))
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return quote(url)
    name = f"[{host}]" if ":" in host else host
    return printable(f"{parts.scheme}://{name}{f':{port}' if port else ''}"[:_SHOWN_MAX])
