"""What the deliveries of all timer engines share: an attempt, the report of failures, and the end at a shutdown."""

import asyncio
import logging
from collections.abc import Callable, Collection

from shared.adapters.timers.limits import EngineLimits
from shared.errors import EventError, PermanentError
from shared.messages import ATTEMPTS_COUNTED_MAX, Timer
from shared.ports import Publisher

_log = logging.getLogger("ttl")


class Attempts:
    """Publishes due timers, and logs failures: an outage once for each purpose, not once per timer, and each refusal.

    Args:
        publisher: Publishes due timers. Whatever it raises, the timer is kept and retried.
        limits: Timeouts and back-offs.
        jitter: Returns a random number from 0 to 1, so that timers that failed together are not retried together.
    """

    def __init__(self, publisher: Publisher, limits: EngineLimits, jitter: Callable[[], float]) -> None:
        self._publisher, self._limits, self._jitter = publisher, limits, jitter
        self._failing: dict[str, type[BaseException]] = {}

    async def publish(self, timer: Timer) -> float | None:
        """Publish a timer once.

        Returns:
            None if it was accepted, else after how many seconds to try it again.

        Raises:
            CancelledError: The calling task was cancelled.
        """
        task = asyncio.current_task()
        try:
            async with asyncio.timeout(self._limits.timeout_of(timer.purpose)):
                await self._publisher.publish(timer)
        except (Exception, asyncio.CancelledError) as error:  # no error of a publisher may lose a timer
            if task and task.cancelling():  # else the publisher cancelled itself
                raise
            return self.failed(timer.purpose, timer.ref.uid, timer.attempts, error)
        self._failing.pop(timer.purpose, None)  # the next failure is a new outage
        return None

    def failed(self, purpose: str, uid: str, attempts: int, error: BaseException) -> float:
        """Log a failed attempt.

        Args:
            purpose: The purpose of the timer.
            uid: The uid of the object.
            attempts: The failed attempts before this one.
            error: Why it failed.

        Returns:
            After how many seconds to try it again.
        """
        seconds = self._limits.retry_seconds(attempts, error, self._jitter())
        fields = {"purpose": purpose, "uid": uid, "attempts": attempts + 1}
        fields |= {"error": repr(error), "retry_seconds": round(seconds, 3)}
        if isinstance(error, EventError | PermanentError):
            _log.error("timer refused", extra={"fields": fields})
        elif self._failing.get(purpose) is not type(error):
            self._failing[purpose] = type(error)
            _log.warning("timers not delivered", extra={"fields": fields})
        return seconds


def once_more_failed(timer: Timer) -> Timer:
    """Return a timer with one more failed attempt."""
    return timer.model_copy(update={"attempts": min(timer.attempts + 1, ATTEMPTS_COUNTED_MAX)})


async def drain(running: Collection[asyncio.Task[None]], grace_seconds: float) -> None:
    """Wait for the deliveries in flight, then cancel late ones; their timers are delivered again later."""
    if running:
        _, late = await asyncio.wait(running, timeout=grace_seconds)
        for delivery in late:
            delivery.cancel()
        await asyncio.gather(*late, return_exceptions=True)
