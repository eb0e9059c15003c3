"""Remember the warnings that this process sent, so that a timer that is set again does not send them again."""

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime

WARNINGS_MAX = 10_000
"""Warnings that are remembered; the oldest is forgotten first, and may then be sent again."""


@dataclass(slots=True)
class SentWarnings:
    """For which timer this process sent each warning, by uid and due time.

    The reply that has a warning may be lost. Then the Broker delivers the same timer again, with the same due time of
    the timer, and the warning is sent again. A timer that a sweep or an event sets again is due at another time.
    """

    _sent: OrderedDict[tuple[str, datetime | None], datetime | None] = field(default_factory=OrderedDict)

    def add(self, uid: str, due_at: datetime | None, *, fired_at: datetime | None) -> None:
        """Note that a warning is sent for a timer that was due at `fired_at`."""
        self._sent.setdefault((uid, due_at), fired_at)
        if len(self._sent) > WARNINGS_MAX:
            self._sent.popitem(last=False)

    def has(self, uid: str, due_at: datetime | None, *, fired_at: datetime | None = None) -> bool:
        """Return whether a warning was sent for another timer than that which was due at `fired_at`; None for any."""
        key = uid, due_at
        return key in self._sent and (fired_at is None or self._sent[key] != fired_at)
