"""Find out, without a clock, when an object is due or why it is kept.

A hold keeps the object. Otherwise the first source that sets a TTL takes precedence: the object's annotations, the TTL
field of its kind, the policy rules in order, the defaults of its namespace. The namespace's max-ttl shortens every TTL
except `never`. A rule's minAge and the number of newest objects that a rule keeps apply to every TTL.
"""

from dataclasses import dataclass, replace
from typing import Any

from shared.core.dispatchers import Dispatcher, find_dispatcher
from shared.core.facts import Context, Facts, Reason
from shared.core.finish import Finish, finish_of
from shared.core.kinds.rule import KindRule
from shared.core.namespaces import CLUSTER_SCOPED, Namespace
from shared.core.objects import get_annotations, get_controller, get_in, get_text
from shared.core.policy.matching import NamespaceUnreadError, Subject
from shared.core.policy.ruling import NO_RULING, Due, Ruling, UnreadableRuleError, apply_rules, find_due
from shared.core.ranks import is_kept
from shared.core.ttl.ttl import InvalidTtlError, Ttl, find_ttl, is_left_to_controller, native_ttl

Evaluated = tuple[Reason | None, Facts]

_KEPT_ON_REQUEST = frozenset({Reason.HELD, Reason.EXEMPT, Reason.INVALID_POLICY, Reason.INVALID_TTL, Reason.NEVER})
_KEPT_FOR_OTHERS = frozenset({Reason.DISPATCHED, Reason.OWNER_UNFINISHED, Reason.KEPT_LAST})


def evaluate(obj: Any, rule: KindRule, context: Context, *, finish: Finish | None = None) -> Evaluated:
    """Find the first reason to keep an object, and the facts about it. Total: it never raises.

    Reasons that apply whatever the TTL is come first.

    Returns:
        The reason and the facts. The reason is None if the object is due at `due_at` of the facts.
    """
    if not _is_of_kind(obj, rule):
        expected = f"expected a {rule.kind} of {', '.join(rule.api_versions)}"
        return Reason.UNKNOWN_SHAPE, Facts(Finish(finished=None), problem=expected)
    finish = finish or finish_of(obj, rule)
    case = _Case(obj, rule, context, get_annotations(obj), finish)
    reason, facts = _evaluate_case(case)
    if rule.ttl is not None and rule.ttl.honoured_by is not None:
        facts = _with_overridden(case, reason, facts)
    return reason, facts


@dataclass(slots=True)
class _Case:
    """One object, its kind rule, the context and its finish."""

    obj: Any
    rule: KindRule
    context: Context
    annotations: dict[str, Any]
    finish: Finish

    @property
    def namespace(self) -> Namespace | None:
        """The object's Namespace; None if it was not read. A cluster-scoped object has an empty one."""
        return CLUSTER_SCOPED if self.rule.scope == "Cluster" else self.context.namespace

    def own_ttl(self) -> Ttl | None:
        """The TTL from the object's annotations or its kind's field, unless only its controller acts on that field.

        Raises:
            InvalidTtlError: An annotation or the field is malformed.
        """
        return find_ttl(self.obj, self.rule, self.finish.outcome, annotations=self.annotations)

    def deliberate_reason(self) -> Reason | None:
        """The reason that keeps the object whatever its TTL is."""
        namespace = self.namespace
        if self.finish.finished is None:
            return Reason.UNKNOWN_SHAPE
        if get_in(self.obj, "metadata.deletionTimestamp") is not None:
            return Reason.TERMINATING
        if "hold" in self.annotations:
            return Reason.HELD
        if self.rule.never_finishes is not None:
            return Reason.NEVER_FINISHES
        if namespace is not None and (namespace.is_exempt or namespace.problem):
            return Reason.EXEMPT if namespace.is_exempt else Reason.INVALID_POLICY
        return None

    def is_kept_by_owner(self, due: Due) -> bool:
        """Return whether an unfinished owner keeps it: by the kind rule, or because the object itself sets no TTL."""
        if not self.context.owner_unfinished or self.annotations.get("owner") == "ignore":
            return False
        if self.rule.while_owner_unfinished == "keep":
            return True
        is_set_elsewhere = due.ttl is not None and (
            due.ttl.origin in ("policy", "namespace") or self._is_shortened(due)
        )
        return is_set_elsewhere and not (due.rule is not None and due.rule.on_owned == "delete")

    def _is_shortened(self, due: Due) -> bool:
        """Return whether max-ttl makes the object due sooner than its TTL: max-ttl is not set on the object itself."""
        by_ttl = due.ttl.due_at(self.finish.at) if due.ttl else None
        return by_ttl is not None and due.at is not None and due.at < by_ttl


def _evaluate_case(case: _Case) -> Evaluated:
    finish, reason = case.finish, case.deliberate_reason()
    try:
        own = case.own_ttl()
    except InvalidTtlError as error:
        return reason or Reason.INVALID_TTL, Facts(finish, problem=str(error))
    if reason is Reason.INVALID_POLICY and case.namespace is not None:
        return reason, Facts(finish, own, problem=case.namespace.problem, problem_of=case.namespace.ref)
    if not finish.finished:
        return reason or Reason.UNFINISHED, Facts(finish, own)
    if own is None and is_left_to_controller(case.obj, case.rule.ttl):
        return reason or Reason.LEFT_TO_CONTROLLER, Facts(finish)
    reason_when_finished, facts = _evaluate_finished(case, own)
    return reason or reason_when_finished, facts


