"""Find out, without a clock, when an object is due or why it is kept.

A hold keeps the object. Otherwise the first source that sets a TTL takes precedence: the object's annotations, the TTL
field of its kind, the TTL that it inherits from an object to which it refers, the policy rules in order, the defaults
of its namespace. The namespace's max-ttl shortens every TTL except `never`. A rule's minAge and the number of newest
objects that a rule keeps apply to every TTL. An object that another cluster sent is kept, and so is an object that a
controller would create again, if its TTL comes from a policy or its namespace. An object that has to be archived is
kept until it is.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal

from shared.core.archive.gate import apply_gate
from shared.core.decision.facts import MISSING, OWNER_REASONS, Case, Context, Fact, Facts, Reason, is_of_kind
from shared.core.decision.finish import Finish, finish_of
from shared.core.decision.makers import Applier, Dispatcher, find_applier, find_dispatcher
from shared.core.decision.ranks import is_kept
from shared.core.kinds.rule import KindRule
from shared.core.policy.matching import NamespaceUnreadError, Subject
from shared.core.policy.policy_rule import PolicyRule
from shared.core.policy.ruling import (
    ALWAYS,
    NO_RULING,
    Due,
    RuleTtl,
    Ruling,
    UnreadableRuleError,
    apply_rules,
    find_due,
)
from shared.core.ttl.ttl import InvalidTtlError, Ttl, find_ttl_source, is_left_to_controller, native_ttl
from shared.core.values.objects import get_annotations, get_controller, get_text

Evaluated = tuple[Reason | None, Facts]


def evaluate(obj: Any, rule: KindRule, context: Context, *, finish: Finish | None = None) -> Evaluated:
    """Find the first reason to keep an object, and the facts about it. Total: it never raises.

    Reasons that apply whatever the TTL is come first.

    Returns:
        The reason and the facts. The reason is None if the object is due at `due_at` of the facts.
    """
    if not is_of_kind(obj, rule):
        expected = f"expected a {rule.kind} of {', '.join(rule.api_versions)}"
        return Reason.UNKNOWN_SHAPE, Facts(Finish(finished=None), problem=expected)
    finish = finish or finish_of(obj, rule)
    case = Case(obj, rule, context, get_annotations(obj), finish)
    reason, facts = _evaluate_case(case)
    if rule.ttl is not None and rule.ttl.honoured_by is not None:
        facts = with_overridden(obj, rule, reason, facts)
    return reason, facts


def _evaluate_case(case: Case) -> Evaluated:
    finish, reason = case.finish, case.deliberate_reason()
    try:
        own = case.own_ttl() or case.inherited_ttl()
    except InvalidTtlError as error:
        return reason or Reason.INVALID_TTL, Facts(finish, problem=str(error))
    if reason is Reason.INVALID_POLICY and case.namespace is not None:
        return reason, Facts(finish, own, problem=case.namespace.problem, problem_of=case.namespace.ref)
    if not finish.finished:
        return reason or Reason.UNFINISHED, Facts(finish, own)
    if own is None and is_left_to_controller(case.obj, case.rule.ttl):
        return reason or Reason.LEFT_TO_CONTROLLER, Facts(finish)
    reason_when_finished, facts = _evaluate_finished(case, own, may_be_early=reason is None)
    return reason or reason_when_finished, facts


def _evaluate_finished(case: Case, own: Ttl | None, *, may_be_early: bool) -> Evaluated:
    """The reason and the facts for a finished object, whose own TTL was read."""
    namespace, finish = case.namespace, case.finish
    candidates = case.context.policy.candidates(case.rule)
    ruling, dispatcher = NO_RULING, find_dispatcher(case.obj)
    is_own = own is not None and not candidates and (namespace is None or namespace.max_ttl is None)
    applier = None if is_own else find_applier(case.obj)
    # An unread object may set a TTL that is longer than the next source's.
    is_unread = own is None and case.inherited is None and find_ttl_source(case.obj, case.rule.ttl) is not None
    has_ttl, dispatched, recreated = own is not None or is_unread, dispatcher is not None, applier is not None
    try:
        if candidates:
            subject = Subject(case.obj, finish.outcome, namespace, get_text(case.obj, "metadata.namespace"))
            ruling = apply_rules(subject, candidates, has_ttl=has_ttl, dispatched=dispatched, recreated=recreated)
    except NamespaceUnreadError:
        return Reason.NAMESPACE_UNREAD, Facts(finish, own, own.due_at(finish.at) if own else None)
    except UnreadableRuleError as error:
        return Reason.INVALID_POLICY, Facts(finish, own, problem=str(error), unanswered=error.source)
    if is_unread:
        return Reason.INHERITED_UNREAD, Facts(finish, keep_last_rule=ruling.keep_last_rule, group=ruling.group)
    makers = _Makers(
        dispatcher=None if ruling.deletes_dispatched else dispatcher,
        applier=None if ruling.deletes_recreated else applier,
    )
    max_ttl = namespace.max_ttl if namespace is not None else None
    find = partial(_find, case, ruling, makers=makers, fallback=own or _default_ttl(case), max_ttl=max_ttl)
    reason, facts = find(None)
    # A rule whose `never` begins with an age keeps the object from then on; a limit may make it due before.
    is_never_later = reason is Reason.NEVER and not ruling.is_steady
    if may_be_early and (reason in (None, Reason.NO_TTL) or is_never_later):
        return _evaluate_early(case, ruling, find, (reason, facts))
    return reason, facts


@dataclass(frozen=True, slots=True)
class _Makers:
    """Who made the object, unless a policy rule allows the deletion: each would make it again.

    Attributes:
        dispatcher: The dispatcher that sent it here.
        applier: The controller that applies it.
    """

    dispatcher: Dispatcher | None
    applier: Applier | None

    def reason_to_keep(self, case: Case, due: Due) -> Reason | None:
        """The reason to keep an object that is due."""
        if self.dispatcher is not None:
            return Reason.DISPATCHED
        return Reason.RECREATED if self.applier is not None and case.is_due_by_others(due) else None


def _default_ttl(case: Case) -> Ttl | None:
    """The default TTL of the namespace; it never applies to opt-in kinds."""
    may_default = case.namespace is not None and not case.rule.opt_in
    return case.namespace.default_for(case.finish.outcome) if case.namespace is not None and may_default else None


def _find(  # noqa: PLR0913 - all that sets when an object is due
    case: Case,
    ruling: Ruling,
    early: RuleTtl | None,
    *,
    makers: _Makers,
    fallback: Ttl | None,
    max_ttl: timedelta | None,
) -> Evaluated:
    """The reason and the facts with a limit that takes effect, or with none."""
    due = find_due(ruling, fallback, finished_at=case.finish.at, max_ttl=max_ttl, early=early)
    reason = _reason_to_keep(case, due, ruling, makers)
    facts = Facts(
        case.finish,
        ttl=due.ttl,
        due_at=due.at,
        policy_rule=due.rule,
        keep_last_rule=ruling.keep_last_rule,
        group=ruling.group,
        moved_by=due.moved_by,
        owner=get_controller(case.obj) if reason in OWNER_REASONS else None,
        newer=case.context.newer if ruling.keep_last_rule is not None else None,
        dispatcher=makers.dispatcher,
        count_rule=ruling.count_rule,
        count_group=ruling.count_group,
        counted=case.context.counted if ruling.count_rule is not None else None,
        quota_rule=ruling.quota_rule,
        pressure=case.context.pressure if ruling.quota_rule is not None else None,
        audited_by=due.rule.name if due.rule is not None and due.rule.audit else "",
    )
    # An object that is only reported needs no archive.
    is_gated = reason is None and not facts.audited_by and case.may_be_archived
    return apply_gate(case, facts) if is_gated else (reason, facts)


def _evaluate_early(case: Case, ruling: Ruling, find: Callable[[RuleTtl], Evaluated], usual: Evaluated) -> Evaluated:
    """The reason and the facts of an object that a limit may make due before its time.

    A limit only makes an object due sooner. So if a reason keeps the object from that, the next limit counts, and in
    the end the usual result, which names the facts that are missing. A limit of a rule with audit only takes effect if
    no other limit does.
    """
    reason, facts = usual
    audited: Facts | None = None
    unread: dict[Fact, None] = {}
    for limit in find_limits(ruling, case.context, case.finish.at, is_due_later=facts.due_at is not None):
        if limit.ttl is None:
            unread[limit.fact] = None
            continue
        early_reason, early = find(RuleTtl(ALWAYS, limit.rule, limit.ttl))
        if early.ttl is not limit.ttl:
            continue  # the object is due sooner anyway
        if early_reason is None and early.audited_by:
            otherwise = facts if reason is None else None
            audited = audited or replace(early, early=limit.reason, otherwise=otherwise)
            continue
        if early_reason is None:
            return None, replace(early, early=limit.reason)
        if reason is Reason.NO_TTL:
            return early_reason, early
        if early_reason in MISSING:
            unread[MISSING[early_reason]] = None
    reason, facts = usual if audited is None else (None, audited)
    return reason, replace(facts, unread=tuple(unread)) if unread else facts


def _reason_to_keep(case: Case, due: Due, ruling: Ruling, makers: _Makers) -> Reason | None:
    if due.ttl is None:
        # An unread namespace may set a default TTL. A default needs a finish time, and never applies to opt-in kinds.
        may_default = case.namespace is None and case.finish.at is not None and not case.rule.opt_in
        return Reason.NAMESPACE_UNREAD if may_default else Reason.NO_TTL
    if due.at is None:
        return Reason.NEVER if due.ttl.is_never else Reason.FINISH_TIME_UNKNOWN
    if (reason := makers.reason_to_keep(case, due)) is not None:
        return reason
    if case.namespace is None:
        return Reason.NAMESPACE_UNREAD
    if case.is_kept_by_owner(due):
        return case.owner_reason()
    return case.api_reason() or _rank_to_keep(case, ruling)


def _rank_to_keep(case: Case, ruling: Ruling) -> Reason | None:
    """The reason to keep an object that may be among the newest objects that a rule keeps."""
    if ruling.keep_last_rule is None:
        return None
    if case.finish.at is None:
        return Reason.FINISH_TIME_UNKNOWN
    kept = ruling.keep_last_rule.kept_of(case.finish.outcome)
    if case.context.newer is None:
        return Reason.RANK_UNREAD
    return Reason.KEPT_LAST if is_kept(case.context.newer, kept) else None


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that takes effect, or that needs a fact that was not read.

    Attributes:
        reason: The limit.
        fact: What shows whether it takes effect.
        rule: The policy rule that sets it.
        ttl: The TTL that it sets; None if that fact was not read.
    """

    reason: Literal[Reason.OVER_COUNT, Reason.OVER_QUOTA]
    fact: Literal[Fact.PLACE, Fact.QUOTAS]
    rule: PolicyRule
    ttl: Ttl | None


