"""A timer fired: get its object, evaluate it, ask the safeguards, delete exactly what is due, and report."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from shared.core.decide import Decision, Expire, Ignore, Wait
from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.rule import KindRule
from shared.core.objects import ObjectRef, ref_of
from shared.errors import AbsentKindError, ConflictError, OutdatedError, PermanentError, TryLaterError, TtlError
from shared.evaluation.evaluator import Evaluation, Evaluator
from shared.evaluation.served import find_served
from shared.messages import ObjectDeleted, Timer, TimersSet
from shared.ports import Clock, Cluster, EventReason, HandlingReason, Snapshot, Telemetry, Verdict
from shared.safeguards.reasons import Safeguard
from shared.safeguards.safeguards import Delayed, Denied, Safeguards
from shared.usecases.expire_delete import (
    REFUSALS_MAX,
    UnchangedError,
    ask_safeguards,
    delete_counted,
    propagation_of,
    refused_for_good,
)
from shared.usecases.expire_reports import deletion_of, find_event, list_finalizers
from shared.usecases.expire_timers import engine_now, retry_of, spread_at, timers_for, wait_until

DECISIONS_MAX = 5
"""Reads and decisions for one timer while other clients keep writing the object; then a timer retries it later."""

EXPIRE_SECONDS_MAX = 20.0
"""For one timer, well below the 30 s of the Trigger's delivery: if a webhook hangs, the answer is a retry."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """Deletes due objects, one at a time; the event path and the sweep share it.

    Attributes:
        cluster: The API server.
        catalogue: The kinds that may be deleted.
        evaluator: Decides, and caches for a moment what it read for that.
        clock: This process's clock, for lateness and timers only; the API server's clock decides what is due.
        telemetry: Records every verdict.
        dry_run: Decide and report; delete nothing and write nothing.
        namespace: Only objects in this namespace; empty for all.
        safeguards: Asked before each DELETE, and informed of its result; None for no safeguards.
        by: The function that acts, in logs and metrics.
    """

    cluster: Cluster
    catalogue: Catalogue
    evaluator: Evaluator
    clock: Clock
    telemetry: Telemetry
    dry_run: bool
    by: str = "expire"
    namespace: str = ""
    safeguards: Safeguards | None = None

    async def expire(self, timer: Timer) -> ObjectDeleted | TimersSet | None:
        """Delete the timer's object if it is due; answer with what happened.

        While the API server is busy or away, the answer is a timer for the next attempt, not an error. After a 503, a
        Broker would retry the event: that blocks a slot of the timer engine, and the event is dropped in the end.

        Returns:
            ObjectDeleted; TimersSet if the object is due later or the attempt has to be repeated; otherwise None.

        Raises:
            PermanentError: The API server refuses for good.
        """
        try:
            async with asyncio.timeout(EXPIRE_SECONDS_MAX):
                return await self._expire_enabled(timer)
        except TryLaterError as error:
            return self._retry(timer, str(error), least=error.retry_after_seconds)
        except TimeoutError:
            return self._retry(timer, f"no decision within {EXPIRE_SECONDS_MAX:g} s")

    async def act(
        self, rule: KindRule, snapshot: Snapshot, *, missed_before: datetime
    ) -> ObjectDeleted | TimersSet | None:
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
        for _ in range(DECISIONS_MAX):
            evaluation = replace(await self.evaluator.evaluate(snapshot, rule), fallen=())
            with suppress(OutdatedError):
                return await self._carry_out(evaluation, rule, snapshot, missed_before=missed_before)
        raise TryLaterError(f"{ref_of(snapshot.obj)}: the facts of its deletion took too long to read")

    async def _expire_enabled(self, timer: Timer) -> ObjectDeleted | TimersSet | None:
        if not self.catalogue.of(timer.ref.group, timer.ref.kind):
            self._record(Verdict.KEPT, timer.ref, HandlingReason.KIND_NOT_ENABLED)
            return None
        if self.namespace not in ("", timer.ref.namespace):
            self._record(Verdict.KEPT, timer.ref, HandlingReason.NAMESPACE_NOT_ENABLED)
            return None
        try:
            rule = await find_served(timer.ref.group, timer.ref.kind, cluster=self.cluster, kinds=self.catalogue)
            return await self._expire(rule, timer.ref, timer.due_at)
        except AbsentKindError as error:
            self._record(Verdict.KEPT, timer.ref, HandlingReason.KIND_NOT_SERVED, detail=str(error))
            return None
        except PermanentError as error:
            await self.report(timer.ref, error)
            raise

    async def _expire(self, rule: KindRule, ref: ObjectRef, fired_at: datetime) -> ObjectDeleted | TimersSet | None:
        refusals = 0
        for attempt in range(DECISIONS_MAX):
            found = await self._evaluate(rule, ref, from_cache=attempt == 0)
            if found is None:
                self._record(Verdict.ALREADY_GONE, ref)
                return None
            snapshot, evaluation = found
            try:
                return await self._carry_out(evaluation, rule, snapshot, fired_at=fired_at)
            except UnchangedError as error:
                refusals += 1
                if refusals == REFUSALS_MAX:
                    propagation = propagation_of(evaluation.decision) or rule.propagation
                    raise refused_for_good(snapshot.obj, error, propagation=propagation) from None
            except (ConflictError, OutdatedError):
                continue
        raise TryLaterError(f"{ref}: the facts of its deletion changed {DECISIONS_MAX} times, or took too long to read")

    async def _evaluate(
        self, rule: KindRule, ref: ObjectRef, *, from_cache: bool
    ) -> tuple[Snapshot, Evaluation] | None:
        """Get the object and evaluate it; None if the object is gone.

        A cached object may be outdated. It only counts if it is due, since the preconditions of the DELETE prove it;
        for any other decision the object is read from the API server.
        """
        snapshot = self.cluster.get_cached(ref) if from_cache else None
        evaluation = await self.evaluator.evaluate(snapshot, rule) if snapshot else None
        if evaluation is None or not isinstance(evaluation.decision, Expire):
            snapshot = await self.cluster.get(rule, ref)
            evaluation = await self.evaluator.evaluate(snapshot, rule) if snapshot else None
        if snapshot is None or evaluation is None or not ref.is_same(ref_of(snapshot.obj)):
            return None
        return snapshot, evaluation

    async def _carry_out(
        self,
        evaluation: Evaluation,
        rule: KindRule,
        snapshot: Snapshot,
        *,
        missed_before: datetime | None = None,
        fired_at: datetime | None = None,
    ) -> ObjectDeleted | TimersSet | None:
        """Carry out a decision; see `act` for `missed_before` and `expire_timers` for `fired_at`."""
        ref = ref_of(snapshot.obj)
        await self._report_decision(rule, snapshot.obj, evaluation.decision)
        match evaluation.decision:
            case Ignore(reason, facts):
                self._record(Verdict.KEPT, ref, reason, detail=facts.problem)
                return timers_for((one.ref, one.due_at) for one in evaluation.fallen)
            case Wait(until, reason):
                self._record(Verdict.TIMER_SET, ref, reason, due_at=until)
                return timers_for([(ref, wait_until(until, snapshot, fired_at, now=self.clock.now()))])
            case Expire(since, reason, facts) as decision:
                if self.dry_run:
                    self._record(Verdict.WOULD_DELETE, ref, reason, detail=facts.summary())
                    return None
                is_missed = missed_before is not None and since < missed_before
                rest_at = spread_at(ref, facts, now=self.clock.now()) if is_missed else None
                if rest_at is not None:
                    self._record(Verdict.TIMER_SET, ref, HandlingReason.JITTER, due_at=rest_at)
                    return timers_for([(ref, rest_at)])
                answer = await ask_safeguards(self.safeguards, rule, snapshot.obj, by=self.by)
                if answer is not None:
                    return await self._keep(ref, answer, fired_at)
                # From here on nothing is awaited before the DELETE is sent.
                self._check_still_due(evaluation, rule, snapshot)
                return await self._delete(decision, rule, snapshot, is_missed=is_missed)

    async def _keep(self, ref: ObjectRef, answer: Denied | Delayed, fired_at: datetime | None) -> TimersSet | None:
        """Keep a due object for now: a safeguard denied or delayed its deletion."""
        if isinstance(answer, Denied):
            self._record(Verdict.KEPT, ref, answer.reason, detail=answer.detail)
            if answer.event:
                await self._write_event(ref, EventReason.RECREATE_LOOP, answer.event)
            return None
        again_at = engine_now(fired_at, now=self.clock.now()) + timedelta(seconds=answer.seconds)
        self._record(Verdict.TIMER_SET, ref, Safeguard.BUDGET, due_at=again_at)
        return timers_for([(ref, again_at)])

    def _check_still_due(self, evaluation: Evaluation, rule: KindRule, snapshot: Snapshot) -> None:
        if not self.evaluator.is_still_due(evaluation, snapshot, rule):
            if self.safeguards:
                self.safeguards.not_deleted(rule, ref_of(snapshot.obj))
            raise OutdatedError(f"{ref_of(snapshot.obj)}: the decision to delete it does not hold any more")

    async def _delete(
        self, decision: Expire, rule: KindRule, snapshot: Snapshot, *, is_missed: bool
    ) -> ObjectDeleted | None:
        ref, propagation = ref_of(snapshot.obj), propagation_of(decision)
        if not await delete_counted(self.cluster, self.safeguards, rule, snapshot.obj, propagation=propagation):
            self._record(Verdict.ALREADY_GONE, ref)
            return None
        deleted = deletion_of(ref, decision, deleted_at=self.clock.now())
        self.telemetry.deleted(deleted, by=self.by, missed=is_missed, finalizers=list_finalizers(snapshot.obj))
        return deleted

    def _retry(self, timer: Timer, problem: str, *, least: float = 0.0) -> TimersSet:
        retry = retry_of(timer, least=least, now=self.clock.now())
        self._record(Verdict.TIMER_SET, timer.ref, HandlingReason.TRY_LATER, detail=problem, due_at=retry.due_at)
        return TimersSet(timers=(retry,))

    async def report(self, ref: ObjectRef, error: PermanentError) -> None:
        """Report a permanent error by a log line, a metric, and an Event on the object."""
        self._record(Verdict.FAILED, ref, type(error).__name__, detail=str(error))
        await self._write_event(ref, EventReason.DELETION_REFUSED, str(error))

    async def _report_decision(self, rule: KindRule, obj: dict[str, Any], decision: Decision) -> None:
        if event := find_event(rule, obj, decision):
            await self._write_event(*event)

    def _record(self, verdict: Verdict, ref: ObjectRef, reason: str = "", **details: Any) -> None:
        self.telemetry.record(verdict, ref, reason, by=self.by, **details)

    async def _write_event(self, ref: ObjectRef, reason: str, message: str) -> None:
        if self.dry_run:
            return
        try:
            await self.cluster.record_event(ref, reason, message)
        except TtlError as error:  # the verdict does not depend on the Event
            about = {"object": str(ref), "api_version": ref.api_version}
            self.telemetry.problem("could not write an Event", **about, error=str(error))
