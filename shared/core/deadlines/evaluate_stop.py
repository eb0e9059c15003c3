"""Find out, without a clock, when a running object reaches its deadline, or why it is left alone.

A hold or an exempt namespace takes precedence over every deadline. The first source that sets a deadline takes
precedence: the object's annotation, the policy rules in order, the default of its namespace. While the kind's own
deadline field is set, only the kind's controller acts; if a webhook sets that field by default, the earlier deadline
applies. The namespace's maximum shortens every deadline of these sources, except `never`.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from shared.core.appliers import find_applier
from shared.core.archive.wanted import InvalidArchiveError, find_archiving
from shared.core.case import Case, is_of_kind
from shared.core.deadlines.deadline import ON_DEADLINE, Deadline, InvalidDeadlineError, annotated_deadline
from shared.core.deadlines.mark import STOPS_MAX, InvalidMarkError, Mark, read_mark
from shared.core.deadlines.run import Run, find_stop_problem, is_merged, run_of
from shared.core.dispatchers import find_dispatcher
from shared.core.evaluate import Evaluated
from shared.core.facts import Context, DeadlineFacts, Facts, Reason
from shared.core.finish import Finish, finish_of
from shared.core.kinds.rule import KindRule, Outcome
from shared.core.objects import get_annotations, get_controller, get_text
from shared.core.policy.matching import NamespaceUnreadError, Subject
from shared.core.policy.policy_rule import PolicyRule
from shared.core.policy.ruling import UnreadableRuleError, find_deadline_rule
from shared.core.ttl.ttl import InvalidTtlError, native_ttl

_MAXIMUM = "the namespace's max-active-deadline"
_NOT_STARTED = Run(None)


def evaluate_stop(obj: Any, rule: KindRule, context: Context, *, finish: Finish | None = None) -> Evaluated:
    """Find the first reason to leave an object alone, and the facts about its deadline. Total: it never raises.

    Returns:
        The reason and the facts. The reason is None if the object is to be stopped at `due_at` of the facts.
    """
    if not is_of_kind(obj, rule):
        expected = f"expected a {rule.kind} of {', '.join(rule.api_versions)}"
        return Reason.UNKNOWN_SHAPE, Facts(Finish(finished=None), problem=expected)
    case = Case(obj, rule, context, get_annotations(obj), finish or finish_of(obj, rule))
    reason, nothing = case.deliberate_reason(), Facts(case.finish)
    try:
        mark, own = read_mark(obj), annotated_deadline(case.annotations)
    except (InvalidMarkError, InvalidDeadlineError) as error:
        is_over = Reason.FINISHED if case.finish.finished else None
        return reason or is_over or Reason.INVALID_DEADLINE, replace(nothing, problem=str(error))
    if case.finish.finished:
        is_stopped = mark is not None and case.finish.outcome is not Outcome.SUCCEEDED
        facts = replace(nothing, active=DeadlineFacts(own, mark=mark))
        return reason or (Reason.ALREADY_STOPPED if is_stopped else Reason.FINISHED), facts
    if reason is Reason.INVALID_POLICY and case.namespace is not None:
        return reason, replace(nothing, problem=case.namespace.problem, problem_of=case.namespace.ref)
    run = run_of(obj, rule.deadline) if rule.deadline else _NOT_STARTED
    if run is None:
        return Reason.UNKNOWN_SHAPE, nothing
    reason_while_running, facts = _evaluate_running(_Running(case, run, mark, own))
    return reason or reason_while_running, facts


@dataclass(slots=True)
class _Running:
    """An unfinished object, its run, its last stop, and the deadline that its own annotation sets."""

    case: Case
    run: Run
    mark: Mark | None
    own: Deadline | None

    def find_deadline(self) -> tuple[Deadline | None, PolicyRule | None]:
        """The deadline that takes precedence, and the policy rule that sets it, if one does.

        Raises:
            NamespaceUnreadError: A policy rule that may matter needs the namespace, which was not read.
            UnreadableRuleError: A policy rule that may matter has no result for the object.
        """
        case, namespace = self.case, self.case.namespace
        if self.own is not None:
            return self.own, None
        candidates = case.context.policy.candidates(case.rule)
        subject = Subject(case.obj, None, namespace, get_text(case.obj, "metadata.namespace"))
        rule = find_deadline_rule(subject, candidates) if candidates else None
        if rule is not None:
            return rule.deadline, rule
        may_default = namespace is not None and not case.rule.opt_in
        return (namespace.default_deadline if namespace is not None and may_default else None), None

    def find_facts(self, deadline: Deadline | None, rule: PolicyRule | None) -> Facts:
        """The facts about a deadline."""
        at, moved_by = deadline.due_at(self.run.started_at) if deadline else None, ""
        longest = self.case.namespace.max_deadline if self.case.namespace else None
        if deadline and at and longest is not None and deadline.after is not None and longest < deadline.after:
            at, moved_by = replace(deadline, after=longest).due_at(self.run.started_at), _MAXIMUM
        action = self.case.annotations.get(ON_DEADLINE) or (rule.on_deadline if rule else None) or "stop"
        active = DeadlineFacts(deadline, self.run.started_at, moved_by, mark=self.mark, action=action)
        audited_by = rule.name if rule is not None and rule.audit else ""
        return Facts(self.case.finish, due_at=at, policy_rule=rule, active=active, audited_by=audited_by)

    def is_stopped(self) -> bool:
        """Return whether the object already has what a stop would write, and no person suspended it.

        A deadline field without a mark is not a stop: a person set it.
        """
        rule, mark = self.case.rule.deadline, self.mark
        if rule is None or (rule.sets_native and mark is None):
            return False
        is_in_place = any(is_merged(self.case.obj, stop.patch) for stop in rule.patches)
        return is_in_place and not (self.run.is_suspended and (mark is None or mark.is_changed(self.case.obj)))

    def idle_reason(self) -> Reason:
        """Why the clock does not run: the object is suspended by its spec, or was; or it waits for its start.

        A Pod that no node accepts has no start, and neither has a Workload that waits for quota.
        """
        rule = self.case.rule
        patches = (rule.deadline.stop.patch if rule.deadline and rule.deadline.stop else None, rule.create_suspended)
        is_suspended = any(patch is not None and is_merged(self.case.obj, patch) for patch in patches)
        return Reason.SUSPENDED if is_suspended or self.run.started_at is not None else Reason.NOT_STARTED

    def is_stop_undone(self) -> bool:
        """Return whether the object runs again after a stop, without a new start, or after the last allowed stop.

        Starts are whole seconds, and a deadline is at least one second: a run that was stopped started before the
        second of its stop. So a start within that second is a new one.
        """
        mark, started_at = self.mark, self.run.started_at
        if mark is None:
            return False
        return mark.stops >= STOPS_MAX or started_at is None or started_at < mark.at.replace(microsecond=0)

    def cannot_stop(self, facts: Facts) -> str:
        """Why the object cannot be stopped; empty if it can."""
        rule = self.case.rule
        if rule.deadline is None:
            return f"the kind rule of {rule.name} has no `deadline`, so it is unknown how to stop a {rule.kind}"
        if facts.active.deletes:
            return self._archive_problem()
        return find_stop_problem(self.case.obj, rule.deadline, facts.active.action)

    def _archive_problem(self) -> str:
        """Why the object cannot be deleted at its deadline: it may be archived when it finishes, and not before."""
        try:
            archiving = find_archiving(self.case)
        except NamespaceUnreadError:
            return ""  # then the namespace is read before the object is deleted
        except (InvalidArchiveError, UnreadableRuleError) as error:
            return str(error)
        return f"{archiving.source} has it archived when it finishes; set onDeadline: stop" if archiving else ""

    def is_recreated(self, facts: Facts) -> bool:
        """Return whether a policy or the namespace has the object deleted, and its controller would create it again."""
        rule = facts.policy_rule
        is_own = ON_DEADLINE in self.case.annotations and self._is_own(facts)
        if not facts.active.deletes or is_own or (rule is not None and rule.on_recreated == "delete"):
            return False
        return find_applier(self.case.obj) is not None

    def is_kept_by_owner(self, facts: Facts) -> bool:
        """Return whether an unfinished owner is the right object to stop: the object's own annotation did not ask."""
        rule = facts.policy_rule
        if not self.case.context.owner_unfinished or self.case.annotations.get("owner") == "ignore":
            return False
        return not self._is_own(facts) and not (rule is not None and rule.on_owned == "delete")

    @staticmethod
    def _is_own(facts: Facts) -> bool:
        """Return whether the object itself sets its deadline, and nothing made it shorter."""
        active = facts.active
        return active.deadline is not None and active.deadline.origin == "object" and not active.moved_by


