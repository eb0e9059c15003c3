"""What this process remembers about objects: those that it stopped, and the warnings that it sent.

A controller that writes its whole object from a template removes both. Without the mark, such an object looks as if it
was never stopped, and would be stopped again at once, without end.
"""

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from datetime import datetime

from shared.core.deadlines.deadline import STOPS_MAX, Mark
from shared.core.deadlines.decide_stop import Stop, StopDecision
from shared.core.decision.decide import Ignore
from shared.core.decision.facts import Reason

OBJECTS_MAX = 10_000
"""Objects that are remembered; the one that was stopped the longest ago is forgotten first."""


@dataclass(slots=True)
class LostMarks:
    """How often this process stopped each object that had no mark, by uid."""

    _marks: OrderedDict[str, Mark] = field(default_factory=OrderedDict)

    def stopped(self, uid: str, stop: Stop, at: datetime) -> None:
        """Note a stop of an object; one that has a mark needs no memory."""
        if stop.facts.active.mark is not None:
            return
        before = self._marks.pop(uid, None)
        self._marks[uid] = Mark(at, before.stops + 1 if before else 1)
        if len(self._marks) > OBJECTS_MAX:
            self._marks.popitem(last=False)

    def checked(self, uid: str, decision: StopDecision) -> StopDecision:
        """The decision; or STOP_UNDONE, with the lost mark, if the mark was removed after each of `STOPS_MAX` stops."""
        lost = self._marks.get(uid)
        if lost is None or lost.stops < STOPS_MAX or not isinstance(decision, Stop):
            return decision
        active = decision.facts.active
        if active.mark is not None or active.deletes:
            return decision
        return Ignore(Reason.STOP_UNDONE, replace(decision.facts, active=replace(active, mark=lost)))


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
