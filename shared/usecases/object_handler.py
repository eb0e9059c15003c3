"""Act on one object that was read: carry out the decision about it, ask the safeguards, and report.

`expire`, `enforce` and the sweep do all of this in the same way. The subclasses differ in the pure function that
decides, and in what they do with an object that is due.
"""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, ClassVar, Self

from shared.core.archive.decide_archive import ToArchive
from shared.core.deadlines.decide_stop import Stop
from shared.core.decide import Expire, Ignore, Wait
from shared.core.facts import Facts
from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.rule import KindRule
from shared.core.objects import ObjectRef, ref_of
from shared.errors import OutdatedError, PermanentError, TtlError
from shared.evaluation.evaluator import AnyEvaluation, Evaluator
from shared.messages import ObjectArchived, ObjectDeleted, ObjectStopped, Purpose, TimersSet
from shared.ports import Clock, Cluster, EventReason, HandlingReason, Snapshot, Telemetry, Verdict
from shared.safeguards.reasons import Safeguard
from shared.safeguards.safeguards import Delayed, Denied, Safeguards
from shared.usecases.counted_writes import ask_safeguards, delete_counted, propagation_of
from shared.usecases.expire_reports import ObjectEvent, deletion_of, list_finalizers, wanted_since
from shared.usecases.next_timers import engine_now, timers_for, wait_until

Handled = ObjectArchived | ObjectDeleted | ObjectStopped | TimersSet
"""What a handler answers."""


@dataclass(frozen=True, slots=True)
class ObjectHandler:
    """Carries out the decisions of one purpose, one object at a time.

    Attributes:
        purpose: The purpose of the timers.
        would: The verdict about a due object in a dry run.
        refused: The reason of the Event about a permanent error.
        cluster: The API server.
        catalogue: The kinds that may be deleted.
        evaluator: Decides, and caches for a moment what it read for that.
        clock: This process's clock, for lateness and timers only; the API server's clock decides what is due.
        telemetry: Records every verdict.
        dry_run: Decide and report; change nothing and write nothing.
        namespace: Only objects in this namespace; empty for all.
        safeguards: Asked before each DELETE or stop, and informed of its result; None for no safeguards.
        by: The function that acts, in logs and metrics.
    """

    purpose: ClassVar[Purpose]
    would: ClassVar[Verdict]
    refused: ClassVar[EventReason]

    cluster: Cluster
    catalogue: Catalogue
    evaluator: Evaluator
    clock: Clock
    telemetry: Telemetry
    dry_run: bool
    by: str = "expire"
    namespace: str = ""
    safeguards: Safeguards | None = None

    @classmethod
    def like(cls, other: "ObjectHandler") -> Self:
        """Make a handler of another purpose that shares everything else."""
        return cls(**shared_fields(other))

    @abstractmethod
    async def _evaluate(self, snapshot: Snapshot, rule: KindRule) -> AnyEvaluation:
        """Evaluate the object by the pure function of this purpose."""

    @abstractmethod
    async def _act(self, due: Any, rule: KindRule, snapshot: Snapshot, *, is_missed: bool) -> Handled | None:
        """Do with a due object what this purpose is for; the safeguards have let it pass."""

    @abstractmethod
    def _find_event(self, rule: KindRule, obj: dict[str, Any], decision: Any) -> ObjectEvent | None:
        """The Event about a decision that a person has to know."""

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
        """Carry out a decision.

        Args:
            evaluation: The decision.
            rule: The object's kind.
            snapshot: The object, and the API server's time.
            missed_before: In a sweep: an object that was due before this instant counts as missed by the events.
            fired_at: For a timer: its due time, see `next_timers`.

        Raises:
            ConflictError: The object has changed since it was read.
            OutdatedError: The decision does not hold any more.
            TryLaterError: The API server is busy or away.
        """
        ref = ref_of(snapshot.obj)
        await self._report_decision(rule, snapshot.obj, evaluation.decision)
        match evaluation.decision:
            case ToArchive():
                return None  # `Archival` carries it out itself
            case Ignore(reason, facts):
                self._record(Verdict.KEPT, ref, reason, detail=facts.problem)
                return self._timers((one.ref, one.due_at) for one in evaluation.fallen)
            case Wait(until, reason, facts):
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
        ref, due = ref_of(snapshot.obj), evaluation.decision
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
                await self._write_event(ref, EventReason.RECREATE_LOOP, answer.event)
            return None
        again_at = engine_now(fired_at, now=self.clock.now()) + timedelta(seconds=answer.seconds)
        self._record(Verdict.TIMER_SET, ref, Safeguard.BUDGET, due_at=again_at)
        return self._timers([(ref, again_at)])

    def _check_still_due(self, evaluation: AnyEvaluation, rule: KindRule, snapshot: Snapshot) -> None:
        if not self.evaluator.is_still_due(evaluation, snapshot, rule):
            if self.safeguards:
                self.safeguards.not_deleted(rule, ref_of(snapshot.obj))
            raise OutdatedError(f"{ref_of(snapshot.obj)}: the decision about it does not hold any more")

    async def _delete(
        self, due: Expire | Stop, rule: KindRule, snapshot: Snapshot, *, is_missed: bool
    ) -> ObjectDeleted | None:
        ref, propagation = ref_of(snapshot.obj), propagation_of(due)
        if not await delete_counted(self.cluster, self.safeguards, rule, snapshot.obj, propagation=propagation):
            self._record(Verdict.ALREADY_GONE, ref)
            return None
        deleted = deletion_of(ref, due, deleted_at=self.clock.now())
        self.telemetry.deleted(deleted, by=self.by, missed=is_missed, finalizers=list_finalizers(snapshot.obj))
        return deleted

    async def report(self, ref: ObjectRef, error: PermanentError) -> None:
        """Report a permanent error by a log line, a metric, and an Event on the object."""
        self._record(Verdict.FAILED, ref, type(error).__name__, detail=str(error))
        await self._write_event(ref, self.refused, str(error))

    async def _report_decision(self, rule: KindRule, obj: dict[str, Any], decision: Any) -> None:
        if event := self._find_event(rule, obj, decision):
            await self._write_event(*event)

    def _timers(self, due: Iterable[tuple[ObjectRef, datetime | None]]) -> TimersSet | None:
        return timers_for(due, purpose=self.purpose)

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


def shared_fields(handler: ObjectHandler) -> dict[str, Any]:
    """What handlers of all purposes have, by name."""
    return {one.name: getattr(handler, one.name) for one in fields(ObjectHandler)}