def _evaluate_running(running: _Running) -> Evaluated:
    case = running.case
    try:
        facts = running.find_facts(*running.find_deadline())
    except NamespaceUnreadError:
        return Reason.NAMESPACE_UNREAD, running.find_facts(running.own, None)
    except UnreadableRuleError as error:
        unknown = running.find_facts(None, None)
        return Reason.INVALID_POLICY, replace(unknown, problem=str(error), unanswered=error.source)
    if running.is_stopped():
        return Reason.ALREADY_STOPPED, replace(facts, due_at=None)
    native = case.rule.deadline.native if case.rule.deadline else None
    controller = (native and native.honoured_by) or ""
    try:
        by_field = native_ttl(case.obj, native)
    except InvalidTtlError as error:
        active = replace(facts.active, deadline=None, enforced_by=controller)
        return Reason.ENFORCED_BY_CONTROLLER, replace(facts, due_at=None, problem=str(error), active=active)
    if native is not None and by_field is not None and not by_field.is_never:
        deadline = Deadline(by_field.source, by_field.after, "native")
        if native.defaulted and _is_earlier(facts.due_at, deadline.due_at(running.run.started_at)):
            return _reason_to_leave(running, facts)
        active = replace(facts.active, deadline=deadline, moved_by="", enforced_by=controller)
        return Reason.ENFORCED_BY_CONTROLLER, replace(facts, due_at=_due_at(deadline, running.run), active=active)
    return _reason_to_leave(running, facts)


