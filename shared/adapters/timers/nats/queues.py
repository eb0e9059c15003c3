"""The fired timers of one purpose that wait in this process for their delivery.

The servers send the timers of all shares (a kind in a namespace) in the order in which they fired. So that a share with
many timers delays no other, only some of them wait here. The others are delayed, and the servers send what is behind.
"""

from collections import deque
from dataclasses import dataclass, field

from nats.aio.msg import Msg

from shared.adapters.timers.permits import Permits, Share, share_of
from shared.messages import Timer

FIRED_WAITING_MAX = 1_024
"""How many timers wait here. A share may add one if it has fewer than half as many as may still be added."""

SHARE_MIN = 8
"""How many timers of a share may wait in any case, if any may still be added."""

FIRED_SHARES_MAX = 10_000
"""How many shares are remembered; beyond it, those are forgotten that have nothing here, and no delayed timer."""

REDELIVERIES_PER_SECOND = 1_000
"""How many delayed timers of all shares return in a second: as many as a process delivers over HTTP."""

DELAY_SECONDS_MIN = 0.25
"""The shortest delay."""

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
        """The share whose permit the delivery takes."""
        return share_of(self.timer.ref)


@dataclass(slots=True)
class _Queue:
    waiting: deque[FiredTimer] = field(default_factory=deque)
    in_flight: int = 0
    returns_at: float = 0.0
    per_second: float = 0.0
    delivered: int = 0
    counted_at: float = 0.0

    def is_idle(self, now: float) -> bool:
        return not self.in_flight and not self.waiting and self.returns_at < now


class FiredQueues:
    """A queue for each share. The shares take turns, and within a share the oldest is first.

    All times are of the monotonic clock, in seconds.

    Args:
        in_flight: The maximum number of deliveries in flight.
    """

    def __init__(self, in_flight: int) -> None:
        self._permits = Permits(in_flight)
        self._queues: dict[Share, _Queue] = {}
        self._turns: dict[Share, _Queue] = {}  # those with waiting timers
        self._waiting = 0

    def add(self, fired: FiredTimer, now: float) -> float | None:
        """Let a timer wait; return None, or for how many seconds it must be delayed instead."""
        queue = self._queues.get(fired.share) or self._new_queue(fired.share, now)
        free = FIRED_WAITING_MAX - self._waiting
        if len(queue.waiting) >= max(SHARE_MIN if free > 0 else 0, free // 2):
            per_second = max(REDELIVERIES_PER_SECOND / (len(self._turns) or 1), 1.5 * queue.per_second)
            queue.returns_at = max(queue.returns_at, now + DELAY_SECONDS_MIN) + 1 / per_second
            return queue.returns_at - now
        queue.waiting.append(fired)
        self._turns[fired.share] = queue
        self._waiting += 1
        return None

    def take(self) -> FiredTimer | None:
        """Return the next timer whose share has a permit; its permit is taken until `finish`."""
        if not self._permits.free:
            return None
        for share, queue in self._turns.items():
            if self._permits.may_take(share):
                del self._turns[share]
                fired = queue.waiting.popleft()
                if queue.waiting:
                    self._turns[share] = queue  # at the end: the shares take turns
                self._permits.take(share)
                self._waiting -= 1
                queue.in_flight += 1
                return fired
        return None

    def finish(self, fired: FiredTimer, now: float, *, failed: bool) -> None:
        """Free the permit of a delivery that ended."""
        self._permits.give(fired.share, failed=failed)
        queue = self._queues[fired.share]
        queue.in_flight -= 1
        queue.delivered += not failed
        if (seconds := now - queue.counted_at) >= _RATE_SECONDS:
            queue.per_second, queue.delivered, queue.counted_at = queue.delivered / seconds, 0, now
        if queue.is_idle(now):
            del self._queues[fired.share]

    def clear(self) -> list[FiredTimer]:
        """Remove and return all waiting timers."""
        waiting = [fired for queue in self._turns.values() for fired in queue.waiting]
        for queue in self._turns.values():
            queue.waiting.clear()
        self._turns.clear()
        self._waiting = 0
        return waiting

    def _new_queue(self, share: Share, now: float) -> _Queue:
        if len(self._queues) >= FIRED_SHARES_MAX:
            self._queues = {share: queue for share, queue in self._queues.items() if not queue.is_idle(now)}
        queue = self._queues[share] = _Queue(counted_at=now)
        return queue
