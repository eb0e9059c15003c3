"""Decide whether an unused Secret or ConfigMap is kept, marked, or deleted: one pure function.

`decide_unused` has the form of `shared.core.decision.decide.decide`: it is total, deterministic and monotone in `now`.
One more reference, and one carrier that cannot be listed, never makes it return DeleteUnused. If a fact is unknown, the
object is kept, and its mark stays as it is.

Unused means: was used, and is not any more. So the use of an object is recorded when a complete pass first sees it.
An object is marked when a complete pass finds it unused, and there is evidence that it was used: the record, or a newer
generation of it that is or was used. It is deleted when it has been unused for the TTL of the policy rule, and when two
complete and consistent passes, which started after that, have confirmed it.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from shared.core.decision.decide import NOT_AHEAD
from shared.core.decision.facts import is_of_kind
from shared.core.decision.namespaces import Namespace
from shared.core.kinds.rule import KindRule
from shared.core.policy.matching import NamespaceUnreadError, Subject
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.policy.policy_rule import PolicyRule
from shared.core.policy.ruling import UnreadableRuleError, find_unused_rule
from shared.core.policy.usage import is_opted_in
from shared.core.references.reference import Reference
from shared.core.usage.mark import (
    UnattestedError,
    UnknownChangeError,
    check_readable,
    hash_foreign_writes,
    is_changed_since_mark,
    is_marked,
    read_unused_mark,
    read_used_at,
)
from shared.core.usage.never_collected import find_never_collected
from shared.core.usage.passes import Observation, is_confirmed
from shared.core.usage.unused_reasons import UnusedReason as Reason
from shared.core.values.objects import ObjectRef, get_annotations, get_in, get_text, ref_of
from shared.core.values.timing import add


@dataclass(frozen=True, slots=True)
class UnusedContext:
    """The facts that the decision needs beside the object.

    Attributes:
        policy: The policy in force.
        namespace: The object's Namespace; None if it was not read.
        observations: What the passes observed about the object, the oldest first. A caller that deletes must pass only
            passes of which the last has just ended.
    """

    policy: Policy = NO_POLICY
    namespace: Namespace | None = None
    observations: tuple[Observation, ...] = ()


@dataclass(frozen=True, slots=True)
class UnusedFacts:
    """The facts about one object that explain a decision.

    Attributes:
        ref: Its identity; a DELETE and a patch carry its uid.
        resource_version: The version of the decision; a DELETE and a patch carry it.
        marked_at: Since when the object is known to be unused; None if it is not marked, or if its mark does not count.
        due_at: When its TTL is over; None if that is unknown.
        rule: The policy rule that has it deleted; None if no rule does.
        references: The references that the last pass observed, those that cannot be read included.
        used_at: When a pass first saw the object used; None if that is not recorded.
        used_newer: The name of a newer generation that is or was used; empty if there is none.
        problem: What is unknown, and what was expected; empty if everything is known.
    """

    ref: ObjectRef
    resource_version: str = ""
    marked_at: datetime | None = None
    due_at: datetime | None = None
    rule: PolicyRule | None = None
    references: tuple[Reference, ...] = ()
    used_at: datetime | None = None
    used_newer: str = ""
    problem: str = ""

    @property
    def has_evidence(self) -> bool:
        """Return whether something shows that the object was used."""
        return self.used_at is not None or bool(self.used_newer)

    @property
    def may_be_unused(self) -> bool:
        """Return whether the object may be deleted as unused: by evidence, or because its rule asks for none."""
        asks_none = self.rule is not None and self.rule.unused is not None and self.rule.unused.never_used
        return asks_none or self.has_evidence


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep the object, and write nothing."""

    reason: Reason
    facts: UnusedFacts


@dataclass(frozen=True, slots=True)
class RemoveMark:
    """Keep the object, and remove its mark: it is used, or something else keeps it."""

    reason: Reason
    facts: UnusedFacts


@dataclass(frozen=True, slots=True)
class RecordUse:
    """Keep the object, record that it is used, and remove its mark if it has one.

    Attributes:
        at: The API server's time of the decision, as in `SetMark`.
        reason: Why.
        facts: The facts about the object.
    """

    at: datetime
    reason: Reason
    facts: UnusedFacts


