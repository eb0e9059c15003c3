"""What changes among pending timers between two reads, for `timers ls --watch`."""

from collections.abc import Iterator, Sequence
from enum import StrEnum

from shared.messages import Timer, TimerKey


class TimerChange(StrEnum):
    """What happened to a timer since the read before."""

    PENDING = "pending"
    """It is listed for the first time."""
    MOVED = "moved"
    """It was set again for another time."""
    RETRIED = "retried"
    """Its delivery failed, and is repeated."""
    GONE = "gone"
    """It fired, or it was cancelled."""


class PendingChanges:
    """Compares each read of the pending timers with the read before; keeps the timers of one read in memory."""

    def __init__(self) -> None:
        self._before: dict[TimerKey, Timer] = {}

    def find(self, timers: Sequence[Timer]) -> Iterator[tuple[TimerChange, Timer]]:
        """Yield what changed since the read before, in the order of the engine; the timers that are gone come last."""
        before, self._before = self._before, {}
        for timer in timers:
            known = before.pop(timer.key, None)
            is_twice = timer.key in self._before  # a timer that is set again during the read may be on two pages
            self._before[timer.key] = timer
            if known is None:
                if not is_twice:
                    yield TimerChange.PENDING, timer
            elif known.attempts < timer.attempts:
                yield TimerChange.RETRIED, timer
            elif known.due_at != timer.due_at:
                yield TimerChange.MOVED, timer
        yield from ((TimerChange.GONE, timer) for timer in before.values())
