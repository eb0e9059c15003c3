"""Everything that speaks of one object, weighed without a clock: when it is due, or why it stays.

The first that speaks counts: a hold, the object's annotations, its kind's own field, the rules of the policy in order,
the defaults of its namespace. The namespace's maximum shortens any of them but `never`; the minimum age of a rule is
below all of them, and so is the number of the newest that a rule keeps.
"""

from dataclasses import dataclass, replace
from typing import Any

from shared.core.dispatchers import Dispatcher, find_dispatcher
from shared.core.facts import Context, Facts, Reason
from shared.core.finish.finish import Finish, finish_of
from shared.core.kinds.rule import KindRule
from shared.core.namespaces import CLUSTER_SCOPED, Namespace
from shared.core.objects import get_annotations, get_controller, get_in, get_text
from shared.core.policy.matching import NamespaceUnreadError, Subject
from shared.core.policy.ruling import NO_RULING, Due, Ruling, UnreadableRuleError, find_due, rule_on
from shared.core.ttl.native import is_left_to_controller
from shared.core.ttl.ttl import InvalidTtlError, Ttl, find_ttl, native_ttl

Weighed = tuple[Reason | None, Facts]

_STAYS = frozenset({Reason.HELD, Reason.EXEMPT, Reason.INVALID_POLICY, Reason.INVALID_TTL, Reason.NEVER})
_STAYS_WITH_OTHERS = frozenset({Reason.DISPATCHED, Reason.OWNER_UNFINISHED, Reason.KEPT_LAST})


def evaluate(obj: Any, rule: KindRule, context: Context, finish: Finish | None = None) -> Weighed:
    """The first reason to keep an object, the most deliberate first, and all that is known of it. Total.

    Returns:
        No reason where it is due at the facts' `due_at`.
    """
    if not _is_of_kind(obj, rule):
        expected = f"expected a {rule.kind} of {', '.join(rule.api_versions)}"
        return Reason.UNKNOWN_SHAPE, Facts(Finish(finished=None), problem=expected)
    finish = finish or finish_of(obj, rule)
    case = _Case(obj, rule, context, get_annotations(obj), finish)
    reason, facts = _weigh_case(case)
    if rule.ttl is not None and rule.ttl.honoured_by is not None:
        facts = _with_powerless(case, reason, facts)
    return reason, facts


@dataclass(slots=True)
class _Case:
    """One object, and what is known beside it."""

    obj: Any
    rule: KindRule
    context: Context
    annotations: dict[str, Any]
    finish: Finish

    @property
    def namespace(self) -> Namespace | None:
        """Objects of a kind without namespaces are in one of which nothing is said."""
        return CLUSTER_SCOPED if self.rule.scope == "Cluster" else self.context.namespace

    def spoken(self) -> Ttl | None:
        """What the object itself says, as far as we act on it.

        Raises:
            InvalidTtlError: That cannot be read.
        """
        return find_ttl(self.obj, self.rule, self.finish.outcome, self.annotations)

    def deliberate_reason(self) -> Reason | None:
        """What keeps it whatever its TTL is."""
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
        """Whether an unfinished owner counts: for the kind, or for a TTL that nobody set on the object itself."""
        if not self.context.owner_unfinished or self.annotations.get("owner") == "ignore":
            return False
        if self.rule.while_owner_unfinished == "keep":
            return True
        by_others = due.ttl is not None and (due.ttl.origin in ("policy", "namespace") or self._is_shortened(due))
        return by_others and not (due.rule is not None and due.rule.on_owned == "delete")

    def _is_shortened(self, due: Due) -> bool:
        """Whether it is due sooner than the object itself says: the namespace's maximum is not its own word."""
        own = due.ttl.due_at(self.finish.at) if due.ttl else None
        return own is not None and due.at is not None and due.at < own


