"""The procedures for a finished object: delete it if its TTL is over, and send `object.warned` before that."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from shared.core.archive.gate import AWAITS_ARCHIVE, AWAITS_CHILDREN
from shared.core.decision.decide import Decision, Expire, Ignore, Reason, Wait, find_deletion
from shared.core.decision.facts import Facts
from shared.core.kinds.rule import KindRule
from shared.evaluation.evaluator import Evaluation
from shared.messages import ObjectWarned, Purpose, Timer, TimersSet
from shared.ports import EventReason, Snapshot, Verdict
from shared.usecases.handler import Decided, Handled, Handler, Procedure
from shared.usecases.reports import ObjectEvent, find_event, find_unarchived_event
from shared.usecases.timers import CHILD_ATTEMPTS_MAX, find_warned_at, prove_first, retry_later, spread_at, warn_timer


async def report_ttl(handler: Handler, rule: KindRule, snapshot: Snapshot) -> None:
    """Report a TTL of a running object that cannot be read, or that has no effect; delete nothing.

    Raises:
        TryLaterError: The API server is busy or away.
    """
    handler.report_decision(rule, snapshot.obj, await handler.evaluator.decide(snapshot, rule))


async def _evaluate(handler: Handler, snapshot: Snapshot, rule: KindRule) -> Evaluation[Decision]:
    return await handler.evaluator.evaluate(snapshot, rule)


def _find_event(rule: KindRule, obj: dict[str, Any], decision: Decision, now: datetime) -> ObjectEvent | None:
    return find_unarchived_event(obj, decision, now=now) or find_event(rule, obj, decision)


def _add_timers(handler: Handler, decided: Decided, answer: Handled | None) -> Handled | None:
    """Add the proof to the timer of the object; add the timers of its warning, its archive, and its next attempt."""
    decision, facts, now = decided.decision, decided.decision.facts, handler.clock.now()
    if isinstance(decision, Wait) and isinstance(answer, TimersSet):
        if handler.proofs:
            answer = prove_first(answer, handler.proofs.make(decided.evaluation, decided.rule, decided.snapshot.obj))
        answer = _with_warning(handler, decided, answer, find_deletion(decision).facts)
    elif decision.reason in AWAITS_CHILDREN and _is_asked_again(decided) and not handler.dry_run:
        is_spread = decided.is_missed(facts.due_at)
        due_at = (spread_at(decided.ref, facts, now=now) if is_spread else None) or now
        # After a sweep, the LIST of the children has to end first: the attempts begin with long pauses.
        attempts = 0 if decided.fired else CHILD_ATTEMPTS_MAX - 5
        answer = _with_first(Timer(ref=decided.ref, purpose=Purpose.EXPIRE, due_at=due_at, attempts=attempts), answer)
    elif decision.reason in AWAITS_ARCHIVE and facts.archiving is not None:
        handler.telemetry.not_archived(decided.ref, facts.archiving.to, facts.finish.at)
        if not handler.dry_run and not facts.archiving.native:
            answer = _with_first(Timer(ref=decided.ref, purpose=Purpose.ARCHIVE, due_at=now), answer)
    return retry_later(answer, decided.fired, now=now) if decided.fired and isinstance(answer, TimersSet) else answer


def _with_warning(handler: Handler, decided: Decided, answer: TimersSet, facts: Facts) -> TimersSet:
    """The timers of an answer, with that of the warning, unless this process has sent the warning."""
    warning = None if handler.dry_run else warn_timer(decided.ref, facts, now=handler.clock.now())
    if warning is None or handler.evaluator.warnings.has(decided.ref.uid, facts.due_at):
        return answer
    return TimersSet(timers=(*answer.timers, warning))


def _is_asked_again(decided: Decided) -> bool:
    """Return whether a timer asks for the children again; a sweep leaves to the next one what it has read."""
    children = decided.evaluation.context.children
    return decided.fired is not None or (children is not None and children.is_cut_off)


def _with_first(timer: Timer, answer: Handled | None) -> TimersSet:
    """A timer, and then those of an answer."""
    return TimersSet(timers=(timer, *(answer.timers if isinstance(answer, TimersSet) else ())))


DELETION = Procedure(
    purpose=Purpose.EXPIRE,
    evaluate=_evaluate,
    due=Expire,
    act=Handler.delete,
    add_timers=_add_timers,
    would=Verdict.WOULD_DELETE,
    find_event=_find_event,
    refusal=EventReason.DELETION_REFUSED,
    asks_safeguards=True,
    spreads=True,
    takes_proofs=True,
)
"""Deletes finished objects."""


AHEAD_MIN = timedelta(seconds=2)
"""The least time to the due time: the API server's clock has whole seconds, and no warning may follow the deletion."""

_UNSENT = "no warning is sent"


@dataclass(frozen=True, slots=True)
class Warn:
    """Warn of the deletion of the object at `due_at`."""

    due_at: datetime
    reason: Reason
    facts: Facts


WarningDecision = Ignore | Wait | Warn


def decide_warning(decision: Decision, read_at: datetime) -> WarningDecision:
    """Decide whether the warning of a deletion is sent now, later, or not at all.

    Args:
        decision: The decision about the object.
        read_at: The API server's time.
    """
    deletion = find_deletion(decision)
    facts, reason = deletion.facts, Reason.EXPIRED if isinstance(deletion, Expire) else deletion.reason
    # An object that an archive has not acknowledged, or a child of which it has not, is deleted once it has.
    is_deleted = isinstance(deletion, Wait) or reason in (*AWAITS_ARCHIVE, *AWAITS_CHILDREN)
    warned_at = find_warned_at(facts) if is_deleted else None
    if warned_at is None or facts.due_at is None or facts.due_at - read_at < AHEAD_MIN:
        return Ignore(reason, facts)
    return Wait(warned_at, reason, facts) if warned_at > read_at else Warn(facts.due_at, reason, facts)


async def _evaluate_warning(handler: Handler, snapshot: Snapshot, rule: KindRule) -> Evaluation[Any]:
    found = (await handler.evaluator.evaluate(snapshot, rule)).decision
    decision: Any = decide_warning(found, snapshot.read_at)
    return Evaluation(decision)


async def _warn(handler: Handler, decided: Decided) -> ObjectWarned | None:
    warn: Warn = decided.decision
    warnings, facts = handler.evaluator.warnings, warn.facts
    if warnings.has(decided.ref.uid, warn.due_at, fired_at=decided.fired_at):
        handler.record(Verdict.KEPT, decided.ref, warn.reason, detail="the warning was sent before")
        return None
    warnings.add(decided.ref.uid, warn.due_at, fired_at=decided.fired_at)
    handler.record(Verdict.WARNED, decided.ref, warn.reason, detail=facts.summary())
    return ObjectWarned(
        ref=decided.ref,
        outcome=facts.finish.outcome,
        finished_at=facts.finish.at,
        ttl_from=facts.ttl.source if facts.ttl else "",
        due_at=warn.due_at,
    )


async def _keep(handler: Handler, decided: Decided) -> None:
    handler.record(Verdict.KEPT, decided.ref, decided.decision.reason, detail=_UNSENT)


# It writes no Events: `expire` reports the same problems when the object is due.
WARNING = Procedure(
    purpose=Purpose.WARN,
    evaluate=_evaluate_warning,
    due=Warn,
    act=_warn,
    on_kept=_keep,
    would=Verdict.KEPT,
    describe=lambda _: _UNSENT,
    asks_safeguards=False,
    takes_cached=False,
)
"""Warns of deletions; it writes nothing."""
