"""A finished object's timer fired: store the object in its archive, and set the timer of its deletion."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar

from shared.core.archive.archiving import ArchiveFact, Archiving
from shared.core.archive.decide_archive import ToArchive
from shared.core.archive.document import Record
from shared.core.decision.decide import Context, Ignore, Reason, decide
from shared.core.decision.evaluate import evaluate
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import get_text, parse_instant
from shared.errors import PermanentError, TryLaterError
from shared.evaluation.evaluator import AnyEvaluation
from shared.messages import ObjectArchived, Purpose, Timer, TimersSet
from shared.ports import EventReason, HandlingReason, Report, Snapshot, Verdict
from shared.usecases.archives.byte_gate import HeldBytes
from shared.usecases.archives.lookup import AcknowledgedCopy
from shared.usecases.archives.pauses import REPORTED_FROM
from shared.usecases.archives.reports import archived_before, archived_of, describe_pause
from shared.usecases.archives.writer import ArchiveOrder, ArchiveWriter
from shared.usecases.next_timers import engine_now, expire_at
from shared.usecases.object_handler import Handled
from shared.usecases.timer_handler import TimerHandler

OBJECT_BYTES = 2 * 1024 * 1024
"""Bytes that are held for one object before it is read: etcd limits an object to 1.5 MiB."""

LOG_ATTEMPTS_MIN = 5
"""Failed attempts after which an object may be archived without logs that cannot be read: their node may be gone."""

LOG_WAIT = timedelta(minutes=10)
"""How long after its finish an object waits at the least for logs that cannot be read. The number of attempts comes
with the event, so it alone is no proof."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archival(TimerHandler):
    """Archives finished objects, one at a time.

    Attributes:
        writer: Stores the objects; all timers of a process share it.
        attempts: How many attempts on the object of the timer failed so far.
        held: What the object of the timer holds of the gate.
    """

    purpose: ClassVar[Purpose] = Purpose.ARCHIVE
    would: ClassVar[Verdict] = Verdict.WOULD_ARCHIVE
    refused: ClassVar[EventReason | None] = EventReason.NOT_ARCHIVED
    writes_events: ClassVar[bool] = False  # `expire` and `sweep` report the same decisions
    attempt_seconds: ClassVar[float] = 240.0

    writer: ArchiveWriter
    attempts: int = 0
    held: HeldBytes | None = None

    async def archive(self, timer: Timer) -> Handled | None:
        """Archive the timer's object, unless its archive has acknowledged this version of it.

        Returns:
            ObjectArchived with the timer of the deletion; TimersSet if nothing has to be archived now, or if the
            attempt has to be repeated; otherwise None.

        Raises:
            PermanentError: The API server or the archive refuses for good.
        """
        async with self.writer.gates.objects.hold(OBJECT_BYTES, timer.ref.namespace) as held:
            return await replace(self, attempts=timer.attempts, held=held).handle(timer)

    async def _evaluate(self, snapshot: Snapshot, rule: KindRule) -> AnyEvaluation:
        return await self.evaluator.evaluate_archive(snapshot, rule)

    async def _carry_out(
        self,
        evaluation: AnyEvaluation,
        rule: KindRule,
        snapshot: Snapshot,
        *,
        missed_before: datetime | None = None,  # noqa: ARG002 - of sweeps
        fired_at: datetime | None = None,
    ) -> Handled | None:
        ref, decision = snapshot.ref, evaluation.decision
        self._report_decision(rule, snapshot.obj, decision)
        match decision:
            case ToArchive() if self.dry_run:
                self._record(self.would, ref, decision.reason, detail=decision.archiving.to)
                return None
            case ToArchive():
                if waiting := self._find_pause(decision, snapshot, fired_at):
                    return waiting
                return await self._store(decision, evaluation.context, rule, snapshot)
            case Ignore(Reason.ARCHIVED, facts) if facts.archiving is not None and self.attempts:
                # An attempt before failed, or `expire` did not find the document: look at it, and repair it.
                again = ToArchive(facts.archiving, Reason.NOT_ARCHIVED, facts)
                return await self._store(again, evaluation.context, rule, snapshot)
            case Ignore(Reason.ARCHIVED, facts) if facts.archived is not None:
                self._record(Verdict.ALREADY_ARCHIVED, ref, detail=facts.archived.location)
                # The answer before may be lost. A repeated one has the same id, so that subscribers recognize it.
                return archived_before(
                    facts.archived, ref, self._timer(rule, snapshot, evaluation.context, facts.archived)
                )
            case Ignore(Reason.AUDIT_ONLY, facts):
                self._record_audited(ref, facts)
                timer = self._timer(rule, snapshot, evaluation.context, None)
                return None if timer is None else TimersSet(timers=(timer,))
            case _:
                self._record(Verdict.KEPT, ref, decision.reason, detail=decision.facts.problem)
                timer = self._timer(rule, snapshot, evaluation.context, None)
                return None if timer is None else TimersSet(timers=(timer,))

    def _find_pause(self, decision: ToArchive, snapshot: Snapshot, fired_at: datetime | None) -> TimersSet | None:
        """The timer of a version that has to wait; it reads the version that is present then. None to store it now."""
        ref, now, version = snapshot.ref, self.clock.now(), get_text(snapshot.obj, "metadata.resourceVersion")
        if self.evaluator.archive_check.find_outage(decision.archiving.to):
            return None  # the archive is not asked, so nothing is counted
        finished_at = decision.facts.finish.at
        pause = self.writer.pauses.begin(ref.uid, version, finished_at=finished_at, now=now)
        if pause is None:
            return None
        # If the clock of the timer engine has reached the end of the pause, the timer would fire at once. `engine_now`
        # is not before `now`, so the timer is not due before the pause ends.
        due_at = engine_now(fired_at, now=now) + (pause.until - now)
        self._record(Verdict.TIMER_SET, ref, HandlingReason.ARCHIVED_OFTEN, due_at=due_at)
        if pause.versions >= REPORTED_FROM:
            report = Report.of(ref, *describe_pause(pause), at=now)
            self.telemetry.reported(report, by=self.by)
        return TimersSet(timers=(Timer(ref=ref, purpose=Purpose.ARCHIVE, due_at=due_at, attempts=self.attempts),))

    async def _store(self, decision: ToArchive, context: Context, rule: KindRule, snapshot: Snapshot) -> ObjectArchived:
        ref, archiving = snapshot.ref, decision.archiving
        destination = context.policy.archives.get(archiving.to)
        if destination is None:
            raise PermanentError(f"archive {archiving.to}: the policy has no such archive")
        record = self._record_of(decision, context, rule, snapshot)
        order = ArchiveOrder(
            archiving,
            destination,
            record,
            may_lack_logs=self.attempts >= LOG_ATTEMPTS_MIN and _has_waited(decision, snapshot),
            may_be_stored=self.attempts > 0 or not _is_absent(decision.facts.archived),
            held=self.held,
        )
        try:
            written = await self._write(snapshot, rule, order)
        except BaseException:  # also when the time limit cuts it off
            self.telemetry.not_archived(ref, archiving.to, decision.facts.finish.at, failed=True)
            raise
        fact = _fact_of(written, archiving)
        self.evaluator.archive_check.remember(fact, written.copied.key, destination)
        archived = archived_of(ref, archiving.to, written, timer=self._timer(rule, snapshot, context, fact))
        self.telemetry.archived(archived, size=written.size, by=self.by)
        return archived

    async def _write(self, snapshot: Snapshot, rule: KindRule, order: ArchiveOrder) -> AcknowledgedCopy:
        """Store an object; timers that wait for an archive must not take the places of timers that delete."""
        if outage := self.evaluator.archive_check.find_outage(order.archiving.to):
            raise TryLaterError(outage)
        return await self.writer.write(snapshot, rule, order)

    def _record_of(self, decision: ToArchive, context: Context, rule: KindRule, snapshot: Snapshot) -> Record:
        _, facts = evaluate(snapshot.obj, rule, _assuming_no_other(context), finish=decision.facts.finish)
        return Record(
            archived_at=snapshot.read_at,
            finished_at=decision.facts.finish.at,
            outcome=decision.facts.finish.outcome,
            due_at=facts.due_at,
            ttl_from=facts.ttl.source if facts.ttl else "",
            rule=decision.archiving.rule,
        )

    def _timer(self, rule: KindRule, snapshot: Snapshot, context: Context, fact: ArchiveFact | None) -> Timer | None:
        """The timer of the deletion; when it fires, `expire` reads the owner and the children."""
        now, context = self.clock.now(), replace(_assuming_no_other(context), archived=fact)
        due_at = expire_at(decide(snapshot.obj, rule, snapshot.read_at, context), now)
        if due_at is None:
            return None
        return Timer(ref=snapshot.ref, purpose=Purpose.EXPIRE, due_at=due_at, attempts=self.attempts)


def _is_absent(fact: ArchiveFact | None) -> bool:
    """Return whether the archive has just said that it has nothing of this version."""
    return fact is not None and fact.acknowledged_at is None and not fact.location


def _has_waited(decision: ToArchive, snapshot: Snapshot) -> bool:
    at = decision.facts.finish.at or parse_instant(get_text(snapshot.obj, "metadata.creationTimestamp"))
    return snapshot.read_at - at >= LOG_WAIT


def _assuming_no_other(context: Context) -> Context:
    return replace(context, owner_unfinished=False, aggregated=False, children=None)


def _fact_of(written: AcknowledgedCopy, archiving: Archiving) -> ArchiveFact:
    key = written.copied.key
    fact = ArchiveFact(archiving.to, key.uid, key.resource_version, written.at, location=written.location)
    return replace(fact, digest=key.digest, children=archiving.children, logs=archiving.logs)
