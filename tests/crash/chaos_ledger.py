"""Records requests to a timer engine, its answers and what arrives, and finds violations of the rules of chaos runs.

The engine acknowledges a request when it has stored it. The rules:

- lost: the engine acknowledged a timer, and the timer did not arrive. No later request replaced or cancelled it.
- early: a timer arrived before it was due.
- cancelled, replaced: a timer arrived after the engine acknowledged its cancellation or replacement. If the
  acknowledgement came before the timer was due, each arrival is a violation. If it came later, a delivery may have been
  under way: each process may deliver the timer once, at most IN_FLIGHT after the acknowledgement.

The engine may carry out a request without an answer at any later time, or never. So the timer of such a request may
arrive. And such a request may have replaced or cancelled the acknowledged timer of its object, which is then not lost.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta

IN_FLIGHT = timedelta(seconds=20)
"""A server that is cut off may lead for 10 s, and a process may deliver what it gets from it; the rest is a margin."""

Due = datetime | None
"""The due time of a timer, unique for its object; None: its object has no timer."""


@dataclass
class _Object:
    """The requests on one object.

    Attributes:
        wanted: One of these must come true: a timer arrives, or none is pending.
        unsure: What requests without an answer may yet bring about.
        acknowledged: The timers that were acknowledged, and not revoked.
        revoked: Since when no delivery of a timer may begin, and by which request.
    """

    asked: set[datetime] = field(default_factory=set)
    wanted: set[Due] = field(default_factory=set)
    unsure: set[Due] = field(default_factory=set)
    acknowledged: set[datetime] = field(default_factory=set)
    revoked: dict[datetime, tuple[datetime, str]] = field(default_factory=dict)
    accepted: Counter[datetime] = field(default_factory=Counter)
    after_revocation: Counter[datetime] = field(default_factory=Counter)


class ChaosLedger:
    """Records the run, and finds violations.

    Args:
        processes: How many processes deliver at once; each may have one delivery of a timer in flight.

    Attributes:
        violations: By rule: the objects, and what happened.
        counts: Requests, answers and arrivals.
        lateness_max: Of the first arrival of a timer that the target accepted.
    """

    def __init__(self, processes: int) -> None:
        self.violations: dict[str, list[str]] = defaultdict(list)
        self.counts: Counter[str] = Counter()
        self.lateness_max = timedelta()
        self._processes = processes
        self._objects: dict[str, _Object] = defaultdict(_Object)

    def asked(self, uid: str, due_at: datetime, *, cancels: bool) -> None:
        """A request is about to be sent."""
        one = self._objects[uid]
        one.asked.add(due_at)
        one.unsure -= one.accepted.keys()  # it was carried out already, and so cannot replace what follows
        self.counts["cancels" if cancels else "sets"] += 1

    def acknowledged(self, uid: str, due_at: datetime, at: datetime, *, cancels: bool) -> None:
        """A request was answered with success, at this time at the latest."""
        one = self._objects[uid]
        for before in one.acknowledged:
            one.revoked[before] = at, "cancelled" if cancels else "replaced"
        one.acknowledged = set() if cancels else {due_at}
        one.wanted = {None if cancels else due_at, *one.unsure}
        self.counts["acknowledged"] += 1

    def unanswered(self, uid: str, due_at: datetime, *, cancels: bool) -> None:
        """A request had no answer: it may have been carried out, or may be later."""
        one = self._objects[uid]
        one.unsure.add(None if cancels else due_at)
        if one.wanted:
            one.wanted |= one.unsure
        self.counts["unanswered"] += 1

    def arrived(self, uid: str, due_at: datetime, at: datetime) -> None:
        """A delivery began; whether it is accepted comes later."""
        one = self._objects[uid]
        self.counts["arrived"] += 1
        if due_at not in one.asked:
            self.violations["made up"].append(f"{uid} due {due_at}")
        if at < due_at:
            self.violations["early"].append(f"{uid} due {due_at} arrived {due_at - at} before")
        if due_at not in one.revoked:
            return
        revoked_at, how = one.revoked[due_at]
        one.after_revocation[due_at] += 1
        is_late = at - revoked_at > IN_FLIGHT
        if is_late or revoked_at < due_at or one.after_revocation[due_at] > self._processes:
            self.violations[how].append(f"{uid} due {due_at} arrived {at - revoked_at} after it was {how}")
        else:
            self.counts["in flight when revoked"] += 1

    def accepted(self, uid: str, due_at: datetime, at: datetime) -> None:
        """The target accepted a delivery."""
        one = self._objects[uid]
        self.counts["accepted"] += 1
        if one.accepted[due_at]:
            self.counts["duplicates"] += 1
        else:
            self.lateness_max = max(self.lateness_max, at - due_at)
        one.accepted[due_at] += 1

    def lost(self) -> list[str]:
        """The objects of which an acknowledged timer has not arrived yet."""
        return [
            uid
            for uid, one in self._objects.items()
            if one.wanted and None not in one.wanted and not one.wanted & one.accepted.keys()
        ]

    def close(self) -> None:
        """The run is over: what has not arrived is lost."""
        self.violations["lost"] += self.lost()

    def summary(self) -> str:
        """The counts, and the first violations of each rule."""
        names = ("sets", "cancels", "acknowledged", "unanswered", "arrived", "accepted", "duplicates")
        counted = ", ".join(f"{self.counts[name]} {name}" for name in (*names, "in flight when revoked"))
        lines = [f"{len(self._objects)} objects, {counted}, max lateness {self.lateness_max.total_seconds():.2f} s"]
        lines += [f"{rule}: {len(found)}, such as {found[:3]}" for rule, found in self.violations.items() if found]
        return "\n".join(lines)