def _evaluate_finished(case: _Case, own: Ttl | None) -> Evaluated:
    """The reason and the facts for a finished object, whose own TTL was read."""
    namespace, finish = case.namespace, case.finish
    candidates = case.context.policy.candidates(case.rule)
    ruling, dispatcher = NO_RULING, find_dispatcher(case.obj)
    try:
        if candidates:
            subject = Subject(case.obj, finish.outcome, namespace, get_text(case.obj, "metadata.namespace"))
            ruling = apply_rules(subject, candidates, has_ttl=own is not None, dispatched=dispatcher is not None)
    except NamespaceUnreadError:
        return Reason.NAMESPACE_UNREAD, Facts(finish, own, own.due_at(finish.at) if own else None)
    except UnreadableRuleError as error:
        return Reason.INVALID_POLICY, Facts(finish, own, problem=str(error), unanswered=error.source)
    fallback, limit = own, None
    if namespace is not None:
        limit = namespace.max_ttl
        if fallback is None and not case.rule.opt_in:
            fallback = namespace.default_for(finish.outcome)
    due = find_due(ruling, fallback, finished_at=finish.at, max_ttl=limit)
    if ruling.deletes_dispatched:
        dispatcher = None
    reason = _reason_to_keep(case, due, ruling, dispatcher=dispatcher)
    owner = get_controller(case.obj) if reason is Reason.OWNER_UNFINISHED else None
    newer = case.context.newer if ruling.keep_last_rule is not None else None
    return reason, Facts(
        finish,
        ttl=due.ttl,
        due_at=due.at,
        policy_rule=due.rule,
        keep_last_rule=ruling.keep_last_rule,
        group=ruling.group,
        moved_by=due.moved_by,
        owner=owner,
        newer=newer,
        dispatcher=dispatcher,
    )


def _reason_to_keep(case: _Case, due: Due, ruling: Ruling, *, dispatcher: Dispatcher | None) -> Reason | None:
    if due.ttl is None:
        # An unread namespace may set a default TTL. A default needs a finish time, and never applies to opt-in kinds.
        may_default = case.namespace is None and case.finish.at is not None and not case.rule.opt_in
        return Reason.NAMESPACE_UNREAD if may_default else Reason.NO_TTL
    if due.at is None:
        return Reason.NEVER if due.ttl.is_never else Reason.FINISH_TIME_UNKNOWN
    if dispatcher is not None:
        return Reason.DISPATCHED
    if case.namespace is None:
        return Reason.NAMESPACE_UNREAD
    if case.is_kept_by_owner(due):
        return Reason.OWNER_UNFINISHED
    if case.context.aggregated and case.rule.may_be_aggregated:
        return Reason.AGGREGATED_API
    return _rank_to_keep(case, ruling)


def _rank_to_keep(case: _Case, ruling: Ruling) -> Reason | None:
    """The reason to keep an object that may be among the newest objects that a rule keeps."""
    if ruling.keep_last_rule is None:
        return None
    if case.finish.at is None:
        return Reason.FINISH_TIME_UNKNOWN
    kept = ruling.keep_last_rule.kept_of(case.finish.outcome)
    return Reason.KEPT_LAST if is_kept(case.context.newer, kept) else None


def _with_overridden(case: _Case, reason: Reason | None, facts: Facts) -> Facts:
    """Set `overridden` if the kind's own controller acts on its TTL field before the object is due."""
    if facts.ttl is not None and facts.ttl.origin == "native" and reason is None and not facts.moved_by:
        return facts
    try:
        native = native_ttl(case.obj, case.rule.ttl)
    except InvalidTtlError:
        return facts
    if native is None or native.is_never:
        return facts
    native_due_at = native.due_at(case.finish.at) if case.finish.finished else None
    is_kept = reason in _KEPT_ON_REQUEST or (reason in _KEPT_FOR_OTHERS and native_due_at is not None)
    is_later = facts.due_at is not None and native_due_at is not None and native_due_at < facts.due_at
    is_longer = not case.finish.finished and _is_longer(facts.ttl, native)
    return replace(facts, overridden=native.source) if is_kept or is_later or is_longer else facts


def _is_longer(ttl: Ttl | None, native: Ttl) -> bool:
    """Return whether a TTL is longer than that of the kind's field; an absolute instant is not compared."""
    if ttl is None or ttl.at is not None or native.after is None:
        return False
    return ttl.after is None or ttl.after > native.after


def _is_of_kind(obj: Any, rule: KindRule) -> bool:
    return (
        isinstance(obj, dict)
        and obj.get("apiVersion") in rule.api_versions
        and obj.get("kind") == rule.kind
        and isinstance(obj.get("metadata"), dict)
    )
