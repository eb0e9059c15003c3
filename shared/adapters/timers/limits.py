"""What bounds a timer engine, and why."""

from dataclasses import dataclass

from shared.core.backoff import backoff_seconds
from shared.errors import EventError, PermanentError, TryLaterError

FINAL_ATTEMPTS = 30
"""What a final error counts as: so many failures that the longest wait follows."""


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The bounds; there is no reason to change one but in a test.

    Attributes:
        in_flight: Deliveries at once of one purpose. Each purpose has its own, so that a dead target holds up no other;
            `Places` shares them among kinds and namespaces.
        claim: Timers read at once: enough for reading to cost little, too few for memory to matter.
        delivery_seconds: A Broker may answer only after its subscriber has, so this is a subscriber's time, not a
            network's.
        rest_seconds: The longest sleep, and so how late a step of the wall clock is seen.
        disk_seconds: Between attempts while the disk is full or locked.
        grace_seconds: For the deliveries in flight at the end; half of the 10 s that Cloud Run gives a container.
    """

    in_flight: int = 96
    claim: int = 256
    delivery_seconds: float = 30.0
    rest_seconds: float = 0.5
    disk_seconds: float = 0.5
    grace_seconds: float = 5.0

    def retry_seconds(self, attempts: int, error: BaseException, jitter: float) -> float:
        """How long to wait after a delivery that failed.

        A final error waits the longest at once: it is not given up, since what is refused today (a missing right, a
        policy that does not admit us) may be mended tomorrow, and a forgotten timer is gone.

        Args:
            attempts: That failed before this one.
            error: What this one failed with; a TryLaterError says how long to wait at the least.
            jitter: 0 to 1; takes off up to a quarter.
        """
        if isinstance(error, EventError | PermanentError):
            return backoff_seconds(FINAL_ATTEMPTS, jitter=jitter)
        least = error.retry_after_seconds if isinstance(error, TryLaterError) else 0.0
        return backoff_seconds(attempts, least=least, jitter=jitter)


LIMITS = EngineLimits()
