"""The fired timers of one purpose that this process holds: those that wait for a place, and those in flight."""

from collections import deque
from dataclasses import dataclass, field

from shared.adapters.timers.nats.fired import FiredTimer
from shared.adapters.timers.places import Places, Share

FIRED_WAITING_MAX = 1_024
"""Maximum number of waiting timers; beyond it none is pulled."""

ROOM_MIN = 256
"""If fewer timers may be pulled, the surplus of long queues is given back."""

SHARE_KEPT = 64
"""Waiting timers that a share keeps at least, if few shares wait; more if it delivers more in a second."""

RETURNS_PER_SECOND = 1_000
"""How many timers that were given back return in a second: at least as many as the process delivers over HTTP."""

RETURN_SECONDS_MIN = 0.25
"""The time after which the first of them returns."""

_RATE_SECONDS = 1.0


@dataclass(slots=True)
class _Queue:
    waiting: deque[FiredTimer] = field(default_factory=deque)
    in_flight: int = 0
    returns_at: float = 0.0
    per_second: float = 0.0
    delivered: int = 0
    counted_at: float = 0.0

    def count(self, now: float) -> None:
        """Count a delivery that was accepted."""
        self.delivered += 1
        if (seconds := now - self.counted_at) >= _RATE_SECONDS:
            self.per_second = self.delivered / seconds
            self.delivered, self.counted_at = 0, now

    def give_back(self, kept: int, now: float, per_second: float) -> list[tuple[FiredTimer, float]]:
        """Remove the newest timers; they return in their order, after those that were given back before."""
        removed = [self.waiting.pop() for _ in range(len(self.waiting) - kept)]
        self.returns_at = max(self.returns_at, now + RETURN_SECONDS_MIN)
        first, self.returns_at = self.returns_at - now, self.returns_at + len(removed) / per_second
        return [(fired, first + place / per_second) for place, fired in enumerate(reversed(removed))]


class NatsLane:
    """The fired timers of one purpose. The shares take turns, and within a share the oldest is first.

    The servers send the timers of all shares in one order. So that a share with many timers holds up no other, only
    some of its timers wait here. The others are given back to the servers for a while, and what is behind them is
    pulled.

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
            queue = self._queues[fired.share] = _Queue(counted_at=now)
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
        if not failed:
            queue.count(now)
        if not queue.in_flight and not queue.waiting and queue.returns_at < now:
            del self._queues[fired.share]

    def surplus(self, now: float) -> list[tuple[FiredTimer, float]]:
        """Remove the surplus of long queues if few timers can be pulled any more.

        Returns:
            The removed timers, and for how many seconds to give back each.
        """
        if self.room >= ROOM_MIN:
            return []
        queues = [queue for queue in self._queues.values() if queue.waiting]
        most = max(1, FIRED_WAITING_MAX // (2 * len(queues)))
        removed = []
        for queue in queues:
            kept = min(most, max(SHARE_KEPT, round(queue.per_second)))
            per_second = max(RETURNS_PER_SECOND / len(queues), 1.5 * queue.per_second)
            removed += queue.give_back(kept, now, per_second) if len(queue.waiting) > kept else []
        self._waiting -= len(removed)
        return removed

    def clear(self) -> list[FiredTimer]:
        """Remove and return all waiting timers."""
        waiting = [fired for queue in self._queues.values() for fired in queue.waiting]
        for queue in self._queues.values():
            queue.waiting.clear()
        self._waiting = 0
        return waiting
