"""Carry out the decision about an object that may be due: ask the safeguards, and stop or delete it.

`expire`, `enforce` and the sweep do all of this in the same way. The subclasses differ in the pure function that
decides, and in what they do with an object that is due.
"""

from abc import abstractmethod
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from shared.core.archive.decide_archive import ToArchive
from shared.core.archive.gate import find_propagation
from shared.core.deadlines.decide_stop import Stop
from shared.core.decision.decide import Expire, Ignore, Wait
from shared.core.decision.facts import Facts, Reason
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ObjectRef
from shared.errors import OutdatedError
from shared.evaluation.evaluator import AnyEvaluation
from shared.messages import ObjectDeleted, TimersSet
from shared.ports import EventReason, HandlingReason, Snapshot, Verdict
from shared.safeguards.reasons import Safeguard
from shared.safeguards.safeguards import Delayed, Denied
from shared.usecases.counted_writes import ask_safeguards, delete_counted
from shared.usecases.expire_reports import deletion_of, list_finalizers, wanted_since
from shared.usecases.next_timers import engine_now, wait_until
from shared.usecases.object_handler import Handled
from shared.usecases.timer_handler import TimerHandler


@dataclass(frozen=True, slots=True)
class DueHandler(TimerHandler):
    """Acts on the objects that are due, one at a time."""

    @abstractmethod
    async def _act(self, due: Any, rule: KindRule, snapshot: Snapshot, *, is_missed: bool) -> Handled | None:
        """Do with a due object what this purpose is for; the safeguards have let it pass."""

    def _permit(self, rule: KindRule, ref: ObjectRef) -> AbstractAsyncContextManager[bool]:
        """Hold a permit of the pace; gives whether this has waited."""
        return self.pace.permit(rule, ref.namespace) if self.pace else nullcontext(enter_result=False)

    def _timing(self, rule: KindRule) -> AbstractContextManager[None]:
        """Measure a request that acts on a due object."""
        return self.pace.timing(rule) if self.pace else nullcontext()

    def _spread_at(self, ref: ObjectRef, facts: Facts) -> datetime | None:  # noqa: ARG002 - only deletions are spread
        """When to act on an object that a sweep found overdue; None for now."""
        return None

    async def _carry_out(
        self,
        evaluation: AnyEvaluation,
        rule: KindRule,
        snapshot: Snapshot,
        *,
        missed_before: datetime | None = None,
        fired_at: datetime | None = None,
    ) -> Handled | None:
        """Carry out a decision; a due object is acted on if the safeguards let it pass."""
        ref = snapshot.ref
        self._report_decision(rule, snapshot.obj, evaluation.decision)
        match evaluation.decision:
            case ToArchive():
                return None  # a decision of `Archival` alone
            case Ignore(Reason.AUDIT_ONLY, facts):
                self._record_audited(ref, facts)
                return None
            case Ignore(reason, facts):
                self._record(Verdict.KEPT, ref, reason, detail=facts.problem)
                return self._timers((one.ref, one.due_at) for one in evaluation.fallen)
            case Wait(until, reason, facts):
                if reason is Reason.AUDIT_ONLY:
                    self._record_audited(ref, facts)
                else:
                    self._record(Verdict.TIMER_SET, ref, reason, due_at=until, detail=facts.problem)
                again_at = wait_until(until, snapshot, fired_at, now=self.clock.now())
                return self._timers([(ref, again_at), *((one.ref, one.due_at) for one in evaluation.fallen)])
            case Expire(since, _, facts) | Stop(since, _, facts):
                is_missed = missed_before is not None and wanted_since(since, facts) < missed_before
                return await self._carry_out_due(evaluation, rule, snapshot, is_missed=is_missed, fired_at=fired_at)

    async def _carry_out_due(
        self,
        evaluation: AnyEvaluation,
        rule: KindRule,
        snapshot: Snapshot,
        *,
        is_missed: bool,
        fired_at: datetime | None,
    ) -> Handled | None:
        ref, due = snapshot.ref, evaluation.decision
        if self.dry_run:
            self._record(self.would, ref, due.reason, detail=due.facts.summary())
            return None
        rest_at = self._spread_at(ref, due.facts) if is_missed else None
        if rest_at is not None:
            self._record(Verdict.TIMER_SET, ref, HandlingReason.JITTER, due_at=rest_at)
            return self._timers([(ref, rest_at)])
        answer = await ask_safeguards(self.safeguards, rule, snapshot.obj, by=self.by)
        if answer is not None:
            return await self._keep(ref, answer, fired_at)
        # From here on nothing is awaited before the request is sent.
        self._check_still_due(evaluation, rule, snapshot)
        return await self._act(due, rule, snapshot, is_missed=is_missed)

    async def _keep(self, ref: ObjectRef, answer: Denied | Delayed, fired_at: datetime | None) -> TimersSet | None:
        """Leave a due object for now: a safeguard denied or delayed what is due."""
        if isinstance(answer, Denied):
            self._record(Verdict.KEPT, ref, answer.reason, detail=answer.detail)
            if answer.event:
                self._write_event(ref, EventReason.RECREATE_LOOP, answer.event)
            return None
        again_at = engine_now(fired_at, now=self.clock.now()) + timedelta(seconds=answer.seconds)
        self._record(Verdict.TIMER_SET, ref, Safeguard.BUDGET, due_at=again_at)
        return self._timers([(ref, again_at)])

    def _check_still_due(self, evaluation: AnyEvaluation, rule: KindRule, snapshot: Snapshot) -> None:
        if not self.evaluator.is_still_due(evaluation, snapshot, rule):
            if self.safeguards:
                self.safeguards.not_deleted(rule, snapshot.ref)
            raise OutdatedError(f"{snapshot.ref}: the decision about it does not hold any more")

    async def _delete(
        self, due: Expire | Stop, rule: KindRule, snapshot: Snapshot, *, is_missed: bool
    ) -> ObjectDeleted | None:
        ref, propagation = snapshot.ref, find_propagation(due.facts, rule)
        policy = self.evaluator.policy().digest  # that of the decision, see `_check_still_due`
        with self._timing(rule):
            is_deleted = await delete_counted(
                self.cluster, self.safeguards, rule, snapshot.obj, propagation=propagation
            )
        if not is_deleted:
            self._record(Verdict.ALREADY_GONE, ref)
            return None
        finalizers = list_finalizers(snapshot.obj)
        deleted = deletion_of(ref, due, deleted_at=self.clock.now(), policy=policy, finalizers=finalizers)
        self.telemetry.deleted(deleted, by=self.by, missed=is_missed)
        return deleted
