"""Decide whether an unfinished object is left alone, waits for its deadline, or is stopped: one pure function.

`decide_stop` has the form of `shared.core.decision.decide.decide`, and the same properties: it is total, deterministic
and monotone in `now`. If a fact was not read, the object is left alone, and the reason names the fact.
`evaluate_stop` finds out, without a clock, when the object reaches its deadline, or why it is left alone.

The clock of an active deadline starts with the object, or with its last resume. It does not run while the object is
suspended. The clock of a pending deadline runs only until the first start: until then the pending deadline applies, if
one is set, and after it the active one.

A hold or an exempt namespace takes precedence over every deadline. The first source that sets a deadline takes
precedence: the object's annotation, the policy rules in order, the default of its namespace. While the kind's own
deadline field is set, only the kind's controller acts; if a webhook sets that field by default, the earlier deadline
applies. A Pod without a node has no such controller: its pending deadline applies beside the field. The namespace's
maximum shortens every active deadline of these sources, except `never`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from shared.core.archive.gate import InvalidArchiveError, find_archiving
from shared.core.deadlines.deadline import (
    DEADLINE_EXCEEDED,
    DEADLINES,
    ON_DEADLINE,
    STOPS_MAX,
    Deadline,
    InvalidDeadlineError,
    InvalidMarkError,
    Mark,
    Stage,
    annotated_deadlines,
    is_merged,
    read_mark,
)
from shared.core.decision.decide import NOT_AHEAD, Ignore, Wait, find_audit, find_kept, find_wait
from shared.core.decision.evaluate import Evaluated
from shared.core.decision.facts import NOTHING_KNOWN, Case, Context, DeadlineFacts, Facts, Reason, is_of_kind
from shared.core.decision.finish import Finish, Run, Waiting, find_stop_problem, finish_of, run_of, waiting_of
from shared.core.decision.makers import find_applier, find_dispatcher
from shared.core.kinds.predicates import UnknownShapeError
from shared.core.kinds.rule import KindRule, Outcome
from shared.core.policy.matching import NamespaceUnreadError, Subject
from shared.core.policy.policy_rule import PolicyRule
from shared.core.policy.ruling import UnreadableRuleError, find_deadline_rule
from shared.core.ttl.ttl import InvalidTtlError, native_ttl
from shared.core.values.objects import ANNOTATION_DOMAIN, get_annotations, get_controller, get_in, get_text

_MAXIMUM = "the namespace's max-active-deadline"
_NOT_STARTED = Run(None)


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
    """Decide whether one object is stopped; the arguments are those of `shared.core.decision.decide.decide`.

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
        mark, own = read_mark(obj), _own_deadlines(case)
    except (InvalidMarkError, InvalidDeadlineError) as error:
        is_over = Reason.FINISHED if case.finish.finished else None
        return reason or is_over or Reason.INVALID_DEADLINE, replace(nothing, problem=str(error))
    if case.finish.finished:
        is_stopped = mark is not None and case.finish.outcome is not Outcome.SUCCEEDED
        facts = replace(nothing, active=DeadlineFacts(own.get(Stage.ACTIVE), mark=mark))
        return reason or (Reason.ALREADY_STOPPED if is_stopped else Reason.FINISHED), facts
    if reason is Reason.INVALID_POLICY and case.namespace is not None:
        return reason, replace(nothing, problem=case.namespace.problem, problem_of=case.namespace.ref)
    run = run_of(obj, rule.deadline) if rule.deadline else _NOT_STARTED
    if run is None:
        return Reason.UNKNOWN_SHAPE, nothing
    try:
        running = _Running(case, run, mark, own, _find_waiting(case, own))
    except UnknownShapeError as error:
        return reason or Reason.UNKNOWN_SHAPE, replace(nothing, problem=str(error))
    reason_while_running, facts = _evaluate_running(running)
    return reason or reason_while_running, facts


def _own_deadlines(case: Case) -> dict[Stage, Deadline]:
    """The deadlines that the object's own annotations set.

    Raises:
        InvalidDeadlineError: An annotation has a malformed value, or the kind has no such deadline.
    """
    own = annotated_deadlines(case.annotations)
    if Stage.PENDING in own and (case.rule.deadline is None or case.rule.deadline.pending is None):
        expected = "expected a kind whose objects show that they have never started, such as Pod"
        raise InvalidDeadlineError(
            f"annotation {ANNOTATION_DOMAIN}/{DEADLINES[Stage.PENDING]}: {expected}, got a {case.rule.kind}"
        )
    return own


def _find_waiting(case: Case, own: Mapping[Stage, Deadline]) -> Waiting | None:
    """The wait of the object for its first start; None if it has started, or if no source may set a pending deadline.

    Raises:
        UnknownShapeError: It is unknown whether the object has started.
    """
    rule, namespace = case.rule, case.namespace
    if rule.deadline is None or rule.deadline.pending is None:
        return None
    may_default = not rule.opt_in and (namespace is None or Stage.PENDING in namespace.default_deadlines)
    is_by_policy = any(Stage.PENDING in one.deadlines for one in case.context.policy.candidates(rule))
    return waiting_of(case.obj, rule.deadline) if Stage.PENDING in own or may_default or is_by_policy else None


