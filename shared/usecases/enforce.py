"""The procedure for a running object: stop it if its active deadline is over."""

from datetime import datetime
from typing import Any

from shared.core.deadlines.deadline import is_merged
from shared.core.deadlines.decide_stop import Stop, StopDecision
from shared.core.decision.decide import Ignore, Reason, Wait
from shared.core.kinds.rule import KindRule
from shared.errors import PermanentError
from shared.evaluation.evaluator import Evaluation
from shared.messages import ObjectDeleted, ObjectStopped, Purpose, TimersSet
from shared.ports import EventReason, Snapshot, Verdict
from shared.usecases.counted_writes import stop_counted
from shared.usecases.handler import Decided, Handler, Procedure
from shared.usecases.reports import (
    ObjectEvent,
    describe_excess,
    describe_patch,
    describe_stop,
    find_stop_event,
    patch_of,
    stop_of,
)


async def find_stop_timers(handler: Handler, rule: KindRule, snapshot: Snapshot) -> TimersSet | None:
    """Evaluate one object of a LIST, report what a person has to know, and return its timer; stop nothing.

    Only the function `enforce` has the rights to stop an object.

    Args:
        handler: Has the procedure `ENFORCEMENT`.
        rule: The object's kind.
        snapshot: The object, and the API server's time.

    Raises:
        TryLaterError: The API server is busy or away.
    """
    ref, decision = snapshot.ref, (await _evaluate(handler, snapshot, rule)).decision
    handler.report_decision(rule, snapshot.obj, decision)
    match decision:
        case Ignore(Reason.AUDIT_ONLY, facts):
            handler.record_audited(ref, facts)
            return None
        case Ignore():
            return None
        case Wait(until, reason):
            handler.record(Verdict.TIMER_SET, ref, reason, due_at=until)
            return handler.timers([(ref, until)])
        case Stop(since, reason) if handler.dry_run:
            handler.record(Verdict.WOULD_STOP, ref, reason, detail=describe_excess(decision.facts))
            return None
        case Stop(since, reason):
            handler.record(Verdict.TIMER_SET, ref, reason, due_at=since)
            return handler.timers([(ref, handler.clock.now())])


async def _evaluate(handler: Handler, snapshot: Snapshot, rule: KindRule) -> Evaluation[StopDecision]:
    return await handler.evaluator.evaluate_stop(snapshot, rule)


def _find_event(rule: KindRule, obj: dict[str, Any], decision: StopDecision, _now: datetime) -> ObjectEvent | None:
    return find_stop_event(rule, obj, decision)


async def _act(handler: Handler, decided: Decided) -> ObjectDeleted | ObjectStopped | None:
    if decided.decision.facts.active.deletes:
        return await handler.delete(decided)
    return await _stop(handler, decided)


async def _stop(handler: Handler, decided: Decided) -> ObjectStopped:
    due: Stop = decided.decision
    ref, rule, snapshot, active = decided.ref, decided.rule, decided.snapshot, due.facts.active
    stop = rule.deadline.find_stop(active.action) if rule.deadline else None
    if stop is None:
        raise PermanentError(f"the kind rule of {rule.name} has no way to stop an object")
    patch = patch_of(stop, snapshot.obj, at=snapshot.read_at, before=active.mark)
    policy = handler.evaluator.policy().digest
    with handler.timing(rule):
        stored = await stop_counted(handler.cluster, handler.safeguards, rule, snapshot.obj, patch)
    handler.evaluator.lost_marks.stopped(ref.uid, due, snapshot.read_at)
    if not is_merged(stored.obj, stop.patch):
        problem = f"the API server accepted a patch of {ref}, and did not store all of it"
        raise PermanentError(f"{problem}: {describe_patch(rule, active.action)}")
    stopped = stop_of(ref, due, stopped_at=handler.clock.now(), policy=policy)
    handler.telemetry.object_stopped(stopped, by=handler.by, detail=describe_stop(rule, due.facts))
    return stopped


ENFORCEMENT = Procedure(
    purpose=Purpose.ENFORCE,
    evaluate=_evaluate,
    due=Stop,
    act=_act,
    would=Verdict.WOULD_STOP,
    find_event=_find_event,
    refusal=EventReason.STOP_REFUSED,
    asks_safeguards=True,
)
"""Stops running objects."""
