"""A running object's timer fired: stop exactly that object if its active deadline is over."""

from dataclasses import dataclass
from typing import Any, ClassVar

from shared.core.deadlines.decide_stop import Stop, StopDecision
from shared.core.deadlines.run import is_merged
from shared.core.decision.decide import Ignore, Reason, Wait
from shared.core.kinds.rule import KindRule
from shared.errors import PermanentError
from shared.evaluation.evaluator import Evaluation
from shared.messages import ObjectDeleted, ObjectStopped, Purpose, Timer, TimersSet
from shared.ports import EventReason, Snapshot, Verdict
from shared.usecases.counted_writes import stop_counted
from shared.usecases.due_handler import DueHandler
from shared.usecases.enforce_reports import (
    describe_excess,
    describe_patch,
    describe_stop,
    find_stop_event,
    patch_of,
    stop_of,
)
from shared.usecases.expire_reports import ObjectEvent
from shared.usecases.object_handler import Handled


@dataclass(frozen=True, slots=True)
class Enforcement(DueHandler):
    """Stops objects at their deadline, one at a time."""

    purpose: ClassVar[Purpose] = Purpose.ENFORCE
    would: ClassVar[Verdict] = Verdict.WOULD_STOP
    refused: ClassVar[EventReason | None] = EventReason.STOP_REFUSED

    async def enforce(self, timer: Timer) -> Handled | None:
        """Stop the timer's object if its deadline is over; see `TimerHandler.handle`."""
        return await self.handle(timer)

    async def find_timers(self, rule: KindRule, snapshot: Snapshot) -> TimersSet | None:
        """Evaluate one object of a LIST, report what a person has to know, and return its timer; stop nothing.

        Only the function `enforce` has the rights to stop an object.

        Raises:
            TryLaterError: The API server is busy or away.
        """
        ref, decision = snapshot.ref, (await self._evaluate(snapshot, rule)).decision
        self._report_decision(rule, snapshot.obj, decision)
        match decision:
            case Ignore(Reason.AUDIT_ONLY, facts):
                self._record_audited(ref, facts)
                return None
            case Ignore():
                return None
            case Wait(until, reason):
                self._record(Verdict.TIMER_SET, ref, reason, due_at=until)
                return self._timers([(ref, until)])
            case Stop(since, reason) if self.dry_run:
                self._record(self.would, ref, reason, detail=describe_excess(decision.facts))
                return None
            case Stop(since, reason):
                self._record(Verdict.TIMER_SET, ref, reason, due_at=since)
                return self._timers([(ref, self.clock.now())])

    async def _evaluate(self, snapshot: Snapshot, rule: KindRule) -> Evaluation[StopDecision]:
        return await self.evaluator.evaluate_stop(snapshot, rule)

    def _find_event(self, rule: KindRule, obj: dict[str, Any], decision: Any) -> ObjectEvent | None:
        return find_stop_event(rule, obj, decision)

    async def _act(
        self, due: Any, rule: KindRule, snapshot: Snapshot, *, is_missed: bool
    ) -> ObjectDeleted | ObjectStopped | None:
        if due.facts.active.deletes:
            return await self._delete(due, rule, snapshot, is_missed=is_missed)
        return await self._stop(due, rule, snapshot)

    async def _stop(self, due: Stop, rule: KindRule, snapshot: Snapshot) -> ObjectStopped:
        active = due.facts.active
        stop = rule.deadline.find_stop(active.action) if rule.deadline else None
        if stop is None:
            raise PermanentError(f"the kind rule of {rule.name} has no way to stop an object")
        ref, obj = snapshot.ref, snapshot.obj
        patch = patch_of(stop, obj, at=snapshot.read_at, before=active.mark)
        policy = self.evaluator.policy().digest
        with self._timing(rule):
            stored = await stop_counted(self.cluster, self.safeguards, rule, obj, patch)
        self.evaluator.lost_marks.stopped(ref.uid, due, snapshot.read_at)
        if not is_merged(stored.obj, stop.patch):
            problem = f"the API server accepted a patch of {ref}, and did not store all of it"
            raise PermanentError(f"{problem}: {describe_patch(rule, active.action)}")
        stopped = stop_of(ref, due, stopped_at=self.clock.now(), policy=policy)
        self.telemetry.object_stopped(stopped, by=self.by, detail=describe_stop(rule, due.facts))
        return stopped