def _weigh_case(case: _Case) -> Weighed:
    finish, reason = case.finish, case.deliberate_reason()
    try:
        spoken = case.spoken()
    except InvalidTtlError as error:
        return reason or Reason.INVALID_TTL, Facts(finish, problem=str(error))
    if reason is Reason.INVALID_POLICY and case.namespace is not None:
        return reason, Facts(finish, spoken, problem=case.namespace.problem, problem_of=case.namespace.ref)
    if not finish.finished:
        return reason or Reason.UNFINISHED, Facts(finish, spoken)
    if spoken is None and is_left_to_controller(case.obj, case.rule.ttl):
        return reason or Reason.LEFT_TO_CONTROLLER, Facts(finish)
    last, facts = _weigh_finished(case, spoken)
    return reason or last, facts


def _weigh_finished(case: _Case, spoken: Ttl | None) -> Weighed:
    namespace, finish = case.namespace, case.finish
    candidates = case.context.policy.candidates(case.rule)
    ruling, dispatcher = NO_RULING, find_dispatcher(case.obj)
    try:
        if candidates:
            subject = Subject(case.obj, finish.outcome, namespace, get_text(case.obj, "metadata.namespace"))
            ruling = rule_on(subject, candidates, settled=spoken is not None, dispatched=dispatcher is not None)
    except NamespaceUnreadError:
        return Reason.NAMESPACE_UNREAD, Facts(finish, spoken, spoken.due_at(finish.at) if spoken else None)
    except UnreadableRuleError as error:
        return Reason.INVALID_POLICY, Facts(finish, spoken, problem=str(error), unanswered=error.source)
    fallback, limit = spoken, None
    if namespace is not None:
        limit = namespace.max_ttl
        if fallback is None and not case.rule.opt_in:
            fallback = namespace.default_for(finish.outcome)
    due = find_due(ruling, fallback, finish.at, limit)
    if ruling.deletes_dispatched:
        dispatcher = None
    reason = _reason_to_keep(case, due, ruling, dispatcher)
    owner = get_controller(case.obj) if reason is Reason.OWNER_UNFINISHED else None
    newer = case.context.newer if ruling.keeper is not None else None
    return reason, Facts(
        finish,
        due.ttl,
        due.at,
        "",
        None,
        due.rule,
        ruling.keeper,
        ruling.group,
        due.moved_by,
        "",
        owner,
        newer,
        dispatcher,
    )


def _reason_to_keep(case: _Case, due: Due, ruling: Ruling, dispatcher: Dispatcher | None) -> Reason | None:
    if due.ttl is None:
        # While the namespace is unread, a default may speak; but none knows of a finish time, or of data to keep.
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
    """Whether it is among the newest that a rule keeps."""
    if ruling.keeper is None:
        return None
    if case.finish.at is None:
        return Reason.FINISH_TIME_UNKNOWN
    kept, newer = ruling.keeper.kept_of(case.finish.outcome) or 0, case.context.newer
    return Reason.KEPT_LAST if newer is None or newer < kept else None


def _with_powerless(case: _Case, reason: Reason | None, facts: Facts) -> Facts:
    """Say so where the kind's own controller will act on its field before we would."""
    if facts.ttl is not None and facts.ttl.origin == "native" and reason is None and not facts.moved_by:
        return facts
    try:
        native = native_ttl(case.obj, case.rule)
    except InvalidTtlError:
        return facts
    if native is None or native.is_never:
        return facts
    native_due_at = native.due_at(case.finish.at) if case.finish.finished else None
    stays = reason in _STAYS or (reason in _STAYS_WITH_OTHERS and native_due_at is not None)
    later = facts.due_at is not None and native_due_at is not None and native_due_at < facts.due_at
    longer = not case.finish.finished and _is_longer(facts.ttl, native)
    return replace(facts, overridden=native.source) if stays or later or longer else facts


def _is_longer(ttl: Ttl | None, native: Ttl) -> bool:
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
