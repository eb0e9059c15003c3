"""Hands something over patiently: what may be taken later is offered again."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from shared.errors import TryLaterError

PAUSES_SECONDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Between two offers: half a minute in all, ten times what Knative's own sources have; a Broker restarts meanwhile."""

_T = TypeVar("_T")


def retrying(
    take: Callable[[_T], Awaitable[object]],
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    jitter: Callable[[], float] = random.random,
) -> Callable[[_T], Awaitable[None]]:
    """The same, but it tries again what was not taken.

    Args:
        take: Takes one thing, or raises TryLaterError; any other error ends the matter at once.
        sleep: Waits that many seconds.
        jitter: A random number from 0 to 1, so that what failed together does not come back together.

    Returns:
        What raises the last TryLaterError once all pauses are over.
    """

    async def take_patiently(thing: _T) -> None:
        for pause in PAUSES_SECONDS:
            try:
                await take(thing)
            except TryLaterError:
                await sleep(pause * (0.5 + jitter()))
            else:
                return
        await take(thing)

    return take_patiently
