"""Retry a call that raises TryLaterError."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from shared.errors import TryLaterError

PAUSES_SECONDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Pauses between attempts: half a minute in total, ten times that of Knative's sources; a Broker restarts within it."""

_T = TypeVar("_T")


def retrying(
    take: Callable[[_T], Awaitable[object]],
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    jitter: Callable[[], float] = random.random,
) -> Callable[[_T], Awaitable[None]]:
    """Return a function that calls `take` and retries it after each TryLaterError.

    Args:
        take: Takes one value. A TryLaterError is retried; any other error is raised at once.
        sleep: Waits a number of seconds.
        jitter: Returns a random number from 0 to 1, so that calls that failed together are not retried together.

    Returns:
        The function; it raises the last TryLaterError after all pauses.
    """

    async def take_with_retries(value: _T) -> None:
        for pause in PAUSES_SECONDS:
            try:
                await take(value)
            except TryLaterError:
                await sleep(pause * (0.5 + jitter()))
            else:
                return
        await take(value)

    return take_with_retries
