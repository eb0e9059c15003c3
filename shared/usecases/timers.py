"""Timers are asked for: keep them."""

from shared.messages import TimersSet
from shared.ports import Timers


async def set_timers(wanted: TimersSet, *, timers: Timers) -> None:
    """Set what was asked for; returns once it is durable, so that the answer can be relied on.

    Raises:
        TryLaterError: It could not be stored now.
    """
    await timers.set(wanted.timers)
