"""What one step of a sweep gathers: its counts, and the timers for what is due soon or could not be handled."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from shared.core.decision.facts import Audited
from shared.core.decision.finish import finish_of
from shared.core.decision.reasons import Reason
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ObjectRef
from shared.errors import ConflictError, TryLaterError, TtlError
from shared.messages import SWEEP_COUNT_MAX, TIMERS_MAX, ObjectDeleted, Purpose, Timer, TimersSet
from shared.ports import HandlingReason, Publisher, Snapshot, Telemetry, Verdict
from shared.usecases.policy_reports import AuditFindings
from shared.usecases.timers import retry_of

_COUNTED = {
    Verdict.DELETED: "deleted",
    Verdict.WOULD_DELETE: "would_delete",
    Verdict.WOULD_STOP: "would_stop",
    Verdict.FAILED: "failed",
    Verdict.ALREADY_GONE: "already_gone",
}

_ORDER = (
    "looked_at",
    "deleted",
    "would_delete",
    "would_stop",
    "timers_set",
    "timers_not_set",
    "kept",
    "failed",
    "already_gone",
)

_UNKNOWN = (Reason.NAMESPACE_UNREAD, Reason.INHERITED_UNREAD)
"""The reasons of objects that are kept because a read failed: they may be due."""


class SweepCounts:
    """Counts the verdicts of one step, and passes them on.

    A step publishes its timers at its end, and that may fail. So the verdict that a timer is set waits for `confirm`.

    Args:
        telemetry: Receives the verdicts.
        before: The counts of the steps before.
        due_before: An object that is due at this instant or later gets no timer from this sweep.
        findings: Receives what rules with audit would do; None if no report follows from this sweep.

    Attributes:
        looked_at: Objects on the pages that were listed.
        timers_set: Objects whose timers are published, and that have no other verdict.
        timers_not_set: Objects whose timers could not be published, and that have no other verdict.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        before: Mapping[str, int],
        due_before: datetime,
        findings: AuditFindings | None = None,
    ) -> None:
        self._telemetry, self._before, self._due_before, self._findings = telemetry, before, due_before, findings
        self._verdicts: Counter[str] = Counter()
        self._unconfirmed: dict[str, Callable[[], None]] = {}
        self._audited: set[str] = set()
        self.looked_at = 0
        self.timers_set = self.timers_not_set = 0

    def __getattr__(self, name: str) -> Any:
        """Pass on everything that is not counted."""
        return getattr(self._telemetry, name)

    def record(
        self, verdict: Verdict, ref: ObjectRef, reason: str = "", *, due_at: datetime | None = None, **fields: Any
    ) -> None:
        """See `shared.ports.Telemetry`."""
        if verdict is Verdict.TIMER_SET and due_at is not None and due_at >= self._due_before:
            verdict, reason = Verdict.KEPT, HandlingReason.LEFT_TO_SWEEP
        if verdict is Verdict.TIMER_SET:
            self._unconfirmed[ref.uid] = partial(self._telemetry.record, verdict, ref, reason, due_at=due_at, **fields)
            return
        self._verdicts[verdict] += 1
        if verdict is Verdict.FAILED or reason in _UNKNOWN:
            self.fail(ref)
        self._telemetry.record(verdict, ref, reason, due_at=due_at, **fields)

    def fail(self, ref: ObjectRef) -> None:
        """Count for the reports of audits an object about which nothing was found out."""
        if self._findings is not None:
            self._findings.fail(ref.namespace)

    def confirm(self, wanted: Iterable[str], published: Collection[str]) -> None:
        """Count the objects that need timers, and record those whose timers are published.

        Args:
            wanted: The uids of the objects that need timers.
            published: The uids of those whose timers are all published.
        """
        for uid in wanted:
            is_counted = uid in self._audited
            if uid in published:
                self.timers_set += not is_counted
                self._unconfirmed.pop(uid, lambda: None)()
            else:
                self.timers_not_set += not is_counted

    def audited(self, verdict: Verdict, ref: ObjectRef, audited: Audited, *, by: str) -> None:
        """See `shared.ports.Telemetry`."""
        self._verdicts[verdict] += 1
        if verdict in _COUNTED:
            self._audited.add(ref.uid)
        self._telemetry.audited(verdict, ref, audited, by=by)
        if self._findings is not None:
            self._findings.add(verdict, ref, audited)

    def deleted(self, deleted: ObjectDeleted, **fields: Any) -> None:
        """See `shared.ports.Telemetry`."""
        self._verdicts[Verdict.DELETED] += 1
        self._telemetry.deleted(deleted, **fields)

    def so_far(self) -> dict[str, int]:
        """The counts of this step and the steps before; an object without another verdict counts as kept."""
        here = {name: self._verdicts[verdict] for verdict, name in _COUNTED.items()}
        here |= {"timers_set": self.timers_set, "timers_not_set": self.timers_not_set}
        here["kept"] = max(self.looked_at - sum(here.values()), 0)
        here["looked_at"] = self.looked_at
        return {name: min(here[name] + self._before.get(name, 0), SWEEP_COUNT_MAX) for name in _ORDER}


def retries_of(
    ref: ObjectRef, rule: KindRule, snapshot: Snapshot | None, error: ConflictError | TryLaterError, *, now: datetime
) -> list[Timer]:
    """The timers that handle one object again: of the purpose that it needs, or of both if it could not be read."""
    least = error.retry_after_seconds if isinstance(error, TryLaterError) else 0.0
    if snapshot is None:
        purposes: tuple[Purpose, ...] = (Purpose.EXPIRE, *((Purpose.ENFORCE,) if rule.deadline else ()))
    else:
        is_running = finish_of(snapshot.obj, rule).finished is False
        purposes = (Purpose.ENFORCE if is_running else Purpose.EXPIRE,)
    return [retry_of(Timer(ref=ref, purpose=one, due_at=now), least=least, now=now) for one in purposes]


@dataclass(slots=True)
class WantedTimers:
    """The timers of one step, in the order in which the objects were handled.

    Attributes:
        timers: The timers.
    """

    timers: list[Timer] = field(default_factory=list)
    _ends: list[tuple[str, int]] = field(default_factory=list)

    def add(self, ref: ObjectRef, timers: Sequence[Timer]) -> None:
        """Add the timers that follow from one object of a page."""
        self.timers.extend(timers)
        if timers:
            self._ends.append((ref.uid, len(self.timers)))

    @property
    def uids(self) -> list[str]:
        """The objects that need timers."""
        return [uid for uid, _ in self._ends]

    async def publish(self, publisher: Publisher, telemetry: Telemetry) -> set[str]:
        """Publish the timers; a failure is reported and the sweep continues, since a later sweep finds the objects.

        After a failure the rest of the timers is not published: the next message would fail too, and may last long.

        Returns:
            The uids of the objects whose timers are all published.
        """
        published = 0
        try:
            while part := self.timers[published : published + TIMERS_MAX]:
                await publisher.publish(TimersSet(timers=tuple(part)))
                published += len(part)
        except TtlError as error:
            telemetry.problem("sweep could not set timers", timers=len(self.timers) - published, error=str(error))
        return {uid for uid, end in self._ends if end <= published}
