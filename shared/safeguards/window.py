"""How many deletions of one kind may be in flight, by the answers to its DELETEs.

The reasons are in docs/decisions/0035-pace-by-permits.md. Instants are seconds of the running loop's clock.
"""

import math

PERMITS_MAX = 100
"""Permits of a kind while the API server is well: as many as a process has connections to it."""

PERMITS_MIN = 5
"""Permits of a kind at the least, so that its deletions go on: Kubernetes' own TTL controller has five workers."""

SLOW_COUNT_MIN = 3
"""Slow DELETEs of a round before the permits halve: one or two say little, however few DELETEs are in flight."""

ROUND_MIN = 2 * SLOW_COUNT_MIN - 1
"""DELETEs of a round at the least, so that more than half of it is at least `SLOW_COUNT_MIN`."""


class Window:
    """The number of permits of one kind, by additive increase and multiplicative decrease (AIMD).

    A round is as many DELETEs as were in flight at once, and at least `ROUND_MIN`. If more than half of a round is
    slow, the permits halve. If a round ends and at most half of it was slow, there is one permit more. So one or two
    slow DELETEs have no effect, even if no other DELETE is in flight.

    Attributes:
        permits: How many deletions may be in flight.
        in_flight: How many are.
    """

    def __init__(self, permits_max: int = PERMITS_MAX) -> None:
        self.permits = self._permits_max = permits_max
        self._permits_min = min(PERMITS_MIN, permits_max)
        self.in_flight = 0
        self._peak = self._peak_before = self._answers = self._slow = 0
        self._halved_at = -math.inf

    @property
    def is_full_size(self) -> bool:
        """Whether there are as many permits as there ever are: the API server is well."""
        return self.permits == self._permits_max

    @property
    def has_free(self) -> bool:
        """Whether a permit is free."""
        return self.in_flight < self.permits

    def enter(self) -> None:
        """Take a permit."""
        self.in_flight += 1
        self._peak = max(self._peak, self.in_flight)

    def leave(self) -> None:
        """Return a permit."""
        self.in_flight -= 1

    def answered(self, sent_at: float, now: float, *, is_slow: bool) -> None:
        """Note the answer to a DELETE; those that were sent before the last decrease show nothing new.

        Args:
            sent_at: When it was sent.
            now: The present.
            is_slow: Whether it took too long, or has failed.
        """
        if sent_at < self._halved_at:
            return
        self._answers += 1
        self._slow += is_slow
        round_size = max(ROUND_MIN, min(self.permits, self._peak))
        if 2 * self._slow > round_size:
            self.halve(now)
        elif self._answers >= round_size:
            self._begin_round(min(self._permits_max, self.permits + 1))

    def halve(self, now: float) -> None:
        """Halve the permits that this round and the one before have used: only they can have slowed the API server."""
        used = min(self.permits, max(self._peak, self._peak_before)) or self.permits
        self._halved_at = now
        self._begin_round(max(self._permits_min, used // 2))

    def _begin_round(self, permits: int) -> None:
        self.permits, self._peak_before, self._peak = permits, self._peak, self.in_flight
        self._answers = self._slow = 0
