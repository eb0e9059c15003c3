"""The fired timers of one purpose that wait in this process for their delivery.

The servers send the timers of all shares in one order. So that a share with many timers holds up no other, only some of
them wait here. For the others, the servers get a nak with a delay, and send what is behind them.
"""

from collections import deque
from dataclasses import dataclass, field

from nats.aio.msg import Msg

from shared.adapters.timers.places import Places, Share, share_of
from shared.messages import Timer

FIRED_WAITING_MAX = 1_024
"""How many timers wait here; a share may take half of what the others leave, and always `SHARE_MIN`."""

SHARE_MIN = 8

REDELIVERIES_PER_SECOND = 1_000
"""How many delayed timers return in a second: at least as many as the process delivers over HTTP."""

DELAY_SECONDS_MIN, DELAY_SECONDS_MAX = 0.25, 100.0
"""The bounds of a delay. The longest one bounds how many timers the servers must remember as delayed."""

_RATE_SECONDS = 1.0


@dataclass(slots=True, eq=False)
class FiredTimer:
    """A timer that the servers delivered to this process.

    Attributes:
        timer: The timer.
        message: Its message, for ack and nak; the newest if the servers delivered it again.
    """

    timer: Timer
    message: Msg

    @property
    def share(self) -> Share:
        """The share whose place the delivery takes."""
        return share_of(self.timer.ref)


@dataclass(slots=True)
class _Queue:
    waiting: deque[FiredTimer] = field(default_factory=deque)
    in_flight: int = 0
    returns_at: float = 0.0
    per_second: float = 0.0
    delivered: int = 0
    counted_at: float = 0.0


class FiredQueues:
    """A queue for each share. The shares take turns, and within a share the oldest is first.

    All times are of the monotonic clock, in seconds.

    Args:
        in_flight: The maximum number of deliveries in flight.
    """

    def __init__(self, in_flight: int) -> None:
        self._places = Places(in_flight)
        self._queues: dict[Share, _Queue] = {}
        self._waiting = 0

    def add(self, fired: FiredTimer, now: float) -> float | None:
        """Let a timer wait; return None, or for how many seconds it must be delayed instead."""
        queue = self._queues.setdefault(fired.share, _Queue(counted_at=now))
        if len(queue.waiting) >= max(SHARE_MIN, (FIRED_WAITING_MAX - self._waiting) // 2):
            per_second = max(REDELIVERIES_PER_SECOND / len(self._queues), 1.5 * queue.per_second)
            queue.returns_at = max(queue.returns_at, now + DELAY_SECONDS_MIN) + 1 / per_second
            return min(queue.returns_at - now, DELAY_SECONDS_MAX)
        queue.waiting.append(fired)
        self._waiting += 1
        return None

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
        queue.delivered += not failed
        if (seconds := now - queue.counted_at) >= _RATE_SECONDS:
            queue.per_second, queue.delivered, queue.counted_at = queue.delivered / seconds, 0, now
        if not queue.in_flight and not queue.waiting and queue.returns_at < now:
            del self._queues[fired.share]

    def clear(self) -> list[FiredTimer]:
        """Remove and return all waiting timers."""
        waiting = [fired for queue in self._queues.values() for fired in queue.waiting]
        for queue in self._queues.values():
            queue.waiting.clear()
        self._waiting = 0
        return waiting
