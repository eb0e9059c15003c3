"""The procedure for a finished object that is archived: store it, and set the timer of its deletion."""

from dataclasses import replace
from datetime import timedelta

from shared.core.archive.archiving import ArchiveFact, Archiving
from shared.core.archive.decide_archive import ArchiveDecision, ToArchive
from shared.core.archive.document import Record
from shared.core.decision.decide import Context, Reason, decide
from shared.core.decision.evaluate import evaluate
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import get_text, parse_instant
from shared.errors import PermanentError, TryLaterError
from shared.evaluation.evaluator import Evaluation
from shared.messages import ObjectArchived, Purpose, Timer, TimersSet
from shared.ports import EventReason, HandlingReason, Report, Snapshot, Verdict
from shared.usecases.archives.lookup import AcknowledgedCopy, archived_before, archived_of
from shared.usecases.archives.pauses import REPORTED_FROM, describe_pause
from shared.usecases.archives.writer import ArchiveOrder, ArchiveWriter
from shared.usecases.handler import Decided, Handled, Handler, Procedure
from shared.usecases.timers import engine_now, expire_at

OBJECT_BYTES = 2 * 1024 * 1024
"""Bytes that are held for one object before it is read: etcd limits an object to 1.5 MiB."""

ATTEMPT_SECONDS = 240.0
"""How long one attempt may take: the children and logs of an object may be many."""

LOG_ATTEMPTS_MIN = 5
"""Failed attempts after which an object may be archived without logs that cannot be read: their node may be gone."""

LOG_WAIT = timedelta(minutes=10)
"""How long after its finish an object waits at the least for logs that cannot be read. The number of attempts comes
with the event, so it alone is no proof."""


def archival(writer: ArchiveWriter) -> Procedure:
    """The procedure that archives finished objects; `expire` and `sweep` write the Events about its decisions.

    Args:
        writer: Stores the objects; all timers of a process share it.
    """

    async def act(handler: Handler, decided: Decided) -> Handled | None:
        decision: ToArchive = decided.decision
        return _find_pause(handler, decided, writer) or await _store(handler, decided, decision, writer)

    async def keep(handler: Handler, decided: Decided) -> Handled | None:
        facts, ref = decided.decision.facts, decided.ref
        match decided.decision.reason:
            case Reason.ARCHIVED if facts.archiving is not None and _failures(decided) and not handler.dry_run:
                # An attempt before failed, or `expire` did not find the document: look at it, and repair it.
                again = ToArchive(facts.archiving, Reason.NOT_ARCHIVED, facts)
                return await _store(handler, decided, again, writer)
            case Reason.ARCHIVED if facts.archived is not None:
                handler.record(Verdict.ALREADY_ARCHIVED, ref, detail=facts.archived.location)
                # The answer before may be lost. A repeated one has the same id, so that subscribers recognize it.
                return archived_before(facts.archived, ref, _expire_timer(handler, decided, facts.archived))
            case Reason.AUDIT_ONLY:
                handler.record_audited(ref, facts)
            case reason:
                handler.record(Verdict.KEPT, ref, reason, detail=facts.problem)
        timer = _expire_timer(handler, decided, None)
        return None if timer is None else TimersSet(timers=(timer,))

    return Procedure(
        purpose=Purpose.ARCHIVE,
        evaluate=_evaluate,
        due=ToArchive,
        act=act,
        on_kept=keep,
        would=Verdict.WOULD_ARCHIVE,
        asks_safeguards=False,
        describe=lambda decision: decision.archiving.to,
        reserve=lambda ref: writer.gates.objects.hold(OBJECT_BYTES, ref.namespace),
        refusal=EventReason.NOT_ARCHIVED,
        attempt_seconds=ATTEMPT_SECONDS,
    )


async def _evaluate(handler: Handler, snapshot: Snapshot, rule: KindRule) -> Evaluation[ArchiveDecision]:
    return await handler.evaluator.evaluate_archive(snapshot, rule)