@dataclass(frozen=True, slots=True)
class SetMark:
    """Mark the object as unused since `at`.

    Attributes:
        at: The API server's time, even if its clock is too far ahead to be trusted: it attests the mark by this clock.
        reason: Why.
        facts: The facts about the object.
        hash_of_writes: The hash by which a later change is found.
    """

    at: datetime
    reason: Reason
    facts: UnusedFacts
    hash_of_writes: str


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Keep the object for now: its TTL is over at `until`."""

    until: datetime
    reason: Reason
    facts: UnusedFacts


@dataclass(frozen=True, slots=True)
class DeleteUnused:
    """Delete the object, with its uid and its resourceVersion as preconditions: its TTL was over at `since`."""

    since: datetime
    reason: Reason
    facts: UnusedFacts


UnusedDecision = Keep | RemoveMark | RecordUse | SetMark | WaitUntil | DeleteUnused

NO_USE_KNOWN = UnusedContext()

_RESETS = frozenset(
    {
        Reason.USED,
        Reason.NEVER_USED,
        Reason.OWNED,
        Reason.FINALIZED,
        Reason.IMMUTABLE,
        Reason.HELD,
        Reason.EXEMPT,
        Reason.NOT_ENABLED,
        Reason.NOT_OPTED_IN,
    }
)
"""The reasons that remove the mark, so that the TTL starts again after them. The others leave the mark as it is.

