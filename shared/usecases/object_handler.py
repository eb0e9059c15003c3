"""Decide about one object that was read, carry out the decision, and report: what all purposes have in common."""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, ClassVar, Self

from shared.core.decision.facts import Facts, audited_of
from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ObjectRef
from shared.errors import PermanentError
from shared.evaluation.evaluator import AnyEvaluation, Evaluator
from shared.messages import ObjectArchived, ObjectDeleted, ObjectStopped, ObjectWarned, Purpose, TimersSet
from shared.ports import Clock, Cluster, EventLevel, EventReason, Refusal, Report, Snapshot, Telemetry, Verdict
from shared.safeguards.pace import Pace
from shared.safeguards.safeguards import Safeguards
from shared.usecases.expire_reports import ObjectEvent
from shared.usecases.next_timers import timers_for

Handled = ObjectArchived | ObjectDeleted | ObjectStopped | ObjectWarned | TimersSet
"""What a handler answers."""


@dataclass(frozen=True, slots=True)
class ObjectHandler:
    """Carries out the decisions of one purpose, one object at a time.

    Attributes:
        purpose: The purpose of the timers.
        would: The verdict about a due object in a dry run.
        refused: The reason of the Event about a permanent error; None if another purpose reports the same error.
        writes_events: Whether it reports its decisions by Events; False if another purpose reports the same.
        cluster: The API server.
        catalogue: The kinds that may be deleted.
        evaluator: Decides, and caches for a moment what it read for that.
        clock: This process's clock, for lateness and timers only; the API server's clock decides what is due.
        telemetry: Records every verdict.
        dry_run: Decide and report; change nothing and write nothing.
        namespace: Only objects in this namespace; empty for all.
        safeguards: Asked before each DELETE or stop, and informed of its result; None for no safeguards.
        pace: Gives the permits for DELETEs and stops; None for no limit.
        by: The function that acts, in logs and metrics.
    """

    purpose: ClassVar[Purpose]
    would: ClassVar[Verdict]
    refused: ClassVar[EventReason | None]
    writes_events: ClassVar[bool] = True

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

    @classmethod
    def like(cls, other: "ObjectHandler") -> Self:
        """Make a handler of another purpose that shares everything else."""
        return cls(**shared_fields(other))

    @abstractmethod
    async def _evaluate(self, snapshot: Snapshot, rule: KindRule) -> AnyEvaluation:
        """Evaluate the object by the pure function of this purpose."""

    def _find_event(self, rule: KindRule, obj: dict[str, Any], decision: Any) -> ObjectEvent | None:  # noqa: ARG002
        """The Event about a decision that a person has to know; None if there is none."""
        return None

    @abstractmethod
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

    def report(self, ref: ObjectRef, error: PermanentError) -> None:
        """Report a permanent error by a log line, a metric, and an entry of the journal."""
        self._record(Verdict.FAILED, ref, type(error).__name__, detail=str(error))
        if self.refused is not None and not self.dry_run:
            self.telemetry.refused(Refusal.of(ref, self.refused, error, at=self.clock.now()), by=self.by)

    def _report_decision(self, rule: KindRule, obj: dict[str, Any], decision: Any) -> None:
        if event := self._find_event(rule, obj, decision):
            self._write_event(*event)

    def _timers(self, due: Iterable[tuple[ObjectRef, datetime | None]]) -> TimersSet | None:
        return timers_for(due, purpose=self.purpose)

    def _record(self, verdict: Verdict, ref: ObjectRef, reason: str = "", **details: Any) -> None:
        self.telemetry.record(verdict, ref, reason, by=self.by, **details)

    def _record_audited(self, ref: ObjectRef, facts: Facts) -> None:
        self.telemetry.audited(self.would, ref, audited_of(facts), by=self.by)

    def _write_event(self, ref: ObjectRef, reason: EventReason, message: str, level: EventLevel = "Warning") -> None:
        """Have the journal write an Event in the background, within its limits: the verdict does not depend on it."""
        if self.writes_events and not self.dry_run:
            self.telemetry.reported(Report.of(ref, reason, message, at=self.clock.now()), by=self.by, level=level)


def shared_fields(handler: ObjectHandler) -> dict[str, Any]:
    """What handlers of all purposes have, by name."""
    return {one.name: getattr(handler, one.name) for one in fields(ObjectHandler)}
