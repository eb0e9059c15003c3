"""Reject HTTP redirects from every server: tokens and payloads go to the configured address only."""

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
"""Maximum length of an origin in a message, since a server selects it."""


class RedirectError(PermanentError):
    """A server answered with a redirect; the request was not repeated at the new address."""


async def refuse_redirects(request: "ClientRequest", handler: "ClientHandlerType") -> "ClientResponse":
    """Reject the first redirect; a middleware for an aiohttp session.

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
    """Raise RedirectError if an answer is a redirect.

    The message names the hosts only: a path or a query may hold a secret.

    Args:
        url: The requested URL.
        status: The status of the answer.
        headers: The headers of the answer; the lookup ignores case.

    Raises:
        RedirectError: The answer is a redirect.
    """
    if status not in _REDIRECTS:
        return
    location = headers.get("location", "")
    target = _origin_of(location, url) if location else "nowhere"
    raise RedirectError(
        f"{_origin_of(url)} answered {status}, a redirect to {target}; redirects are not followed. "
        "Configure the address of the server itself, without a login page or proxy in front of it"
    )


def _origin_of(url: str, base: str = "") -> str:
    """Return scheme, host and port of a URL, without its user and password."""
    try:
        parts = urlsplit(urljoin(base, url))
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return quote(url)
    name = f"[{host}]" if ":" in host else host
    return printable(f"{parts.scheme}://{name}{f':{port}' if port else ''}"[:_SHOWN_MAX])
