"""Limits of a timer engine, and their reasons."""

from dataclasses import dataclass

from shared.core.backoff import backoff_seconds
from shared.errors import EventError, PermanentError, TryLaterError

FINAL_ATTEMPTS = 30
"""The attempts that a final error counts as, so that the longest back-off follows."""


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The limits of a timer engine; only tests change them.

    Attributes:
        in_flight: Maximum number of deliveries in flight per purpose. Each purpose has its own, so that a dead target
            delays no other purpose; `Places` divides them among kinds and namespaces.
        claim: Timers per read: enough to make reads cheap, too few to need much memory.
        delivery_seconds: Timeout of a delivery. A Broker may answer only after its subscriber, so this allows for the
            subscriber's time, not only for the network's.
        rest_seconds: Maximum sleep, and so the maximum delay until a step of the wall clock is noticed.
        disk_seconds: Pause between attempts while the disk is full or the file is locked.
        grace_seconds: Time for the deliveries in flight at shutdown; half of the 10 s that Cloud Run allows.
    """

    in_flight: int = 96
    claim: int = 256
    delivery_seconds: float = 30.0
    rest_seconds: float = 0.5
    disk_seconds: float = 0.5
    grace_seconds: float = 5.0

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
