"""A request that may leave once: aiohttp repeats a DELETE whose connection was dropped, however late that is."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from shared.errors import TryLaterError

if TYPE_CHECKING:
    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

_left: ContextVar[list[str] | None] = ContextVar("left", default=None)
"""The methods that left within `once`; None outside of it."""


@contextmanager
def once() -> Iterator[None]:
    """Within the block, one request of this task leaves, and no other."""
    token = _left.set([])
    try:
        yield
    finally:
        _left.reset(token)


async def refuse_repeats(request: "ClientRequest", handler: "ClientHandlerType") -> "ClientResponse":
    """Middleware of an aiohttp session, which calls it for each attempt.

    Raises:
        TryLaterError: The request has left already, and its connection was dropped.
    """
    left = _left.get()
    if left is not None:
        if left:
            raise TryLaterError("the connection was dropped before an answer came; the request is not repeated")
        left.append(request.method)
    return await handler(request)
