"""Records requests to a timer engine, its answers and what arrives, and finds violations of the rules of chaos runs.

The engine acknowledges a request when it has stored it. The rules:

- lost: the engine acknowledged a timer, no later request set the object again, and no timer of the object arrived after
  that and after the due time. An engine may let the retries of one object meet, so an older timer may arrive instead.
- early: a timer arrived before it was due.
- made up: a timer arrived that no request has set.

The engine may carry out a request without an answer at any later time, or never. So the timer of such a request may
arrive. And such a request may have replaced the acknowledged timer of its object, which is then not lost.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta


@dataclass
class _Object:
    """The requests on one object, by their due times, which are unique.

    Attributes:
        served: Those for which the target has accepted a delivery.
        arrived: By due time, what its last delivery serves: what had been asked by then, and was due.
        wanted: One of these must be served.
        unsure: What requests without an answer may yet bring about.
    """

    asked: set[datetime] = field(default_factory=set)
    served: set[datetime] = field(default_factory=set)
    arrived: dict[datetime, set[datetime]] = field(default_factory=dict)
    wanted: set[datetime] = field(default_factory=set)
    unsure: set[datetime] = field(default_factory=set)
    accepted: Counter[datetime] = field(default_factory=Counter)


class ChaosLedger:
    """Records the run, and finds violations.

    Attributes:
        violations: By rule: the objects, and what happened.
        counts: Requests, answers and arrivals.
        lateness_max: Of the first arrival of a timer that the target accepted.
    """

    def __init__(self) -> None:
        self.violations: dict[str, list[str]] = defaultdict(list)
        self.counts: Counter[str] = Counter()
        self.lateness_max = timedelta()
        self._objects: dict[str, _Object] = defaultdict(_Object)

    def asked(self, uid: str, due_at: datetime) -> None:
        """A request is about to be sent."""
        one = self._objects[uid]
        one.asked.add(due_at)
        one.unsure -= one.accepted.keys()  # it was carried out already, and so cannot replace what follows
        self.counts["sets"] += 1

    def acknowledged(self, uid: str, due_at: datetime) -> None:
        """A request was answered with success."""
        one = self._objects[uid]
        one.wanted = {due_at, *one.unsure}
        self.counts["acknowledged"] += 1

    def unanswered(self, uid: str, due_at: datetime) -> None:
        """A request had no answer: it may have been carried out, or may be later."""
        one = self._objects[uid]
        one.unsure.add(due_at)
        if one.wanted:
            one.wanted |= one.unsure
        self.counts["unanswered"] += 1

    def arrived(self, uid: str, due_at: datetime, at: datetime) -> None:
        """A delivery began; whether it is accepted comes later."""
        one = self._objects[uid]
        one.arrived[due_at] = {due_at, *(asked for asked in one.asked if asked <= at)}
        self.counts["arrived"] += 1
        if due_at not in one.asked:
            self.violations["made up"].append(f"{uid} due {due_at}")
        if at < due_at:
            self.violations["early"].append(f"{uid} due {due_at} arrived {due_at - at} before")

    def accepted(self, uid: str, due_at: datetime, at: datetime) -> None:
        """The target accepted a delivery."""
        one = self._objects[uid]
        self.counts["accepted"] += 1
        if one.accepted[due_at]:
            self.counts["duplicates"] += 1
        else:
            self.lateness_max = max(self.lateness_max, at - due_at)
        one.accepted[due_at] += 1
        one.served |= one.arrived.get(due_at, {due_at})

    def lost(self) -> list[str]:
        """The objects of which an acknowledged timer has not arrived yet."""
        return [uid for uid, one in self._objects.items() if one.wanted and not one.wanted & one.served]

    def close(self) -> None:
        """The run is over: what has not arrived is lost."""
        self.violations["lost"] += self.lost()

    def summary(self) -> str:
        """The counts, and the first violations of each rule."""
        names = ("sets", "acknowledged", "unanswered", "arrived", "accepted", "duplicates")
        counted = ", ".join(f"{self.counts[name]} {name}" for name in names)
        lines = [f"{len(self._objects)} objects, {counted}, max lateness {self.lateness_max.total_seconds():.2f} s"]
        lines += [f"{rule}: {len(found)}, such as {found[:3]}" for rule, found in self.violations.items() if found]
        return "\n".join(lines)
