"""Retry a call that raises TryLaterError.

`stamina` does not fit. A timer's back-off follows from a stored count of attempts, so `backoff_seconds` stays in any
case, and stamina would add a second formula for the pauses. By default it also logs the arguments of each call that it
retries, and here these are whole objects.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from shared.core.values.timing import backoff_seconds
from shared.errors import TryLaterError

RETRIES = 6
"""Retries of a call: half a minute in total, ten times that of Knative's sources; a Broker restarts within it."""

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
        for attempts in range(RETRIES):
            try:
                await take(value)
            except TryLaterError:
                await sleep(backoff_seconds(attempts, jitter=jitter()))
            else:
                return
        await take(value)

    return take_with_retries