def find_limits(
    ruling: Ruling, context: Context, finished_at: datetime | None, *, is_due_later: bool
) -> Iterator[Limit]:
    """Yield the limits of the rules that match an object, that by count first.

    Args:
        ruling: What the rules set.
        context: The facts beside the object.
        finished_at: The finish time; without one, an object has no place in the order of its group.
        is_due_later: Whether the object is due at some time without a limit: a quota applies to no other objects.
    """
    if finished_at is None:
        return
    if (rule := ruling.count_rule) is not None:
        counted = context.counted
        if counted is None:
            yield Limit(Reason.OVER_COUNT, Fact.PLACE, rule, None)
        elif not is_kept(counted.newer, rule.max_count):
            yield Limit(Reason.OVER_COUNT, Fact.PLACE, rule, rule.count_ttl)
    if (rule := ruling.quota_rule) is not None and is_due_later:
        pressure = context.pressure
        if pressure is None:
            yield Limit(Reason.OVER_QUOTA, Fact.QUOTAS, rule, None)
        elif pressure.is_over(rule.when_quota_above or 0):
            yield Limit(Reason.OVER_QUOTA, Fact.QUOTAS, rule, rule.quota_ttl)


_KEPT_ON_REQUEST = frozenset(
    {
        Reason.HELD,
        Reason.EXEMPT,
        Reason.INVALID_POLICY,
        Reason.INVALID_TTL,
        Reason.INVALID_ARCHIVE,
        Reason.NEVER,
    }
)
_KEPT_FOR_OTHERS = frozenset({Reason.DISPATCHED, *OWNER_REASONS, Reason.KEPT_LAST, Reason.RANK_UNREAD})


def with_overridden(obj: Any, rule: KindRule, reason: Reason | None, facts: Facts) -> Facts:
    """Set `overridden` if the kind's own controller acts on its TTL field before the object is due."""
    finish = facts.finish
    if facts.ttl is not None and facts.ttl.origin == "native" and reason is None and not facts.moved_by:
        return facts
    try:
        native = native_ttl(obj, rule.ttl)
    except InvalidTtlError:
        return facts
    if native is None or native.is_never:
        return facts
    native_due_at = native.due_at(finish.at) if finish.finished else None
    is_kept = reason in _KEPT_ON_REQUEST or (reason in _KEPT_FOR_OTHERS and native_due_at is not None)
    is_later = facts.due_at is not None and native_due_at is not None and native_due_at < facts.due_at
    is_longer = not finish.finished and _is_longer(facts.ttl, native)
    return replace(facts, overridden=native.source) if is_kept or is_later or is_longer else facts


def _is_longer(ttl: Ttl | None, native: Ttl) -> bool:
    """Return whether a TTL is longer than that of the kind's field; an absolute instant is not compared."""
    if ttl is None or ttl.at is not None or native.after is None:
        return False
    return ttl.after is None or ttl.after > native.after
