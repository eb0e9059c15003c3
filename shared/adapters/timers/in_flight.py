"""What the deliveries of all timer engines share: their end at a shutdown, and the report of those that failed."""

import asyncio
import logging
from collections.abc import Collection

from shared.errors import EventError, PermanentError

_log = logging.getLogger("ttl")


async def drain(running: Collection[asyncio.Task[None]], grace_seconds: float) -> None:
    """Wait for the deliveries in flight, then cancel late ones; their timers are delivered again later."""
    if running:
        _, late = await asyncio.wait(running, timeout=grace_seconds)
        for delivery in late:
            delivery.cancel()
        await asyncio.gather(*late, return_exceptions=True)


class FailureLog:
    """Logs failed deliveries: an outage once for each purpose, not once per timer, and each refusal."""

    def __init__(self) -> None:
        self._failing: dict[str, type[BaseException]] = {}

    def succeeded(self, purpose: str) -> None:
        """A delivery was accepted, so the next failure of the purpose is a new outage."""
        self._failing.pop(purpose, None)

    def failed(self, purpose: str, uid: str, *, attempts: int, error: BaseException, seconds: float) -> None:
        """Log a failed delivery.

        Args:
            purpose: The purpose of the timer.
            uid: The uid of the object.
            attempts: The failed attempts, this one included.
            error: Why it failed.
            seconds: How long until the next attempt.
        """
        fields = {"purpose": purpose, "uid": uid, "attempts": attempts}
        fields |= {"error": repr(error), "retry_seconds": round(seconds, 3)}
        if isinstance(error, EventError | PermanentError):
            _log.error("timer refused", extra={"fields": fields})
        elif self._failing.get(purpose) is not type(error):
            self._failing[purpose] = type(error)
            _log.warning("timers not delivered", extra={"fields": fields})
