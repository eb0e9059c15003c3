"""Decide whether an unfinished object is left alone, waits for its deadline, or is stopped: one pure function.

`decide_stop` has the form of `shared.core.decide.decide`, and the same properties: it is total, deterministic and
monotone in `now`. If a fact is unknown, the object is left alone, and the reason names the fact.

The clock of an active deadline starts with the object, or with its last resume. It does not run while the object is
suspended. The clock of a pending deadline runs only until the first start.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from shared.core.deadlines.deadline import DEADLINES, ON_DEADLINE, Stage
from shared.core.deadlines.evaluate_stop import evaluate_stop
from shared.core.deadlines.mark import DEADLINE_EXCEEDED
from shared.core.decide import NOT_AHEAD, Ignore, Wait, find_audit, find_kept, find_wait
from shared.core.facts import NOTHING_KNOWN, Context, Facts, Reason
from shared.core.finish import Finish
from shared.core.kinds.rule import KindRule
from shared.core.objects import get_annotations, get_in


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the object: its deadline was over at `since`."""

    since: datetime
    reason: Reason
    facts: Facts


StopDecision = Ignore | Wait | Stop

_ANNOTATIONS = frozenset({*DEADLINES.values(), ON_DEADLINE, DEADLINE_EXCEEDED})
"""Annotations of an object that set a deadline, or whose malformed value is reported."""


def decide_stop(  # noqa: PLR0913 - all inputs of a decision
    obj: Any,
    rule: KindRule,
    now: datetime,
    context: Context = NOTHING_KNOWN,
    *,
    finish: Finish | None = None,
    ahead: timedelta = NOT_AHEAD,
) -> StopDecision:
    """Decide whether one object is stopped; the arguments are those of `shared.core.decide.decide`.

    Returns:
        Ignore, Wait or Stop, each with its reason and facts. An object whose deadline is over exactly now is stopped.
    """
    reason, facts = evaluate_stop(obj, rule, context, finish=finish)
    if reason is not None or facts.due_at is None:
        return Ignore(reason or Reason.START_TIME_UNKNOWN, facts)
    if wait := find_wait(facts.due_at, facts, now, ahead):
        return wait
    if audit := find_audit(facts, now, ahead):
        return audit
    kept = None
    if facts.active.deletes:
        kept, facts = find_kept(obj, rule, now, context, facts, ahead=ahead)
    return kept or Stop(facts.due_at or now, Reason.DEADLINE_EXCEEDED, facts)


def may_stop(obj: Any, rule: KindRule, context: Context = NOTHING_KNOWN) -> bool:
    """Return whether a deadline may be set for an object; a cheap check of its metadata and the policy.

    If it returns False, `decide_stop` would return Ignore, with nothing to report.
    """
    annotations = get_annotations(obj)
    if get_in(obj, "metadata.deletionTimestamp") is not None or rule.never_finishes or "hold" in annotations:
        return False
    if not _ANNOTATIONS.isdisjoint(annotations) or context.policy.sets_deadline_for(rule):
        return True
    if rule.deadline is None or rule.opt_in or rule.scope == "Cluster":
        return False
    namespace = context.namespace
    if namespace is None:
        return True
    defaults = namespace.default_deadlines
    return Stage.ACTIVE in defaults or (Stage.PENDING in defaults and rule.deadline.pending is not None)
