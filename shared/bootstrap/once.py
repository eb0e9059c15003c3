"""Make a part of a process when it is first needed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Once(Generic[_T]):
    """A part that is made once; all callers share it.

    Args:
        make: Makes the part. If it raises, the next call tries again.
        made: The part, if there is one already.

    Attributes:
        made: The part; None until it is made.
    """

    def __init__(self, make: Callable[[], Awaitable[_T]], made: _T | None = None) -> None:
        self.made = made
        self._make = make
        self._making = asyncio.Lock()

    async def __call__(self) -> _T:
        """Return the part; once it is made, without the lock, because each event asks for several parts."""
        if self.made is not None:
            return self.made
        async with self._making:
            if self.made is None:
                self.made = await self._make()
            return self.made
