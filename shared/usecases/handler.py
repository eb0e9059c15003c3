"""The path of one object, from its due timer to the DELETE: read, decide, ask, act, answer.

`Handler.handle` does this for a timer:

1. Find the rule of the object's kind.
2. Read the object and the facts beside it, and decide. What can keep the object is seen here: a hold, an exemption, an
   owner, a policy rule, an archive. A proof in the timer (a signed earlier decision) or an object that this process has
   cached may take the place of the read if the decision is to act, or if children keep the object.
3. Record the verdict, and have an Event written if a person has to know.
4. If the object is due, ask the safeguards: the circuit breaker, the recreation check, the budget, and last the brake.
   Each can deny, until a sweep finds the object again; the budget delays by a timer.
5. Check that the decision still holds: it is at most a second old, and neither the policy nor the namespace has changed
   it since. Nothing is awaited between this check and the request.
6. Act: the uid and the resourceVersion that were read are preconditions of the DELETE. If the answer is a 409,
   `counted_writes.delete_counted` reads the object once more:
   - It is gone or marked for deletion: there is nothing left to do.
   - It has changed, for example by a hold: it begins again at 2, in at most `DECISIONS_MAX` rounds.
   - It has not changed: it begins again at 2; the second such answer is an error, which is reported.
7. Answer with what was done, or with the timers of later attempts. If the API server is away, or all of this takes too
   long, the answer is a timer for the next attempt.

`Handler.handle_listed` begins at 2 with an object of a LIST, for the sweep, which sets a timer after a 409.

What differs by the purpose of a timer is a `Procedure`. Steps 4 and 5, and the wait for a permit of the pace before 2,
are those of procedures with `asks_safeguards`:

| Procedure | decides by | acts by | asks the safeguards | may act on a cached object |
| --- | --- | --- | --- | --- |
| `expire.DELETION` | `decide` | DELETE | yes | yes, or by a proof |
| `enforce.ENFORCEMENT` | `decide_stop` | the patch that stops the object, or DELETE | yes | yes |
| `archive.archival(writer)` | `decide_archive` | a document in the archive | no | yes: the document names the version |
| `forewarning.WARNING` | `decide`, and when to warn | `object.warned` | no | no |
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from shared.core.archive.gate import CHILD_REASONS
from shared.core.decision.decide import Expire, Ignore, Wait
from shared.core.decision.facts import Facts, Reason, audited_of, find_propagation
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.values.objects import ObjectRef
from shared.errors import AbsentKindError, ConflictError, OutdatedError, PermanentError, TryLaterError
from shared.evaluation.evaluator import Evaluation, Evaluator
from shared.evaluation.namespaces_and_owners import find_served
from shared.evaluation.proofs import Proofs
from shared.messages import ObjectArchived, ObjectDeleted, ObjectStopped, ObjectWarned, Purpose, Timer, TimersSet
from shared.ports import Clock, Cluster, EventReason, HandlingReason, Refusal, Report, Snapshot, Telemetry, Verdict
from shared.safeguards.pace import Pace
from shared.safeguards.safeguards import Delayed, Denied, Safeguard, Safeguards
from shared.usecases.counted_writes import (
    REFUSALS_MAX,
    UnchangedError,
    ask_safeguards,
    delete_counted,
    refused_for_good,
)
from shared.usecases.reports import ObjectEvent, deletion_of, list_finalizers, wanted_since
from shared.usecases.timers import engine_now, retry_of, spread_at, timers_for, wait_until

Handled = ObjectArchived | ObjectDeleted | ObjectStopped | ObjectWarned | TimersSet
"""What was done, or the timers to set."""

DECISIONS_MAX = 5
"""Rounds in one attempt, if the object changes or the decision becomes too old meanwhile; then a timer retries it."""

ATTEMPT_SECONDS_MAX = 20.0
"""How long one attempt may take, with all its rounds. It is well below the 30 s of the Trigger's delivery: if a webhook
of the API server hangs, the answer is a timer for the next attempt."""


@dataclass(frozen=True, slots=True)
class Decided:
    """What was read of one object, and decided about it: one round.

    Attributes:
        rule: The object's kind.
        snapshot: The object, and the API server's time.
        evaluation: The decision, and the facts on which it rests.
        fired: The timer that fired; None in a sweep.
        reserved: What `Procedure.reserve` gave; None in a sweep.
        missed_before: In a sweep: of an object that was due before this instant, the events were missed.
    """

    rule: KindRule
    snapshot: Snapshot
    evaluation: Evaluation[Any]
    fired: Timer | None = None
    reserved: Any = None
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
        """The due time of the timer that fired: an instant that the clock of the timer engine has reached."""
        return self.fired.due_at if self.fired else None

    def is_missed(self, since: datetime | None) -> bool:
        """Return whether a sweep found an object, due since this instant, whose timer should have fired before."""
        return self.missed_before is not None and since is not None and since < self.missed_before


def _no_event(_rule: KindRule, _obj: dict[str, Any], _decision: Any, _now: datetime) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """What differs by the purpose of a timer.

    Attributes:
        purpose: The purpose of the timers.
        evaluate: Reads the facts about an object, and decides by the pure function of this purpose.
        due: The type of the decision about a due object.
        act: Does with a due object what the purpose is for.
        on_kept: Does with an object that is kept what the purpose is for; None to record the verdict.
        add_timers: Adds timers to what is answered; None to add none.
        would: The verdict about a due object in a dry run, or by a policy rule with `audit: true`.
        describe: The detail of that verdict in a dry run, from the decision.
        find_event: Finds the Event about a decision that a person has to know.
        reserve: Reserves memory for an object before it is read. The wait for it is not part of the attempt.
        refusal: The reason of the Event about a permanent error; None if `expire` reports the same error.
        asks_safeguards: Whether a due object needs a permit of the pace, the safeguards, and the last check.
        spreads: Whether the `jitter` of a policy rule spreads the objects that a sweep finds overdue.
        takes_cached: Whether a cached object may be acted on, since the act is about the version that was read.
        takes_proofs: Whether a proof in the timer may take the place of the read.
        attempt_seconds: How long one attempt may take, with all its rounds.
    """

    purpose: Purpose
    evaluate: Callable[["Handler", Snapshot, KindRule], Awaitable[Evaluation[Any]]]
    due: type
    act: Callable[["Handler", Decided], Awaitable[Handled | None]]
    on_kept: Callable[["Handler", Decided], Awaitable[Handled | None]] | None = None
    add_timers: Callable[["Handler", Decided, Handled | None], Handled | None] | None = None
    would: Verdict
    asks_safeguards: bool
    describe: Callable[[Any], str] = lambda due: str(due.facts.summary())
    find_event: Callable[[KindRule, dict[str, Any], Any, datetime], ObjectEvent | None] = _no_event
    reserve: Callable[[ObjectRef], AbstractAsyncContextManager[Any]] = lambda _: nullcontext()
    refusal: EventReason | None = None
    spreads: bool = False
    takes_cached: bool = True
    takes_proofs: bool = False
    attempt_seconds: float = ATTEMPT_SECONDS_MAX


@dataclass(frozen=True, slots=True)
class Handler:
    """Carries out one procedure, one object at a time, for the functions and for the sweep.

    Attributes:
        procedure: What differs by the purpose.
        cluster: The API server.
        catalogue: The kinds that may be deleted.
        evaluator: Decides, and caches for a moment what it read for that.
        clock: This process's clock, for timers and reports; the API server's clock decides what is due.
        telemetry: Records every verdict.
        dry_run: Decide, record the verdicts and set timers; change no object, write no Event, ask no safeguard.
        by: The function that acts, in logs and metrics.
        namespace: Only objects in this namespace; empty for all.
        safeguards: Asked before each DELETE or stop, and informed of its result; None for no safeguards.
        pace: Gives the permits for DELETEs and stops; None for no limit.
        proofs: Makes and checks the proofs of timers; None to make none and to believe none.
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

        While the API server is busy or away, the answer is a timer for the next attempt, not an error. If this function
        answered 503, the Broker would send the event again: that blocks a slot of the timer engine, and in the end the
        Broker drops the event.

        Returns:
            What was done; TimersSet if the object is due later or the attempt has to be repeated; None if the object is
            kept or gone, and in a dry run.

        Raises:
            PermanentError: The API server, or the archive, refuses for good.
        """
        async with self.procedure.reserve(timer.ref) as reserved:
            try:
                async with asyncio.timeout(self.procedure.attempt_seconds):
                    return await self._handle_in_scope(timer, reserved)
            except TryLaterError as error:
                return self._retry(timer, str(error), least=error.retry_after_seconds)
            except TimeoutError:
                return self._retry(timer, f"no decision within {self.procedure.attempt_seconds:g} s")

    async def _handle_in_scope(self, timer: Timer, reserved: Any) -> Handled | None:
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
                return await self._handle_in_rounds(rule, timer, reserved)
        except AbsentKindError as error:
            self.record(Verdict.KEPT, ref, HandlingReason.KIND_NOT_SERVED, detail=str(error))
            return None
        except PermanentError as error:
            self.report(ref, error)
            raise

    async def _handle_in_rounds(self, rule: KindRule, timer: Timer, reserved: Any) -> Handled | None:
        """Read, decide and carry out; again after a 409, and if the decision became too old."""
        ref, refusals = timer.ref, 0
        for number in range(DECISIONS_MAX):
            found = await self._read_and_decide(rule, timer, is_first=number == 0)
            if found is None:
                self.record(Verdict.ALREADY_GONE, ref)
                return None
            decided = Decided(rule, *found, fired=timer, reserved=reserved)
            try:
                return await self._carry_out(decided)
            except UnchangedError as error:
                refusals += 1
                if refusals == REFUSALS_MAX:
                    propagation = find_propagation(decided.decision.facts, rule)
                    raise refused_for_good(decided.snapshot.obj, error, propagation=propagation) from None
            except (ConflictError, OutdatedError):
                continue
        raise TryLaterError(f"{ref}: the facts of the decision changed {DECISIONS_MAX} times, or took too long to read")

    async def _read_and_decide(
        self, rule: KindRule, timer: Timer, *, is_first: bool
    ) -> tuple[Snapshot, Evaluation[Any]] | None:
        """Get the object and evaluate it; None if the object is gone, or another one has its name.

        In the first round, a proof or a cached object may be enough. They may be outdated, so they count only if the
        object is due: the preconditions of the write prove the version. Otherwise the object is read.
        """
        ref, procedure = timer.ref, self.procedure
        if is_first and procedure.takes_proofs and self.proofs and (proven := await self.proofs.find(timer, rule)):
            return proven
        may_be_cached = is_first and procedure.takes_cached
        snapshot = await self.cluster.get_cached(ref, due_at=timer.due_at) if may_be_cached else None
        evaluation = await procedure.evaluate(self, snapshot, rule) if snapshot else None
        # If its children keep the object, a read of the object would not change that, and they are not read twice.
        has_read_children = evaluation is not None and evaluation.decision.reason in CHILD_REASONS
        if evaluation is None or not (isinstance(evaluation.decision, procedure.due) or has_read_children):
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
            missed_before: Of an object that was due before this instant, the events were missed.

        Raises:
            ConflictError: 409, see `delete`.
            TryLaterError: The API server is busy or away, or too slow for a decision to count.
            PermanentError: The API server refuses for good.
        """
        evaluation = await self.procedure.evaluate(self, snapshot, rule)
        decided = Decided(rule, snapshot, evaluation, missed_before=missed_before)
        # Only an object that is acted on now needs a permit. If there is none, the sweep sets a timer to retry it; for
        # an object that is spread, such a timer would be too soon.
        is_due = isinstance(decided.decision, self.procedure.due)
        if not is_due or self.dry_run or self._find_spread(decided):
            return await self._carry_out(decided)
        async with self._permit(rule, snapshot.ref) as has_waited:
            for number in range(DECISIONS_MAX):
                if number or has_waited:
                    decided = replace(decided, evaluation=await self.procedure.evaluate(self, snapshot, rule))
                with suppress(OutdatedError):
                    return await self._carry_out(decided)
        raise TryLaterError(f"{snapshot.ref}: the facts of its deletion took too long to read")

    async def _carry_out(self, decided: Decided) -> Handled | None:
        """Report the decision, and carry it out."""
        self.report_decision(decided.rule, decided.snapshot.obj, decided.decision)
        match decided.decision:
            case Ignore() if self.procedure.on_kept:
                answer = await self.procedure.on_kept(self, decided)
            case Ignore(Reason.AUDIT_ONLY, facts):
                self.record_audited(decided.ref, facts)
                answer = None
            case Ignore(reason, facts):
                self.record(Verdict.KEPT, decided.ref, reason, detail=facts.problem)
                answer = self.timers(_fallen(decided))
            case Wait(until, reason, facts):
                answer = self._wait(decided, until, reason, facts)
            case due if isinstance(due, self.procedure.due):
                answer = await self._carry_out_due(decided)
            case other:  # fail closed: an unknown decision is none to act
                raise TypeError(f"{self.procedure.purpose}: expected a {self.procedure.due.__name__}, got {other!r}")
        return self.procedure.add_timers(self, decided, answer) if self.procedure.add_timers else answer

    def _wait(self, decided: Decided, until: datetime, reason: str, facts: Facts) -> TimersSet | None:
        if reason is Reason.AUDIT_ONLY:
            self.record_audited(decided.ref, facts)
        else:
            self.record(Verdict.TIMER_SET, decided.ref, reason, due_at=until, detail=facts.problem)
        again_at = wait_until(until, decided.snapshot, decided.fired_at, now=self.clock.now())
        return self.timers([(decided.ref, again_at), *_fallen(decided)])

    async def _carry_out_due(self, decided: Decided) -> Handled | None:
        """Act on a due object if the safeguards let it pass, and if it is still due then."""
        ref, rule, due = decided.ref, decided.rule, decided.decision
        if self.dry_run:
            self.record(self.procedure.would, ref, due.reason, detail=self.procedure.describe(due))
            return None
        if spread_to := self._find_spread(decided):
            self.record(Verdict.TIMER_SET, ref, HandlingReason.JITTER, due_at=spread_to)
            return self.timers([(ref, spread_to)])
        if not self.procedure.asks_safeguards:
            return await self.procedure.act(self, decided)
        objection = await ask_safeguards(self.safeguards, rule, decided.snapshot.obj, by=self.by)
        if objection is not None:
            return self._put_off(decided, objection)
        # From here on nothing is awaited before the request is sent.
        if not self.evaluator.is_still_due(decided.evaluation, decided.snapshot, rule):
            if self.safeguards:
                self.safeguards.not_deleted(rule, ref)
            raise OutdatedError(f"{ref}: the decision about it does not hold any more")
        return await self.procedure.act(self, decided)

    async def delete(self, decided: Decided) -> ObjectDeleted | None:
        """DELETE exactly the due object that was read; for procedures that ask the safeguards.

        Raises:
            ConflictError: 409, and the object has changed; `UnchangedError` if it has not.
            TryLaterError: The API server is busy or away.
            PermanentError: The API server refuses for good.
        """
        ref, due, obj = decided.ref, decided.decision, decided.snapshot.obj
        propagation = find_propagation(due.facts, decided.rule)
        policy = self.evaluator.policy().digest  # that of the decision, as has just been checked
        with self.timing(decided.rule):
            is_deleted = await delete_counted(self.cluster, self.safeguards, decided.rule, obj, propagation=propagation)
        if not is_deleted:
            self.record(Verdict.ALREADY_GONE, ref)
            return None
        finalizers = list_finalizers(obj)
        deleted = deletion_of(ref, due, deleted_at=self.clock.now(), policy=policy, finalizers=finalizers)
        self.telemetry.deleted(deleted, by=self.by, missed=decided.is_missed(wanted_since(due.since, due.facts)))
        return deleted

    def _find_spread(self, decided: Decided) -> datetime | None:
        """When to act on an object that a sweep found overdue, and that `jitter` spreads; None to act now."""
        due = decided.decision
        if not self.procedure.spreads or not isinstance(due, Expire):
            return None
        is_missed = decided.is_missed(wanted_since(due.since, due.facts))
        return spread_at(decided.ref, due.facts, now=self.clock.now()) if is_missed else None

    def _put_off(self, decided: Decided, objection: Denied | Delayed) -> TimersSet | None:
        """Leave a due object alone: until a sweep finds it again, or until a slot of the budget is free."""
        if isinstance(objection, Denied):
            self.record(Verdict.KEPT, decided.ref, objection.reason, detail=objection.detail)
            if objection.event:
                self._write_event(ObjectEvent(decided.ref, EventReason.RECREATE_LOOP, objection.event))
            return None
        again_at = engine_now(decided.fired_at, now=self.clock.now()) + timedelta(seconds=objection.seconds)
        self.record(Verdict.TIMER_SET, decided.ref, Safeguard.BUDGET, due_at=again_at)
        return self.timers([(decided.ref, again_at)])

    def _retry(self, timer: Timer, problem: str, *, least: float = 0.0) -> TimersSet:
        retry = retry_of(timer, least=least, now=self.clock.now())
        self.record(Verdict.TIMER_SET, timer.ref, HandlingReason.TRY_LATER, detail=problem, due_at=retry.due_at)
        return TimersSet(timers=(retry,))

    def _permit(self, rule: KindRule, ref: ObjectRef) -> AbstractAsyncContextManager[bool]:
        """Take a permit of the pace, for as long as the block lasts; yields True if it had to wait."""
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
        """Have the Event about a decision written, if a person has to know it."""
        if event := self.procedure.find_event(rule, obj, decision, self.clock.now()):
            self._write_event(event)

    def report(self, ref: ObjectRef, error: PermanentError) -> None:
        """Report a permanent error by a log line and a metric; by an Event, if `Procedure.refusal` names its reason."""
        self.record(Verdict.FAILED, ref, type(error).__name__, detail=str(error))
        if self.procedure.refusal is not None and not self.dry_run:
            self.telemetry.refused(Refusal.of(ref, self.procedure.refusal, error, at=self.clock.now()), by=self.by)

    def _write_event(self, event: ObjectEvent) -> None:
        """Have an Event written in the background, within the limits of the journal; a failure changes nothing here."""
        if not self.dry_run:
            report = Report.of(event.about, event.reason, event.message, at=self.clock.now())
            self.telemetry.reported(report, by=self.by, level=event.level)


def _fallen(decided: Decided) -> list[tuple[ObjectRef, datetime | None]]:
    """The objects that this one pushed beyond the number that a policy rule keeps, which are due now.

    A sweep has them in its LIST anyway, and sets no timers for them: such a timer would ignore the jitter.
    """
    return [(one.ref, one.due_at) for one in decided.evaluation.fallen] if decided.fired else []
