"""The limits of a timer engine: how many deliveries at once, how long each may take, and when it is retried."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.core.values.timing import backoff_seconds
from shared.errors import EventError, PermanentError, TryLaterError
from shared.messages import Purpose

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
