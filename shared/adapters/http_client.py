"""What the HTTP clients of this project refuse: redirects, repeated requests, long bodies, and malformed tokens.

Tokens and payloads go to the configured address only. aiohttp repeats a DELETE whose connection was dropped, at any
later time; a request with `Unrepeated` is sent at most once.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from shared.core.values.objects import printable, quote
from shared.errors import PermanentError, TryLaterError

if TYPE_CHECKING:
    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

UNCOMPRESSED: Mapping[str, str] = {"Accept-Encoding": "identity"}
"""Headers of a session with `auto_decompress=False`: so an answer takes no more memory than its bytes."""

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


async def read_up_to(bytes_max: int, response: "ClientResponse") -> tuple[bytes, bool]:
    """Return a body, or its first bytes, and whether it is complete. If it is not, the connection is dropped.

    Args:
        bytes_max: How many bytes are read at most; a last chunk of the transport may be longer, and is cut.
        response: The answer.
    """
    if response.content.is_eof():  # a small body has usually arrived with the headers: no turn of the loop is needed
        whole = response.content.read_nowait()
        return whole[:bytes_max], len(whole) <= bytes_max
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > bytes_max:
            response.close()
            return bytes(body[:bytes_max]), False
    return bytes(body), True


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


class Unrepeated:
    """A middleware of one request, called for each attempt: it is sent at most once."""

    __slots__ = ("_is_sent",)

    def __init__(self) -> None:
        self._is_sent = False

    async def __call__(self, request: "ClientRequest", handler: "ClientHandlerType") -> "ClientResponse":
        """Refuse a repeat.

        Raises:
            TryLaterError: The request was already sent, and its connection was dropped.
        """
        if self._is_sent:
            raise TryLaterError("the connection was dropped before an answer came; the request is not repeated")
        self._is_sent = True
        return await handler(request)


def is_token(text: str) -> bool:
    """Return whether a text can follow `Bearer` in a header."""
    return text.isascii() and text.isprintable() and text != "" and " " not in text
