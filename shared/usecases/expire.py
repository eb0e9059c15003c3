"""A finished object's timer fired: delete exactly that object if its TTL is over."""

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar

from shared.core.decision.decide import Decision, Expire, Reason, Wait, find_deletion
from shared.core.decision.facts import Facts
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ObjectRef
from shared.errors import OutdatedError, TryLaterError
from shared.evaluation.evaluator import AnyEvaluation, Evaluation
from shared.evaluation.proofs import Proofs
from shared.messages import ObjectDeleted, Purpose, Timer, TimersSet
from shared.ports import EventReason, Snapshot, Verdict
from shared.usecases.archives.reports import find_unarchived_event
from shared.usecases.due_handler import DueHandler
from shared.usecases.expire_reports import ObjectEvent, find_event, wanted_since
from shared.usecases.forewarning import Forewarning
from shared.usecases.next_timers import CHILD_ATTEMPTS_MAX, prove_first, retry_later, spread_at, warn_timer
from shared.usecases.object_handler import Handled
from shared.usecases.timer_handler import DECISIONS_MAX


@dataclass(frozen=True, slots=True)
class Expiry(DueHandler):
    """Deletes due objects, one at a time; the event path and the sweep share it.

    Attributes:
        proofs: Makes the proofs of timers, and finds decisions by them; None to read each object.
    """

    proofs: Proofs | None = None

    purpose: ClassVar[Purpose] = Purpose.EXPIRE
    would: ClassVar[Verdict] = Verdict.WOULD_DELETE
    refused: ClassVar[EventReason | None] = EventReason.DELETION_REFUSED

    async def expire(self, timer: Timer) -> Handled | None:
        """Delete the timer's object if it is due, or warn of that; see `TimerHandler.handle`."""
        if timer.purpose is Purpose.WARN:
            return await Forewarning.like(self).handle(timer)
        answer = await self.handle(timer)
        return retry_later(answer, timer, now=self.clock.now()) if isinstance(answer, TimersSet) else answer

    async def act(self, rule: KindRule, snapshot: Snapshot, *, missed_before: datetime) -> Handled | None:
        """Evaluate one object of a LIST, and carry out the decision.

        The LIST also contains the objects that this one pushes beyond the number that a rule keeps, so no timers are
        set for them: such a timer would bypass the jitter.

        Args:
            rule: The object's kind.
            snapshot: The object, and the API server's time.
            missed_before: An object that was due before this instant counts as missed by the events.

        Raises:
            ConflictError: The object has changed since it was read.
            TryLaterError: The API server is busy or away, or too slow for a decision to count.
        """
        evaluation = await self._evaluate_listed(snapshot, rule)
        if not self._deletes_now(evaluation.decision, snapshot, missed_before):
            return await self._carry_out(evaluation, rule, snapshot, missed_before=missed_before)
        async with self._permit(rule, snapshot.ref) as has_waited:
            for attempt in range(DECISIONS_MAX):
                if attempt or has_waited:
                    evaluation = await self._evaluate_listed(snapshot, rule)
                with suppress(OutdatedError):
                    return await self._carry_out(evaluation, rule, snapshot, missed_before=missed_before)
        raise TryLaterError(f"{snapshot.ref}: the facts of its deletion took too long to read")

    def _deletes_now(self, decision: Decision, snapshot: Snapshot, missed_before: datetime) -> bool:
        """Whether a decision needs a permit; the timer that retries a refused one would bypass the jitter."""
        if self.dry_run or not isinstance(decision, Expire):
            return False
        is_missed = wanted_since(decision.since, decision.facts) < missed_before
        return not (is_missed and self._spread_at(snapshot.ref, decision.facts))

    async def report_ttl(self, rule: KindRule, snapshot: Snapshot) -> None:
        """Report a TTL of a running object that cannot be read, or that has no effect; delete nothing.

        Raises:
            TryLaterError: The API server is busy or away.
        """
        self._report_decision(rule, snapshot.obj, await self.evaluator.decide(snapshot, rule))

    async def _evaluate_listed(self, snapshot: Snapshot, rule: KindRule) -> Evaluation[Decision]:
        found = await self._evaluate(snapshot, rule)
        return replace(found, fallen=()) if found.fallen else found

    async def _evaluate(self, snapshot: Snapshot, rule: KindRule) -> Evaluation[Decision]:
        return await self.evaluator.evaluate(snapshot, rule)

    async def _find_proven(self, rule: KindRule, timer: Timer) -> tuple[Snapshot, AnyEvaluation] | None:
        return await self.proofs.find(timer, rule) if self.proofs else None

    def _find_event(self, rule: KindRule, obj: dict[str, Any], decision: Any) -> ObjectEvent | None:
        now = self.clock.now()
        return find_unarchived_event(obj, decision, now=now) or find_event(rule, obj, decision)

    async def _carry_out(
        self,
        evaluation: AnyEvaluation,
        rule: KindRule,
        snapshot: Snapshot,
        *,
        missed_before: datetime | None = None,
        fired_at: datetime | None = None,
    ) -> Handled | None:
        answer = await DueHandler._carry_out(  # noqa: SLF001 - the class with slots has no working `super()`
            self, evaluation, rule, snapshot, missed_before=missed_before, fired_at=fired_at
        )
        facts, ref = evaluation.decision.facts, snapshot.ref
        if isinstance(evaluation.decision, Wait):
            if self.proofs and isinstance(answer, TimersSet):
                answer = prove_first(answer, self.proofs.make(evaluation, rule, snapshot.obj))
            answer = self._with_warning(answer, ref, find_deletion(evaluation.decision).facts)
        children = evaluation.context.children
        is_read_again = fired_at is not None or (children is not None and children.is_cut_off)
        if evaluation.decision.reason is Reason.CHILD_NOT_ARCHIVED and is_read_again and not self.dry_run:
            is_missed = missed_before is not None and facts.due_at is not None and facts.due_at < missed_before
            due_at = (self._spread_at(ref, facts) if is_missed else None) or self.clock.now()
            # After a sweep, the LIST of the children has to end first: the attempts begin with long pauses.
            attempts = 0 if fired_at is not None else CHILD_ATTEMPTS_MAX - 5
            return _with_first(Timer(ref=ref, purpose=Purpose.EXPIRE, due_at=due_at, attempts=attempts), answer)
        if evaluation.decision.reason is not Reason.NOT_ARCHIVED or facts.archiving is None:
            return answer
        self.telemetry.not_archived(ref, facts.archiving.to, facts.finish.at)
        if self.dry_run or facts.archiving.native:
            return answer
        return _with_first(Timer(ref=ref, purpose=Purpose.ARCHIVE, due_at=self.clock.now()), answer)

    def _with_warning(self, answer: Handled | None, ref: ObjectRef, facts: Facts) -> Handled | None:
        """The timers of an answer, with that of the warning, unless this process has sent the warning."""
        warning = None if self.dry_run else warn_timer(ref, facts, now=self.clock.now())
        if warning is None or not isinstance(answer, TimersSet) or self.evaluator.warnings.has(ref.uid, facts.due_at):
            return answer
        return TimersSet(timers=(*answer.timers, warning))

    def _spread_at(self, ref: ObjectRef, facts: Facts) -> datetime | None:
        return spread_at(ref, facts, now=self.clock.now())

    async def _act(self, due: Any, rule: KindRule, snapshot: Snapshot, *, is_missed: bool) -> ObjectDeleted | None:
        return await self._delete(due, rule, snapshot, is_missed=is_missed)


def _with_first(timer: Timer, answer: Handled | None) -> TimersSet:
    """A timer, and then those of an answer."""
    return TimersSet(timers=(timer, *(answer.timers if isinstance(answer, TimersSet) else ())))
