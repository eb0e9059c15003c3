"""A timer fired before a finished object is due: send `object.warned` if the object will still be deleted."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from shared.core.decision.decide import Ignore, Reason, Wait, find_deletion
from shared.core.kinds.rule import KindRule
from shared.evaluation.evaluator import AnyEvaluation
from shared.messages import ObjectWarned, Purpose, TimersSet
from shared.ports import EventReason, Snapshot, Verdict
from shared.usecases.next_timers import wait_until, warn_timer
from shared.usecases.object_handler import Handled
from shared.usecases.timer_handler import TimerHandler

AHEAD_MIN = timedelta(seconds=2)
"""The least time to the due time: the API server's clock has whole seconds, and no warning may follow the deletion."""


@dataclass(frozen=True, slots=True)
class Forewarning(TimerHandler):
    """Warns of deletions, one object at a time; it writes nothing."""

    purpose: ClassVar[Purpose] = Purpose.WARN
    refused: ClassVar[EventReason | None] = None  # `expire` reports the same problems when the object is due
    writes_events: ClassVar[bool] = False  # as above

    async def _evaluate(self, snapshot: Snapshot, rule: KindRule) -> AnyEvaluation:
        return await self.evaluator.evaluate(snapshot, rule)

    async def _carry_out(
        self,
        evaluation: AnyEvaluation,
        rule: KindRule,  # noqa: ARG002 - of handlers that act
        snapshot: Snapshot,
        *,
        missed_before: datetime | None = None,  # noqa: ARG002 - of sweeps
        fired_at: datetime | None = None,
    ) -> Handled | None:
        ref, decision = snapshot.ref, find_deletion(evaluation.decision)
        facts, due_at = decision.facts, decision.facts.due_at
        # An object that an archive has not acknowledged, or a child of which it has not, is deleted once it has.
        is_deleted = isinstance(decision, Wait) or decision.reason in (Reason.NOT_ARCHIVED, Reason.CHILD_NOT_ARCHIVED)
        timer = warn_timer(ref, facts) if is_deleted and not self.dry_run else None
        if timer is None or due_at is None or due_at - snapshot.read_at < AHEAD_MIN:
            reason = decision.reason if isinstance(decision, Ignore | Wait) else Reason.EXPIRED
            self._record(Verdict.KEPT, ref, reason, detail="no warning is sent")
            return None
        if timer.due_at > snapshot.read_at:
            again_at = wait_until(timer.due_at, snapshot, fired_at, now=self.clock.now())
            self._record(Verdict.TIMER_SET, ref, decision.reason, due_at=again_at)
            return TimersSet(timers=(timer.model_copy(update={"due_at": again_at}),))
        if self.evaluator.warnings.has(ref.uid, due_at, fired_at=fired_at):
            self._record(Verdict.KEPT, ref, decision.reason, detail="the warning was sent before")
            return None
        self.evaluator.warnings.add(ref.uid, due_at, fired_at=fired_at)
        self._record(Verdict.WARNED, ref, decision.reason, detail=facts.summary())
        return ObjectWarned(
            ref=ref,
            outcome=facts.finish.outcome,
            finished_at=facts.finish.at,
            ttl_from=facts.ttl.source if facts.ttl else "",
            due_at=due_at,
        )
