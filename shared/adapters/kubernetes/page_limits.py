"""The limits of LISTs: if a page is too large, it is requested again with fewer objects."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from shared.adapters.kubernetes.refusals import TooLargeError

PAGE_LIMIT = 500
PAGE_BYTES_MAX = 8 * 1024 * 1024
"""Maximum size of a page of several objects; it takes several times as much memory. A single object may be larger."""
_FEWER = 4
"""The limit of a LIST is divided by this number if a page was too large."""

_P = TypeVar("_P")


class PageLimits:
    """How many objects of each kind fit on a page."""

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}

    async def fit(self, name: str, limit: int, ask: Callable[[int], Awaitable[_P]]) -> _P:
        """Request a page with as many objects as fit.

        Args:
            name: The kind.
            limit: The most objects.
            ask: Requests the page with a limit.

        Raises:
            TooLargeError: A page of one object is too large.
        """
        while True:
            current = min(limit, self._limits.get(name, limit))
            try:
                page = await ask(current)
            except TooLargeError:
                if current == 1:
                    raise
                self._limits[name] = max(1, current // _FEWER)
            else:
                if name in self._limits:  # the next objects may have the usual size
                    self._limits[name] = min(PAGE_LIMIT, current * 2)
                return page