def _find_pause(handler: Handler, decided: Decided, writer: ArchiveWriter) -> TimersSet | None:
    """The timer of a version that has to wait; it reads the version that is present then. None to store it now."""
    ref, decision, now = decided.ref, decided.decision, handler.clock.now()
    if handler.evaluator.archive_check.find_outage(decision.archiving.to):
        return None  # the archive is not asked, so nothing is counted
    version = get_text(decided.snapshot.obj, "metadata.resourceVersion")
    pause = writer.pauses.begin(ref.uid, version, finished_at=decision.facts.finish.at, now=now)
    if pause is None:
        return None
    # If the clock of the timer engine has reached the end of the pause, the timer would fire at once. `engine_now`
    # is not before `now`, so the timer is not due before the pause ends.
    due_at = engine_now(decided.fired_at, now=now) + (pause.until - now)
    handler.record(Verdict.TIMER_SET, ref, HandlingReason.ARCHIVED_OFTEN, due_at=due_at)
    if pause.versions >= REPORTED_FROM:
        handler.telemetry.reported(Report.of(ref, *describe_pause(pause), at=now), by=handler.by)
    timer = Timer(ref=ref, purpose=Purpose.ARCHIVE, due_at=due_at, attempts=_failures(decided))
    return TimersSet(timers=(timer,))


async def _store(handler: Handler, decided: Decided, decision: ToArchive, writer: ArchiveWriter) -> ObjectArchived:
    ref, archiving, policy = decided.ref, decision.archiving, decided.evaluation.context.policy
    destination = policy.archives.get(archiving.to)
    if destination is None:
        raise PermanentError(f"archive {archiving.to}: the policy has no such archive")
    failures = _failures(decided)
    order = ArchiveOrder(
        archiving,
        destination,
        _record_of(decided, decision),
        may_lack_logs=failures >= LOG_ATTEMPTS_MIN and _has_waited(decision, decided.snapshot),
        may_be_stored=failures > 0 or not _is_absent(decision.facts.archived),
        held=decided.reserved,
    )
    try:
        written = await _write(handler, decided, order, writer)
    except BaseException:  # also when the time limit cuts it off
        handler.telemetry.not_archived(ref, archiving.to, decision.facts.finish.at, failed=True)
        raise
    fact = _fact_of(written, archiving)
    handler.evaluator.archive_check.remember(fact, written.copied.key, destination)
    archived = archived_of(ref, archiving.to, written, timer=_expire_timer(handler, decided, fact))
    handler.telemetry.archived(archived, size=written.size, by=handler.by)
    return archived


async def _write(handler: Handler, decided: Decided, order: ArchiveOrder, writer: ArchiveWriter) -> AcknowledgedCopy:
    """Store an object; timers that wait for an archive must not take the places of timers that delete."""
    if outage := handler.evaluator.archive_check.find_outage(order.archiving.to):
        raise TryLaterError(outage)
    return await writer.write(decided.snapshot, decided.rule, order)


def _record_of(decided: Decided, decision: ToArchive) -> Record:
    snapshot, context = decided.snapshot, _assuming_no_other(decided.evaluation.context)
    _, facts = evaluate(snapshot.obj, decided.rule, context, finish=decision.facts.finish)
    return Record(
        archived_at=snapshot.read_at,
        finished_at=decision.facts.finish.at,
        outcome=decision.facts.finish.outcome,
        due_at=facts.due_at,
        ttl_from=facts.ttl.source if facts.ttl else "",
        rule=decision.archiving.rule,
    )


def _expire_timer(handler: Handler, decided: Decided, fact: ArchiveFact | None) -> Timer | None:
    """The timer of the deletion; when it fires, `expire` reads the owner and the children."""
    context = replace(_assuming_no_other(decided.evaluation.context), archived=fact)
    decision = decide(decided.snapshot.obj, decided.rule, decided.snapshot.read_at, context)
    due_at = expire_at(decision, handler.clock.now())
    if due_at is None:
        return None
    return Timer(ref=decided.ref, purpose=Purpose.EXPIRE, due_at=due_at, attempts=_failures(decided))


def _failures(decided: Decided) -> int:
    """How many attempts on the object failed so far."""
    return decided.fired.attempts if decided.fired else 0


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
