"""Know which timers the engine did not store, so that the end of a process can say so."""

from collections.abc import Sequence
from datetime import datetime

from shared.messages import Timer, TimerKey

KNOWN_MAX = 100_000
"""Timers that are known at most; more are not counted."""


class UnstoredTimers:
    """The timers whose last attempt to store them failed.

    Attributes:
        reason: Why the last attempt of any timer failed; empty if none did.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._due: dict[TimerKey, datetime] = {}

    def failed(self, timers: Sequence[Timer], reason: str, now: datetime) -> None:
        """Note timers that were not stored, or of which that is unknown."""
        self.reason = reason
        if len(self._due) + len(timers) > KNOWN_MAX:
            self._due = {key: due_at for key, due_at in self._due.items() if due_at > now}
        for timer in timers[: KNOWN_MAX - len(self._due)]:
            self._due[timer.key] = timer.due_at

    def stored(self, timers: Sequence[Timer]) -> None:
        """Note timers that were stored."""
        if self._due:
            for timer in timers:
                self._due.pop(timer.key, None)

    def count(self, now: datetime) -> int:
        """Return how many of them are not due yet; the objects of the others were due, and sweeps delete those."""
        return sum(due_at > now for due_at in self._due.values())
