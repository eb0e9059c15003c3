"""The fired timers of one purpose that this process holds: those that wait for a place, and those in flight."""

from collections import deque
from dataclasses import dataclass, field

from shared.adapters.timers.nats.fired import FiredTimer
from shared.adapters.timers.places import Places, Share

FIRED_WAITING_MAX = 1_024
"""Maximum number of waiting timers; beyond it none is pulled."""

SHARE_KEPT = 64
"""Waiting timers that a stalled share keeps when no more timers can be pulled; the others are postponed."""

STALLED_SECONDS = 1.0
"""A share is stalled if no delivery of it ended for this time."""

POSTPONED_PER_SECOND = 100
"""How many postponed timers of one share come back in a second."""

POSTPONED_SECONDS_MAX = 60.0
"""The longest time for which a waiting timer is postponed."""


@dataclass(slots=True)
class _Queue:
    waiting: deque[FiredTimer] = field(default_factory=deque)
    ended_at: float = 0.0
    in_flight: int = 0
    postponed: int = 0


class NatsLane:
    """The fired timers of one purpose. The shares take turns, and within a share the oldest is first.

    Args:
        purpose: The purpose.
        places: The maximum number of deliveries in flight.
    """

    def __init__(self, purpose: str, places: int) -> None:
        self.purpose = purpose
        self._places = Places(places)
        self._queues: dict[Share, _Queue] = {}
        self._waiting = 0

    @property
    def room(self) -> int:
        """How many more timers may wait."""
        return FIRED_WAITING_MAX - self._waiting

    def add(self, fired: FiredTimer, now: float) -> None:
        """Let a timer wait for a place."""
        queue = self._queues.get(fired.share)
        if queue is None:
            queue = self._queues[fired.share] = _Queue(ended_at=now)
        queue.waiting.append(fired)
        self._waiting += 1

    def take(self) -> FiredTimer | None:
        """Return the next timer whose share has a place; its place is taken until `finish`."""
        for share, queue in self._queues.items():
            if queue.waiting and self._places.may_take(share):
                self._queues[share] = self._queues.pop(share)  # to the end: the shares take turns
                self._places.take(share)
                self._waiting -= 1
                queue.in_flight += 1
                return queue.waiting.popleft()
        return None

    def finish(self, fired: FiredTimer, now: float, *, failed: bool) -> None:
        """Free the place of a delivery that ended."""
        self._places.give(fired.share, failed=failed)
        queue = self._queues[fired.share]
        queue.in_flight -= 1
        queue.ended_at = now
        if not failed:
            queue.postponed = 0
        if not queue.in_flight and not queue.waiting and not queue.postponed:
            del self._queues[fired.share]

    def surplus(self, now: float) -> list[tuple[FiredTimer, float]]:
        """Remove waiting timers of stalled shares if no timer can be pulled any more.

        Returns:
            The removed timers, and for how many seconds to postpone each.
        """
        if self.room > 0:
            return []
        kept = max(1, min(SHARE_KEPT, FIRED_WAITING_MAX // (2 * len(self._queues))))
        removed = []
        for queue in self._queues.values():
            while len(queue.waiting) > kept and now - queue.ended_at > STALLED_SECONDS:
                queue.postponed += 1
                seconds = min(1 + queue.postponed / POSTPONED_PER_SECOND, POSTPONED_SECONDS_MAX)
                removed.append((queue.waiting.pop(), seconds))
                self._waiting -= 1
        return removed

    def clear(self) -> list[FiredTimer]:
        """Remove and return all waiting timers."""
        waiting = [fired for queue in self._queues.values() for fired in queue.waiting]
        for queue in self._queues.values():
            queue.waiting.clear()
        self._waiting = 0
        return waiting
