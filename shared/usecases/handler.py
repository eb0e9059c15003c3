"""The path of one object, from its due timer to the DELETE: read, decide, ask, act, answer.

`Handler.handle` does this for a timer, from top to bottom of this module:

1. Find the rule of the object's kind. Wait for a permit of the pace.
2. Read the object and all that the decision rests on, and decide: a hold, an exemption, an owner, a rank, an archive.
   A proof in the timer, or an object that this process has cached, counts only for the decision to act.
3. Report: a verdict, and an Event if a person has to know.
4. If the object is due, ask the safeguards: exemptions, the loop breaker, the budget, the circuit breaker, the brake.
5. Check that the decision still holds: it is at most a second old, by the present policy and the present namespace.
   Nothing is awaited between this check and the request.
6. Act, with the uid and the resourceVersion that were read as preconditions. On a 409 the object is read once more: if
   it is gone or marked for deletion, there is nothing left to do. If it has changed, it starts again at 2, up to
   `DECISIONS_MAX` times. If it has not changed, the API server refuses: the second time for good.
7. Answer with what was done, or with the timers of the next attempts.

`Handler.handle_listed` does the same for an object of a LIST, for the sweep; after a 409, the sweep sets a timer.

What differs by the purpose of a timer is a `Procedure`:

| Procedure | decides by | acts by | asks the safeguards |
| --- | --- | --- | --- |
| `expire.DELETION` | `decide` | DELETE | yes |
| `enforce.ENFORCEMENT` | `decide_stop` | the patch that stops the object, or DELETE | yes |
| `archive.archival` | `decide_archive` | a document in the archive | no |
| `forewarning.WARNING` | `decide`, and when to warn | `object.warned` | no |
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from shared.core.archive.gate import CHILD_REASONS, find_propagation
from shared.core.decision.decide import Expire, Ignore, Wait
from shared.core.decision.facts import Facts, Reason, audited_of
from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ObjectRef
from shared.errors import AbsentKindError, ConflictError, OutdatedError, PermanentError, TryLaterError
from shared.evaluation.evaluator import Evaluation, Evaluator
from shared.evaluation.proofs import Proofs
from shared.evaluation.served import find_served
from shared.messages import ObjectArchived, ObjectDeleted, ObjectStopped, ObjectWarned, Purpose, Timer, TimersSet
from shared.ports import Clock, Cluster, EventReason, HandlingReason, Refusal, Report, Snapshot, Telemetry, Verdict
from shared.safeguards.pace import Pace
from shared.safeguards.reasons import Safeguard
from shared.safeguards.safeguards import Delayed, Denied, Safeguards
from shared.usecases.counted_writes import (
    REFUSALS_MAX,
    UnchangedError,
    ask_safeguards,
    delete_counted,
    refused_for_good,
)
from shared.usecases.expire_reports import ObjectEvent, deletion_of, list_finalizers, wanted_since
from shared.usecases.next_timers import engine_now, retry_of, spread_at, timers_for, wait_until

Handled = ObjectArchived | ObjectDeleted | ObjectStopped | ObjectWarned | TimersSet
"""What a handler answers."""

DECISIONS_MAX = 5
"""Reads and decisions for one timer while other clients keep writing the object; then a timer retries it later."""

ATTEMPT_SECONDS_MAX = 20.0
"""For one timer, well below the 30 s of the Trigger's delivery: if a webhook hangs, the answer is a retry."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt on one object: what was read and decided.

    Attributes:
        rule: The object's kind.
        snapshot: The object, and the API server's time.
        evaluation: The decision.
        fired: The timer that fired; None in a sweep.
        held: What `Procedure.hold` gave.
        missed_before: In a sweep: an object that was due before this instant counts as missed by the events.
    """

    rule: KindRule
    snapshot: Snapshot
    evaluation: Evaluation[Any]
    fired: Timer | None = None
    held: Any = None
    missed_before: datetime | None = None

    @property
    def ref(self) -> ObjectRef:
        """The object."""
        return self.snapshot.ref

    @property
    def decision(self) -> Any:
        """The decision; its type is that of the procedure."""
        return self.evaluation.decision

    @property
    def fired_at(self) -> datetime | None:
        """The due time of the timer that fired, see `next_timers`."""
        return self.fired.due_at if self.fired else None

    def is_missed(self, since: datetime | None) -> bool:
        """Return whether events missed an object that is due since this instant: a sweep found it."""
        return self.missed_before is not None and since is not None and since < self.missed_before


def _no_event(_rule: KindRule, _obj: dict[str, Any], _decision: Any, _now: datetime) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """What differs by the purpose of a timer.

    Attributes:
        purpose: The purpose of the timers.
        evaluate: Reads the facts about an object, and decides by the pure function of this purpose.
        act: Does with a due object what the purpose is for.
        keep: Reports an object that a decision leaves alone; None to record the verdict, and no more.
        answer: Adds timers to what is answered; None to add none.
        would: The verdict about a due object in a dry run.
        describe: The detail of that verdict, from the decision.
        find_event: Finds the Event about a decision that a person has to know.
        hold: Holds what limits how many objects are read at once. The wait for it is not part of the attempt.
        refused: The reason of the Event about a permanent error; None if another purpose reports the same error.
        asks_safeguards: Whether a due object needs a permit of the pace, and the safeguards; then it is checked once
            more that it is still due.
        spreads: Whether what a sweep found overdue is spread by the `jitter` of its policy rule.
        takes_cached: Whether a cached object may be acted on, since the version that was read is a precondition.
        takes_proofs: Whether a proof in the timer may replace the read.
        attempt_seconds: How long one attempt may take.
    """

    purpose: Purpose
    evaluate: Callable[["Handler", Snapshot, KindRule], Awaitable[Evaluation[Any]]]
    act: Callable[["Handler", Attempt], Awaitable[Handled | None]]
    keep: Callable[["Handler", Attempt], Awaitable[Handled | None]] | None = None
    answer: Callable[["Handler", Attempt, Handled | None], Handled | None] | None = None
    would: Verdict
    describe: Callable[[Any], str] = lambda due: str(due.facts.summary())
    find_event: Callable[[KindRule, dict[str, Any], Any, datetime], ObjectEvent | None] = _no_event
    hold: Callable[[ObjectRef], AbstractAsyncContextManager[Any]] = lambda _: nullcontext()
    refused: EventReason | None = None
    asks_safeguards: bool = False
    spreads: bool = False
    takes_cached: bool = True
    takes_proofs: bool = False
    attempt_seconds: float = ATTEMPT_SECONDS_MAX


@dataclass(frozen=True, slots=True)
class Handler:
    """Carries out one procedure, one object at a time; the functions and the sweep share it.

    Attributes:
        procedure: What differs by the purpose.
        cluster: The API server.
        catalogue: The kinds that may be deleted.
        evaluator: Decides, and caches for a moment what it read for that.
        clock: This process's clock, for lateness and timers only; the API server's clock decides what is due.
        telemetry: Records every verdict.
        dry_run: Decide and report; change nothing and write nothing.
        by: The function that acts, in logs and metrics.
        namespace: Only objects in this namespace; empty for all.
        safeguards: Asked before each DELETE or stop, and informed of its result; None for no safeguards.
        pace: Gives the permits for DELETEs and stops; None for no limit.
        proofs: Makes the proofs of timers, and finds decisions by them; None to read each object.
    """

    procedure: Procedure
    cluster: Cluster
    catalogue: Catalogue
    evaluator: Evaluator
    clock: Clock
    telemetry: Telemetry
    dry_run: bool
    by: str = "expire"
    namespace: str = ""
    safeguards: Safeguards | None = None
    pace: Pace | None = None
    proofs: Proofs | None = None

    async def handle(self, timer: Timer) -> Handled | None:
        """Act on the timer's object if it is due; answer with what happened.

        While the API server is busy or away, the answer is a timer for the next attempt, not an error. After a 503, a
        Broker would retry the event: that blocks a slot of the timer engine, and the event is dropped in the end.

        Returns:
            What was done; TimersSet if the object is due later or the attempt has to be repeated; otherwise None.

        Raises:
            PermanentError: The API server, or the archive, refuses for good.
        """
        async with self.procedure.hold(timer.ref) as held:
            try:
                async with asyncio.timeout(self.procedure.attempt_seconds):
                    return await self._handle_enabled(timer, held)
            except TryLaterError as error:
                return self._retry(timer, str(error), least=error.retry_after_seconds)
            except TimeoutError:
                return self._retry(timer, f"no decision within {self.procedure.attempt_seconds:g} s")

    async def _handle_enabled(self, timer: Timer, held: Any) -> Handled | None:
        ref = timer.ref
        if not self.catalogue.of(ref.group, ref.kind):
            self.record(Verdict.KEPT, ref, HandlingReason.KIND_NOT_ENABLED)
            return None
        if self.namespace not in ("", ref.namespace):
            self.record(Verdict.KEPT, ref, HandlingReason.NAMESPACE_NOT_ENABLED)
            return None
        try:
            rule = await find_served(ref.group, ref.kind, cluster=self.cluster, kinds=self.catalogue)
            async with self._permit(rule, ref):  # before the read, so that no decision becomes old in the wait
                return await self._attempt(rule, timer, held)
        except AbsentKindError as error:
            self.record(Verdict.KEPT, ref, HandlingReason.KIND_NOT_SERVED, detail=str(error))
            return None
        except PermanentError as error:
            self.report(ref, error)
            raise

    async def _attempt(self, rule: KindRule, timer: Timer, held: Any) -> Handled | None:
        """Read, decide and carry out; again if the object changes meanwhile."""
        ref, refusals = timer.ref, 0
        for number in range(DECISIONS_MAX):
            found = await self._read_and_decide(rule, timer, is_first=number == 0)
            if found is None:
                self.record(Verdict.ALREADY_GONE, ref)
                return None
            attempt = Attempt(rule, *found, fired=timer, held=held)
            try:
                return await self._carry_out(attempt)
            except UnchangedError as error:
                refusals += 1
                if refusals == REFUSALS_MAX:
                    propagation = find_propagation(attempt.decision.facts, rule)
                    raise refused_for_good(attempt.snapshot.obj, error, propagation=propagation) from None
            except (ConflictError, OutdatedError):
                continue
        raise TryLaterError(f"{ref}: the facts of the decision changed {DECISIONS_MAX} times, or took too long to read")

    async def _read_and_decide(
        self, rule: KindRule, timer: Timer, *, is_first: bool
    ) -> tuple[Snapshot, Evaluation[Any]] | None:
        """Get the object and evaluate it; None if the object is gone, or another one has its name.

        In the first attempt, a proven decision or a cached object may do: they may be outdated, so they count only if
        the object is due, since the preconditions of the write prove them. For any other decision the object is read
        from the API server.
        """
        ref, procedure = timer.ref, self.procedure
        if is_first and procedure.takes_proofs and self.proofs and (proven := await self.proofs.find(timer, rule)):
            return proven
        may_be_cached = is_first and procedure.takes_cached
        snapshot = await self.cluster.get_cached(ref, due_at=timer.due_at) if may_be_cached else None
        evaluation = await procedure.evaluate(self, snapshot, rule) if snapshot else None
        # An object that its children keep is kept anyway, and they are not read twice.
        has_read_children = evaluation is not None and evaluation.decision.reason in CHILD_REASONS
        if evaluation is None or (isinstance(evaluation.decision, Ignore | Wait) and not has_read_children):
            snapshot = await self.cluster.get(rule, ref)
            evaluation = await procedure.evaluate(self, snapshot, rule) if snapshot else None
        if snapshot is None or evaluation is None or not ref.is_same(snapshot.ref):
            return None
        return snapshot, evaluation

    async def handle_listed(self, rule: KindRule, snapshot: Snapshot, *, missed_before: datetime) -> Handled | None:
        """Evaluate one object of a LIST, and carry out the decision.

        Args:
            rule: The object's kind.
            snapshot: The object, and the API server's time.
            missed_before: An object that was due before this instant counts as missed by the events.

        Raises:
            ConflictError: The object has changed since it was read.
            TryLaterError: The API server is busy or away, or too slow for a decision to count.
            PermanentError: The API server refuses for good.
        """
        evaluation = await self.procedure.evaluate(self, snapshot, rule)
        attempt = Attempt(rule, snapshot, evaluation, missed_before=missed_before)
        # Only an object that is deleted now needs a permit: the timer that retries a refused one would bypass jitter.
        is_due = not isinstance(attempt.decision, Ignore | Wait)
        if not is_due or self.dry_run or self._find_rest(attempt):
            return await self._carry_out(attempt)
        async with self._permit(rule, snapshot.ref) as has_waited:
            for number in range(DECISIONS_MAX):
                if number or has_waited:
                    attempt = replace(attempt, evaluation=await self.procedure.evaluate(self, snapshot, rule))
                with suppress(OutdatedError):
                    return await self._carry_out(attempt)
        raise TryLaterError(f"{snapshot.ref}: the facts of its deletion took too long to read")

    async def _carry_out(self, attempt: Attempt) -> Handled | None:
        """Report the decision, and carry it out."""
        self.report_decision(attempt.rule, attempt.snapshot.obj, attempt.decision)
        match attempt.decision:
            case Ignore() if self.procedure.keep:
                answer = await self.procedure.keep(self, attempt)
            case Ignore(Reason.AUDIT_ONLY, facts):
                self.record_audited(attempt.ref, facts)
                answer = None
            case Ignore(reason, facts):
                self.record(Verdict.KEPT, attempt.ref, reason, detail=facts.problem)
                answer = self.timers(_fallen(attempt))
            case Wait(until, reason, facts):
                answer = self._wait(attempt, until, reason, facts)
            case _:
                answer = await self._carry_out_due(attempt)
        return self.procedure.answer(self, attempt, answer) if self.procedure.answer else answer

    def _wait(self, attempt: Attempt, until: datetime, reason: str, facts: Facts) -> TimersSet | None:
        if reason is Reason.AUDIT_ONLY:
            self.record_audited(attempt.ref, facts)
        else:
            self.record(Verdict.TIMER_SET, attempt.ref, reason, due_at=until, detail=facts.problem)
        again_at = wait_until(until, attempt.snapshot, attempt.fired_at, now=self.clock.now())
        return self.timers([(attempt.ref, again_at), *_fallen(attempt)])

    async def _carry_out_due(self, attempt: Attempt) -> Handled | None:
        """Act on a due object if the safeguards let it pass, and if it is still due then."""
        ref, rule, due = attempt.ref, attempt.rule, attempt.decision
        if self.dry_run:
            self.record(self.procedure.would, ref, due.reason, detail=self.procedure.describe(due))
            return None
        if rest_at := self._find_rest(attempt):
            self.record(Verdict.TIMER_SET, ref, HandlingReason.JITTER, due_at=rest_at)
            return self.timers([(ref, rest_at)])
        if not self.procedure.asks_safeguards:
            return await self.procedure.act(self, attempt)
        answer = await ask_safeguards(self.safeguards, rule, attempt.snapshot.obj, by=self.by)
        if answer is not None:
            return self._put_off(attempt, answer)
        # From here on nothing is awaited before the request is sent.
        if not self.evaluator.is_still_due(attempt.evaluation, attempt.snapshot, rule):
            if self.safeguards:
                self.safeguards.not_deleted(rule, ref)
            raise OutdatedError(f"{ref}: the decision about it does not hold any more")
        return await self.procedure.act(self, attempt)

    async def delete(self, attempt: Attempt) -> ObjectDeleted | None:
        """DELETE exactly the due object that was read: an act of procedures that ask the safeguards.

        Raises:
            ConflictError: 409, and the object has changed; `UnchangedError` if it has not.
            TryLaterError: The API server is busy or away.
            PermanentError: The API server refuses for good.
        """
        ref, due, obj = attempt.ref, attempt.decision, attempt.snapshot.obj
        propagation = find_propagation(due.facts, attempt.rule)
        policy = self.evaluator.policy().digest  # that of the decision: it has just been checked
        with self.timing(attempt.rule):
            is_deleted = await delete_counted(self.cluster, self.safeguards, attempt.rule, obj, propagation=propagation)
        if not is_deleted:
            self.record(Verdict.ALREADY_GONE, ref)
            return None
        finalizers = list_finalizers(obj)
        deleted = deletion_of(ref, due, deleted_at=self.clock.now(), policy=policy, finalizers=finalizers)
        self.telemetry.deleted(deleted, by=self.by, missed=attempt.is_missed(wanted_since(due.since, due.facts)))
        return deleted

    def _find_rest(self, attempt: Attempt) -> datetime | None:
        """When to act on an object that a sweep found overdue, and that `jitter` spreads; None for now."""
        due = attempt.decision
        if not self.procedure.spreads or not isinstance(due, Expire):
            return None
        is_missed = attempt.is_missed(wanted_since(due.since, due.facts))
        return spread_at(attempt.ref, due.facts, now=self.clock.now()) if is_missed else None

    def _put_off(self, attempt: Attempt, answer: Denied | Delayed) -> TimersSet | None:
        """Leave a due object for now: a safeguard denied or delayed what is due."""
        if isinstance(answer, Denied):
            self.record(Verdict.KEPT, attempt.ref, answer.reason, detail=answer.detail)
            if answer.event:
                self._write_event(ObjectEvent(attempt.ref, EventReason.RECREATE_LOOP, answer.event))
            return None
        again_at = engine_now(attempt.fired_at, now=self.clock.now()) + timedelta(seconds=answer.seconds)
        self.record(Verdict.TIMER_SET, attempt.ref, Safeguard.BUDGET, due_at=again_at)
        return self.timers([(attempt.ref, again_at)])

    def _retry(self, timer: Timer, problem: str, *, least: float = 0.0) -> TimersSet:
        retry = retry_of(timer, least=least, now=self.clock.now())
        self.record(Verdict.TIMER_SET, timer.ref, HandlingReason.TRY_LATER, detail=problem, due_at=retry.due_at)
        return TimersSet(timers=(retry,))

    def _permit(self, rule: KindRule, ref: ObjectRef) -> AbstractAsyncContextManager[bool]:
        """Hold a permit of the pace; gives whether this has waited."""
        if self.pace and self.procedure.asks_safeguards:
            return self.pace.permit(rule, ref.namespace)
        return nullcontext(enter_result=False)

    def timing(self, rule: KindRule) -> AbstractContextManager[None]:
        """Measure a request that acts on a due object."""
        return self.pace.timing(rule) if self.pace else nullcontext()

    def timers(self, due: Iterable[tuple[ObjectRef, datetime | None]]) -> TimersSet | None:
        """One timer of this purpose for each object that has a due time; None if no object has one."""
        return timers_for(due, purpose=self.procedure.purpose)

    def record(self, verdict: Verdict, ref: ObjectRef, reason: str = "", **details: Any) -> None:
        """Record a verdict; see `Telemetry.record`."""
        self.telemetry.record(verdict, ref, reason, by=self.by, **details)

    def record_audited(self, ref: ObjectRef, facts: Facts) -> None:
        """Record what a policy rule with `audit: true` would do to an object."""
        self.telemetry.audited(self.procedure.would, ref, audited_of(facts), by=self.by)

    def report_decision(self, rule: KindRule, obj: dict[str, Any], decision: Any) -> None:
        """Write the Event about a decision that a person has to know."""
        if event := self.procedure.find_event(rule, obj, decision, self.clock.now()):
            self._write_event(event)

    def report(self, ref: ObjectRef, error: PermanentError) -> None:
        """Report a permanent error by a log line, a metric, and an entry of the journal."""
        self.record(Verdict.FAILED, ref, type(error).__name__, detail=str(error))
        if self.procedure.refused is not None and not self.dry_run:
            self.telemetry.refused(Refusal.of(ref, self.procedure.refused, error, at=self.clock.now()), by=self.by)

    def _write_event(self, event: ObjectEvent) -> None:
        """Have the journal write an Event in the background, within its limits: the verdict does not depend on it."""
        if not self.dry_run:
            report = Report.of(event.about, event.reason, event.message, at=self.clock.now())
            self.telemetry.reported(report, by=self.by, level=event.level)


def _fallen(attempt: Attempt) -> list[tuple[ObjectRef, datetime | None]]:
    """The objects that this one pushed beyond the number that a rule keeps; a LIST contains them as well.

    So a sweep sets no timers for them: such a timer would bypass the jitter.
    """
    return [(one.ref, one.due_at) for one in attempt.evaluation.fallen] if attempt.fired else []
