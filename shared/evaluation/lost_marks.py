"""Remember the objects that this process stopped, in case another client removes the mark together with the stop.

A controller that writes its whole object from a template removes both. Without the mark, such an object looks as if it
was never stopped, and would be stopped again at once, without end.
"""

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from datetime import datetime

from shared.core.deadlines.decide_stop import Stop, StopDecision
from shared.core.deadlines.mark import STOPS_MAX, Mark
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
