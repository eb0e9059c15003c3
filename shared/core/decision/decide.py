"""Decide whether an object is kept, waits, or may be deleted: one pure function, the core of the project.

`decide` is total (it never raises, for any JSON), deterministic and monotone in `now`: if it returns Expire, it also
returns Expire for every later `now`. `schedule`, `expire`, `sweep`, the watch and the command line call it; no
other code decides about a deletion.

If a fact matters that was not read, such as the namespace, the owner or the rank in a group, the object is kept:
`decide` returns Ignore with a reason that names the fact, see `shared.core.decision.facts`. A caller that can read
the fact then calls `decide` again.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

from shared.core.archive.gate import apply_children_gate
from shared.core.decision.evaluate import evaluate
from shared.core.decision.facts import NOTHING_KNOWN, Context, Facts, Reason
from shared.core.decision.finish import Finish
from shared.core.kinds.rule import KindRule
from shared.core.ttl.ttl import TTL_ANNOTATIONS, find_ttl_source, has_native_ttl
from shared.core.values.objects import get_annotations, get_in

__all__ = ["Context", "Decision", "Expire", "Facts", "Ignore", "Reason", "Wait", "decide", "may_expire"]


@dataclass(frozen=True, slots=True)
class Ignore:
    """Keep the object until the object itself, a fact about it or the policy changes."""

    reason: Reason
    facts: Facts


@dataclass(frozen=True, slots=True)
class Wait:
    """Keep the object for now: it is due at `until`."""

    until: datetime
    reason: Reason
    facts: Facts


@dataclass(frozen=True, slots=True)
class Expire:
    """Delete the object: it is due since `since`."""

    since: datetime
    reason: Reason
    facts: Facts


Decision = Ignore | Wait | Expire


class AnyDecided(Protocol):
    """A decision about any purpose."""

    @property
    def facts(self) -> Facts:
        """The facts about the object."""
        ...


DecisionT = TypeVar("DecisionT", bound=AnyDecided)

NOT_AHEAD = timedelta(0)
"""The API server's clock is trusted."""


def decide(  # noqa: PLR0913 - all inputs of a decision
    obj: Any,
    rule: KindRule,
    now: datetime,
    context: Context = NOTHING_KNOWN,
    *,
    finish: Finish | None = None,
    ahead: timedelta = NOT_AHEAD,
) -> Decision:
    """Decide what happens to one object.

    Args:
        obj: The object as the API server sent it; any JSON is accepted.
        rule: The rule of its kind.
        now: The current instant, aware; for a deletion it must be the API server's time.
        context: The facts beside the object.
        finish: The finish from an earlier decision about the same object; None to read it from the object.
        ahead: By how much the API server's clock is ahead of `now`, if it is too far ahead to be trusted.

    Returns:
        Ignore, Wait or Expire, each with its reason and facts. An object that is due exactly now is expired.
    """
    reason, facts = evaluate(obj, rule, context, finish=finish)
    if reason is not None or facts.due_at is None:
        return Ignore(reason or Reason.FINISH_TIME_UNKNOWN, facts)
    if wait := find_wait(facts.due_at, facts, now, ahead):
        return wait
    if audit := find_audit(facts, now, ahead):
        return audit
    due = facts.otherwise or facts
    kept, due = find_kept(obj, rule, now, context, due, ahead=ahead)
    return kept or Expire(due.due_at or facts.due_at, due.early or Reason.EXPIRED, replace(due, unread=()))


def find_kept(  # noqa: PLR0913 - the arguments of decide
    obj: Any, rule: KindRule, now: datetime, context: Context, facts: Facts, *, ahead: timedelta
) -> tuple[Ignore | Wait | None, Facts]:
    """What is decided about an object that would be deleted now, because of its children; see `decide`.

    All purposes that delete ask this function last: the children are read only for an object that is due.

    Returns:
        None if no child keeps the object; and its facts with the grace of its children.
    """
    if context.children is not None:
        reason, facts = apply_children_gate(obj, rule, context.children, facts)
        if reason is not None:
            return Ignore(reason, facts), facts
    return (find_wait(facts.due_at, facts, now, ahead) if facts.due_at is not None else None), facts


def find_wait(due_at: datetime, facts: Facts, now: datetime, ahead: timedelta) -> Wait | None:
    """The wait until an object is due; None if it is due. See `decide` for the arguments."""
    if now >= due_at:
        return None
    is_due_there = due_at - now <= ahead
    return Wait(due_at, Reason.SERVER_CLOCK_AHEAD if is_due_there else Reason.NOT_DUE, facts)


def find_audit(facts: Facts, now: datetime, ahead: timedelta) -> Ignore | Wait | None:
    """The decision to only report a due object; None if no policy rule with `audit: true` makes it due.

    All purposes ask this function before they return a decision to act. So no path acts on an object of such a rule.

    Args:
        facts: The facts about an object that is due.
        now: As in `decide`.
        ahead: As in `decide`.
    """
    if not facts.audited_by:
        return None
    other = facts.otherwise
    if other is None or other.due_at is None or other.audited_by:
        return Ignore(Reason.AUDIT_ONLY, facts)
    wait = find_wait(other.due_at, facts, now, ahead)
    return wait and replace(wait, reason=Reason.AUDIT_ONLY)


def find_fate(decision: DecisionT) -> DecisionT | Ignore | Wait:
    """What happens to the object in the end: an object that waits to be reported only is kept, or waits longer."""
    facts = decision.facts
    if not isinstance(decision, Wait) or not facts.audited_by:
        return decision
    audit = find_audit(facts, datetime.min.replace(tzinfo=UTC), NOT_AHEAD)
    return decision if audit is None else audit


def find_deletion(decision: DecisionT) -> DecisionT | Ignore | Wait:
    """As `find_fate`, but with the reason and the facts of the deletion, if an audit only reports the object sooner."""
    fate = find_fate(decision)
    if isinstance(fate, Wait) and fate.facts.otherwise is not None:
        return Wait(fate.until, Reason.NOT_DUE, fate.facts.otherwise)
    return fate


def may_expire(obj: Any, rule: KindRule, context: Context = NOTHING_KNOWN) -> bool:
    """Return whether an object may be due now or later; a cheap check of its metadata, its TTL field and the policy.

    If it returns False, `decide` would return Ignore, with nothing to report. If it returns True, `decide` may still
    return Ignore.
    """
    annotations = get_annotations(obj)
    if get_in(obj, "metadata.deletionTimestamp") is not None or rule.never_finishes:
        return False
    if "hold" in annotations:
        # The kind's own controller may act on its TTL field in spite of the hold: that has to be reported.
        return has_native_ttl(obj, rule.ttl) and rule.ttl is not None and rule.ttl.honoured_by is not None
    return (
        any(name in annotations for name in TTL_ANNOTATIONS)
        or has_native_ttl(obj, rule.ttl)
        or find_ttl_source(obj, rule.ttl) is not None
        or context.policy.sets_ttl_for(rule)
        or _may_default(rule, context)
    )


def _may_default(rule: KindRule, context: Context) -> bool:
    """Return whether the namespace may set a default TTL, is unread, or has a problem to report."""
    if rule.opt_in or rule.scope == "Cluster":
        return False
    namespace = context.namespace
    return namespace is None or bool(namespace.defaults) or bool(namespace.problem)
