"""The core of the project: one pure function decides what happens to an object.

`decide` is total (it never raises, for any JSON), deterministic and monotone in `now`: once it says Expire, a later
`now` says so too. Every function, the sweep and the command line ask it; nobody else decides.

What is unknown keeps: while the namespace, the owner or the rank in a group may count and is not known, the answer is
Ignore with the reason that says which. Whoever can bring that fact asks again.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from shared.core.evaluate import evaluate
from shared.core.facts import NOTHING_KNOWN, Context, Facts, Reason
from shared.core.finish.finish import Finish
from shared.core.kinds.rule import KindRule
from shared.core.objects import get_annotations, get_in
from shared.core.ttl.native import has_native_ttl
from shared.core.ttl.ttl import TTL_ANNOTATIONS

__all__ = ["Context", "Decision", "Expire", "Facts", "Ignore", "Reason", "Wait", "decide", "may_expire"]


@dataclass(frozen=True, slots=True)
class Ignore:
    """The object stays; nothing but a change of it, of its surroundings or of the policy can alter that."""

    reason: Reason
    facts: Facts


@dataclass(frozen=True, slots=True)
class Wait:
    """The object is due later."""

    until: datetime
    reason: Reason
    facts: Facts


@dataclass(frozen=True, slots=True)
class Expire:
    """The object is due since that instant: delete it."""

    since: datetime
    reason: Reason
    facts: Facts


Decision = Ignore | Wait | Expire

_NOT_AHEAD = timedelta(0)


def decide(  # noqa: PLR0913 - all that a decision rests on
    obj: Any,
    rule: KindRule,
    now: datetime,
    context: Context = NOTHING_KNOWN,
    *,
    finish: Finish | None = None,
    ahead: timedelta = _NOT_AHEAD,
) -> Decision:
    """Decide what happens to one object.

    Args:
        obj: The object as the API server sent it; any JSON is accepted.
        rule: How its kind finishes.
        now: The current instant, aware; to delete by the answer it must be the API server's.
        context: What is known beside it.
        finish: What another decision about the same object has found out of its finish; it is read anew if None.
        ahead: By how much the API server's clock is ahead of `now`, where it is too far ahead to be believed.

    Returns:
        Ignore, Wait or Expire, each with its reason and the facts it rests on. Exactly due is expired.
    """
    reason, facts = evaluate(obj, rule, context, finish)
    if reason is not None or facts.due_at is None:
        return Ignore(reason or Reason.FINISH_TIME_UNKNOWN, facts)
    if now < facts.due_at:
        is_due_there = facts.due_at - now <= ahead
        return Wait(facts.due_at, Reason.SERVER_CLOCK_AHEAD if is_due_there else Reason.NOT_DUE, facts)
    return Expire(facts.due_at, Reason.EXPIRED, facts)


def may_expire(obj: Any, rule: KindRule, context: Context = NOTHING_KNOWN) -> bool:
    """Whether an object may be due now or later as far as its metadata tells; spec and status are not needed.

    Cheap, and only ever wrong in one direction: what is not open would be ignored by `decide`, and needs no report.
    """
    annotations = get_annotations(obj)
    if get_in(obj, "metadata.deletionTimestamp") is not None or rule.never_finishes:
        return False
    if "hold" in annotations:
        # Its own controller may act on the field all the same: that has to be reported.
        return has_native_ttl(obj, rule.ttl) and rule.ttl is not None and rule.ttl.honoured_by is not None
    return (
        any(name in annotations for name in TTL_ANNOTATIONS)
        or has_native_ttl(obj, rule.ttl)
        or context.policy.speaks_of(rule)
        or _may_default(rule, context)
    )


def _may_default(rule: KindRule, context: Context) -> bool:
    """Whether a namespace may speak of objects of which nothing else does, or has to be reported."""
    if rule.opt_in or rule.scope == "Cluster":
        return False
    namespace = context.namespace
    return namespace is None or bool(namespace.defaults) or bool(namespace.problem)