def _is_earlier(due_at: datetime | None, other: datetime | None) -> bool:
    return due_at is not None and other is not None and due_at < other


def _due_at(deadline: Deadline, run: Run) -> datetime | None:
    return None if run.is_suspended else deadline.due_at(run.started_at)


def _reason_to_leave(running: _Running, facts: Facts) -> Evaluated:
    """The first reason to leave an object alone whose deadline, if it has one, is ours to enforce."""
    case, deadline = running.case, facts.active.deadline
    if deadline is None:
        may_default = case.namespace is None and case.rule.deadline is not None and not case.rule.opt_in
        return Reason.NAMESPACE_UNREAD if may_default else Reason.NO_DEADLINE, facts
    if deadline.after is None:
        return Reason.NEVER, facts
    if problem := running.cannot_stop(facts):
        return Reason.CANNOT_STOP, replace(facts, problem=problem)
    if running.run.is_suspended:
        return running.idle_reason(), replace(facts, due_at=None)
    if running.is_stop_undone():
        return Reason.STOP_UNDONE, facts
    if facts.due_at is None:
        return Reason.START_TIME_UNKNOWN, facts
    return _reason_beside(running, facts)


def _reason_beside(running: _Running, facts: Facts) -> Evaluated:
    """The first reason beside the object to leave it alone: who made it, its namespace, its owner, its server."""
    case = running.case
    if (dispatcher := find_dispatcher(case.obj)) is not None:
        return Reason.DISPATCHED, replace(facts, dispatcher=dispatcher)
    if running.is_recreated(facts):
        return Reason.RECREATED, facts
    if case.namespace is None:
        return Reason.NAMESPACE_UNREAD, facts
    if running.is_kept_by_owner(facts):
        return Reason.OWNER_UNFINISHED, replace(facts, owner=get_controller(case.obj))
    if case.context.aggregated and case.rule.may_be_aggregated:
        return Reason.AGGREGATED_API, facts
    return None, facts
