"""The procedure for a finished object that is due soon: send `object.warned` if it will still be deleted."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from shared.core.archive.gate import AWAITS_ARCHIVE, AWAITS_CHILDREN
from shared.core.decision.decide import Decision, Expire, Ignore, Reason, Wait, find_deletion
from shared.core.decision.facts import Facts
from shared.core.kinds.rule import KindRule
from shared.evaluation.evaluator import Evaluation
from shared.messages import ObjectWarned, Purpose
from shared.ports import Snapshot, Verdict
from shared.usecases.handler import Decided, Handler, Procedure
from shared.usecases.timers import find_warned_at

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


async def _evaluate(handler: Handler, snapshot: Snapshot, rule: KindRule) -> Evaluation[Any]:
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
    evaluate=_evaluate,
    due=Warn,
    act=_warn,
    on_kept=_keep,
    would=Verdict.KEPT,
    describe=lambda _: _UNSENT,
    asks_safeguards=False,
    takes_cached=False,
)
"""Warns of deletions; it writes nothing."""
