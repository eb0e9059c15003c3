"""What the deliveries of all timer engines share: limits, permits, an attempt, and the end at a shutdown."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from shared.core.values.objects import ObjectRef
from shared.core.values.timing import backoff_seconds
from shared.errors import EventError, PermanentError, TryLaterError
from shared.messages import ATTEMPTS_COUNTED_MAX, Purpose, Timer
from shared.ports import Publisher

_log = logging.getLogger("ttl")

FINAL_ATTEMPTS = 30
"""The attempts that a final error counts as, so that the longest back-off follows."""

DELIVERY_SECONDS: Mapping[str, float] = {
    Purpose.EXPIRE: 30.0,  # 20 s for an attempt, 10 s to store the timer of the reply
    Purpose.ENFORCE: 30.0,  # as for `expire`
    Purpose.WARN: 30.0,  # as for `expire`
    Purpose.ARCHIVE: 300.0,  # 240 s for an attempt, 270 s of its Trigger, and 30 s for the reply
}
"""Timeout of a delivery, by its purpose.

A Broker may answer only after its subscriber, and after the subscribers of the reply. A timeout that is shorter than an
attempt cancels a healthy attempt, loses its reply, and starts a second attempt while the first one still runs. So the
timeout is never shorter than that of the Trigger.
"""

TIMER_PUBLISH_SECONDS_MAX = max(DELIVERY_SECONDS.values()) + 10.0
"""Timeout of the publisher that the engine uses: longer than any delivery, so that the engine's own timeouts count."""


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The limits of a timer engine; only tests change them.

    Attributes:
        in_flight: Maximum number of deliveries in flight per purpose. Each purpose has its own, so that a dead target
            delays no other purpose; `Permits` divides them among kinds and namespaces.
        claim: Timers per read: enough to make reads cheap, too few to need much memory.
        delivery_seconds: Timeout of a delivery, by its purpose.
        rest_seconds: Maximum sleep, and so the maximum delay until a step of the wall clock is noticed.
        disk_seconds: Pause between attempts while the disk is full or the file is locked.
        permit_seconds: Maximum wait of a timer for a permit, if its server expects an answer meanwhile.
        grace_seconds: Time for the deliveries in flight at shutdown; half of the 10 s that Cloud Run allows.
    """

    in_flight: int = 96
    claim: int = 256
    delivery_seconds: Mapping[str, float] = field(default_factory=lambda: DELIVERY_SECONDS)
    rest_seconds: float = 0.5
    disk_seconds: float = 0.5
    permit_seconds: float = 3.0
    grace_seconds: float = 5.0

    def timeout_of(self, purpose: str) -> float:
        """Return the timeout of a delivery; the longest one for a purpose of a later version."""
        return self.delivery_seconds.get(purpose, max(self.delivery_seconds.values()))

    def retry_seconds(self, attempts: int, error: BaseException, jitter: float) -> float:
        """Return the back-off after a failed delivery.

        A final error gets the longest back-off at once. The timer is kept, since the reason of a refusal (a missing
        right, a policy that does not admit this sender) may be fixed tomorrow, and a deleted timer is lost.

        Args:
            attempts: The failed attempts before this one.
            error: The error of this attempt; a TryLaterError sets the minimum back-off.
            jitter: 0 to 1; shortens the back-off by up to a quarter.
        """
        if isinstance(error, EventError | PermanentError):
            return backoff_seconds(FINAL_ATTEMPTS, jitter=jitter)
        least = error.retry_after_seconds if isinstance(error, TryLaterError) else 0.0
        return backoff_seconds(attempts, least=least, jitter=jitter)


LIMITS = EngineLimits()

Share = tuple[str, str]
"""A competitor for the permits of deliveries: `apiVersion kind`, and the namespace."""

FAILING_PERMITS = 2
"""Permits of a share whose last delivery failed: enough to notice that it works again."""

FAILING_MAX = 10_000
"""Maximum number of shares remembered as failing; beyond it the oldest is dropped and gets its usual permits."""


class Permits:
    """The permits for the deliveries of one purpose, divided among kinds and, within a kind, among namespaces.

    A kind may use as many permits as are free, and a namespace as many as its kind then leaves. So a single kind gets
    half of all permits, one namespace of it a third, and each further kind up to half of the remaining permits. If the
    last delivery of a share failed, the share gets few permits, so deliveries that hang use few.

    Args:
        total: The maximum number of deliveries in flight.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._kinds: Counter[str] = Counter()
        self._shares: Counter[Share] = Counter()
        self._failing: dict[Share, None] = {}

    @property
    def free(self) -> int:
        """The number of free permits."""
        return self._total - self._kinds.total()

    def may_take(self, share: Share) -> bool:
        """Return whether the share may start one more delivery."""
        left = self.free - self._kinds[share[0]]
        return self._shares[share] < (min(left, FAILING_PERMITS) if share in self._failing else left)

    def take(self, share: Share) -> None:
        """Take a permit until `give`."""
        self._kinds[share[0]] += 1
        self._shares[share] += 1

    def give(self, share: Share, *, failed: bool) -> None:
        """Free the permit of a delivery that ended."""
        self._kinds -= Counter((share[0],))  # drops zero counts
        self._shares -= Counter((share,))
        self._failing.pop(share, None)
        if failed:
            self._failing[share] = None
            if len(self._failing) > FAILING_MAX:
                del self._failing[next(iter(self._failing))]


def share_of(ref: ObjectRef) -> Share:
    """Return the share whose permit a delivery takes."""
    return f"{ref.api_version} {ref.kind}", ref.namespace


class Attempts:
    """Publishes due timers, and logs failures: an outage once for each purpose, not once per timer, and each refusal.

    Args:
        publisher: Publishes due timers. Whatever it raises, the timer is kept and retried.
        limits: Timeouts and back-offs.
        jitter: Returns a random number from 0 to 1, so that timers that failed together are not retried together.

    Attributes:
        are_cancelled: Whether the engine, or who calls it, cancels attempts. Else only the publisher can have cancelled
            itself, and this is a failure.
    """

    def __init__(self, publisher: Publisher, limits: EngineLimits, jitter: Callable[[], float]) -> None:
        self._publisher, self._limits, self._jitter = publisher, limits, jitter
        self._failing: dict[str, type[BaseException]] = {}
        self.are_cancelled = False

    async def publish(self, timer: Timer) -> float | None:
        """Publish a timer once.

        Returns:
            None if it was accepted, else after how many seconds to try it again.

        Raises:
            CancelledError: The attempt was cancelled, and `are_cancelled`.
        """
        try:
            async with asyncio.timeout(self._limits.timeout_of(timer.purpose)):
                await self._publisher.publish(timer)
        except (Exception, asyncio.CancelledError) as error:  # no error of a publisher may lose a timer
            if self.are_cancelled and isinstance(error, asyncio.CancelledError):
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
