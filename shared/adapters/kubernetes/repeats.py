"""Send a request at most once: aiohttp repeats a DELETE whose connection was dropped, at any later time."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from shared.errors import TryLaterError

if TYPE_CHECKING:
    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

_left: ContextVar[list[str] | None] = ContextVar("left", default=None)
"""The methods sent within `once`; None outside it."""


@contextmanager
def once() -> Iterator[None]:
    """Allow this task to send one request within the block, and no repeat of it."""
    token = _left.set([])
    try:
        yield
    finally:
        _left.reset(token)


async def refuse_repeats(request: "ClientRequest", handler: "ClientHandlerType") -> "ClientResponse":
    """Refuse a repeat within `once`; a middleware for an aiohttp session, called for each attempt.

    Raises:
        TryLaterError: The request was already sent, and its connection was dropped.
    """
    left = _left.get()
    if left is not None:
        if left:
            raise TryLaterError("the connection was dropped before an answer came; the request is not repeated")
        left.append(request.method)
    return await handler(request)