@dataclass(slots=True)
class _Running:
    """An unfinished object, its run, its last stop, the deadlines of its own annotations, and its wait for a start."""

    case: Case
    run: Run
    mark: Mark | None
    own: Mapping[Stage, Deadline]
    waiting: Waiting | None

    def find_facts(self) -> Facts:
        """The facts about the deadline that applies: while the object waits for its start, a pending one if it is set.

        Raises: as `find_deadline`.
        """
        if self.waiting is not None:
            deadline, rule = self.find_deadline(Stage.PENDING)
            if deadline is not None:
                return self.facts_of(deadline, rule, Stage.PENDING)
        return self.facts_of(*self.find_deadline(Stage.ACTIVE))

    def find_deadline(self, stage: Stage) -> tuple[Deadline | None, PolicyRule | None]:
        """The deadline of a stage that takes precedence, and the policy rule that sets it, if one does.

        Raises:
            NamespaceUnreadError: A policy rule that may matter needs the namespace, which was not read.
            UnreadableRuleError: A policy rule that may matter has no result for the object.
        """
        case, namespace = self.case, self.case.namespace
        if stage in self.own:
            return self.own[stage], None
        candidates = case.context.policy.candidates(case.rule)
        subject = Subject(case.obj, None, namespace, get_text(case.obj, "metadata.namespace"))
        rule = find_deadline_rule(subject, candidates, stage) if candidates else None
        if rule is not None:
            return rule.deadlines[stage], rule
        may_default = namespace is not None and not case.rule.opt_in
        return (namespace.default_deadlines.get(stage) if namespace is not None and may_default else None), None

    def facts_of(self, deadline: Deadline | None, rule: PolicyRule | None, stage: Stage = Stage.ACTIVE) -> Facts:
        """The facts about a deadline."""
        since, longest = self.run.started_at, self.case.namespace.max_deadline if self.case.namespace else None
        if stage is Stage.PENDING:
            since, longest = self.waiting.since if self.waiting else None, None
        at, moved_by = deadline.due_at(since) if deadline else None, ""
        if deadline and at and longest is not None and deadline.after is not None and longest < deadline.after:
            at, moved_by = replace(deadline, after=longest).due_at(since), _MAXIMUM
        action = self.case.annotations.get(ON_DEADLINE) or (rule.on_deadline if rule else None) or "stop"
        active = DeadlineFacts(deadline, since, moved_by, mark=self.mark, action=action, stage=stage)
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
        if facts.active.is_pending and rule.deadline.sets_native and self.run.is_suspended:
            return f"a {rule.kind} in this state is not ended by its deadline field; expected on-deadline: delete"
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
        """Return whether an owner is the right object to stop, if it is unfinished or unread: no annotation asked."""
        rule = facts.policy_rule
        if self.case.context.owner_unfinished is False or self.case.annotations.get("owner") == "ignore":
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
        facts = running.find_facts()
    except NamespaceUnreadError:
        return _await_namespace(running, running.facts_of(running.own.get(Stage.ACTIVE), None))
    except UnreadableRuleError as error:
        unknown = running.facts_of(None, None)
        return Reason.INVALID_POLICY, replace(unknown, problem=str(error), unanswered=error.source)
    if running.is_stopped():
        return Reason.ALREADY_STOPPED, replace(facts, due_at=None)
    if facts.active.is_pending and running.run.is_suspended:
        return _reason_to_leave(running, facts)  # the deadline field of the kind counts from a later start
    if running.waiting is not None and not facts.active.is_pending and case.namespace is None and not case.rule.opt_in:
        return _await_namespace(running, facts)  # it may set a default
    return _evaluate_beside_field(running, facts)


def _evaluate_beside_field(running: _Running, facts: Facts) -> Evaluated:
    """Leave an object alone while the deadline field of its kind is set: its controller acts on it."""
    case = running.case
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
        active = running.facts_of(deadline, None).active
        active = replace(active, moved_by="", enforced_by=controller, action=facts.active.action)
        return Reason.ENFORCED_BY_CONTROLLER, replace(facts, due_at=_due_at(deadline, running.run), active=active)
    return _reason_to_leave(running, facts)


def _await_namespace(running: _Running, facts: Facts) -> Evaluated:
    """Leave an object alone until its namespace is read; the facts say since when it waits for its start."""
    waiting = running.waiting
    if waiting is not None and facts.active.counts_from is None:
        facts = replace(facts, active=replace(facts.active, counts_from=waiting.since, stage=Stage.PENDING))
    return Reason.NAMESPACE_UNREAD, facts


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
    is_pending = facts.active.is_pending
    if is_pending and running.waiting is not None and running.waiting.is_on_purpose:
        return Reason.SUSPENDED, replace(facts, due_at=None)
    if problem := running.cannot_stop(facts):
        return Reason.CANNOT_STOP, replace(facts, problem=problem)
    if running.run.is_suspended and not is_pending:
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
        return case.owner_reason(), replace(facts, owner=get_controller(case.obj))
    return case.api_reason(), facts