USE_UNKNOWN does so as well, unless a reference names the object.
"""


def decide_unused(
    obj: Any,
    kind: KindRule,
    now: datetime,
    context: UnusedContext = NO_USE_KNOWN,
    *,
    ahead: timedelta = NOT_AHEAD,
) -> UnusedDecision:
    """Decide what happens to one Secret or ConfigMap.

    Args:
        obj: Its apiVersion, kind and metadata, and the type of a Secret; any JSON is accepted, and no data is read.
        kind: `SECRETS` or `CONFIG_MAPS` of `shared.core.policy.usage`.
        now: The current instant, aware; the API server's time.
        context: The facts beside the object.
        ahead: By how much the API server's clock is ahead of `now`, if it is too far ahead to be trusted.

    Returns:
        Keep, RemoveMark, RecordUse, SetMark, WaitUntil or DeleteUnused, each with its reason and facts. An object that
        is due exactly now is deleted.
    """
    facts = UnusedFacts(
        ref_of(obj),
        get_text(obj, "metadata.resourceVersion"),
        references=context.observations[-1].references if context.observations else (),
        used_at=read_used_at(obj),
        used_newer=next((one.used_newer for one in context.observations if one.used_newer), ""),
    )
    if not is_of_kind(obj, kind) or not (facts.ref.uid and facts.ref.name and facts.resource_version):
        return Keep(Reason.UNKNOWN_SHAPE, replace(facts, problem=f"expected a {kind.kind} with a uid and a version"))
    try:
        reason, facts = _find_reason_to_keep(obj, kind, context, facts)
        if reason is Reason.USED and _is_unrecorded(facts, context):
            return RecordUse(now + ahead, reason, facts)
        if reason is not None:
            resets = reason in _RESETS or (reason is Reason.USE_UNKNOWN and _is_named(context))
            return (RemoveMark if resets and is_marked(obj) else Keep)(reason, facts)
        return _decide_by_mark(obj, now, context, facts, ahead)
    except UnattestedError as error:
        return Keep(Reason.UNATTESTED, replace(facts, problem=str(error)))
    except UnknownChangeError as error:
        return Keep(Reason.UNKNOWN_SHAPE, replace(facts, problem=str(error)))


def _find_reason_to_keep(
    obj: Any, kind: KindRule, context: UnusedContext, facts: UnusedFacts
) -> tuple[Reason | None, UnusedFacts]:
    """The first reason to keep the object that does not depend on its mark."""
    if get_in(obj, "metadata.deletionTimestamp") is not None:
        return Reason.TERMINATING, facts
    if (never := find_never_collected(obj)) is not None:
        return never, facts
    if "hold" in get_annotations(obj):
        return Reason.HELD, facts
    reason, facts = _find_rule(obj, kind, context, facts)
    if reason is None:
        reason, facts = _find_use(context, facts)
    if reason is Reason.NEVER_USED:
        check_readable(obj)
    return reason, facts


def _find_rule(
    obj: Any, kind: KindRule, context: UnusedContext, facts: UnusedFacts
) -> tuple[Reason | None, UnusedFacts]:
    """The reason for which no policy rule has the object deleted."""
    namespace = context.namespace
    if namespace is None or namespace.ref.name != facts.ref.namespace:
        return Reason.NAMESPACE_UNREAD, facts
    if namespace.problem:
        return Reason.INVALID_POLICY, replace(facts, problem=namespace.problem)
    if namespace.is_exempt:
        return Reason.EXEMPT, facts
    try:
        rule = find_unused_rule(Subject(obj, None, namespace, facts.ref.namespace), context.policy.candidates(kind))
    except (NamespaceUnreadError, UnreadableRuleError) as error:
        return Reason.INVALID_POLICY, replace(facts, problem=str(error))
    if rule is None:
        return Reason.NOT_ENABLED, facts
    facts = replace(facts, rule=rule)
    return (None if is_opted_in(rule.match, namespace) else Reason.NOT_OPTED_IN), facts


def _find_use(context: UnusedContext, facts: UnusedFacts) -> tuple[Reason | None, UnusedFacts]:
    """The reason to keep an object that the last pass does not prove to be unused."""
    if not context.observations:
        return Reason.USE_UNKNOWN, replace(facts, problem="no pass was made")
    last = context.observations[-1]
    if last.is_used:
        return Reason.USED, facts
    if problem := last.find_problem():
        return Reason.USE_UNKNOWN, replace(facts, problem=problem)
    return (None if facts.may_be_unused else Reason.NEVER_USED), facts


def _is_named(context: UnusedContext) -> bool:
    """Return whether a reference names the object, though it may be about something else.

    A job that runs each night may use it: without a new TTL, the old mark would count as soon as the job is gone.
    """
    return bool(context.observations) and context.observations[-1].is_named


def _is_unrecorded(facts: UnusedFacts, context: UnusedContext) -> bool:
    """Return whether the last pass is the first one that proves the use of the object, and may be recorded."""
    writes_nothing = facts.rule is not None and facts.rule.audit
    return facts.used_at is None and not writes_nothing and context.observations[-1].proves_use


def _decide_by_mark(
    obj: Any, now: datetime, context: UnusedContext, facts: UnusedFacts, ahead: timedelta
) -> UnusedDecision:
    """The decision about an object that the last pass proves to be unused."""
    marked_at, unused = read_unused_mark(obj), facts.rule.unused if facts.rule else None
    is_changed = marked_at is not None and is_changed_since_mark(obj)
    used_at = [one.of.completed_at for one in context.observations if one.is_used]
    if marked_at is None or unused is None or any(marked_at <= at for at in used_at):
        return _set_mark(obj, now + ahead, Reason.NEWLY_UNUSED, facts)
    if is_changed:
        return _set_mark(obj, now + ahead, Reason.CHANGED, facts)
    due_at = add(marked_at, unused.ttl)
    facts = replace(facts, marked_at=marked_at, due_at=due_at)
    if now < due_at:
        return WaitUntil(due_at, Reason.SERVER_CLOCK_AHEAD if due_at - now <= ahead else Reason.NOT_DUE, facts)
    if facts.rule is not None and facts.rule.audits_unused:
        return Keep(Reason.AUDIT_ONLY, facts)
    is_due = is_confirmed(context.observations, due_at)
    return DeleteUnused(due_at, Reason.UNUSED, facts) if is_due else Keep(Reason.UNCONFIRMED, facts)


def _set_mark(obj: Any, at: datetime, reason: Reason, facts: UnusedFacts) -> SetMark | Keep:
    if facts.rule is not None and facts.rule.audit:
        return Keep(Reason.AUDIT_ONLY, facts)
    return SetMark(at, reason, facts, hash_foreign_writes(obj, at))
