"""What `enforce` writes and reports about one object: the patch that stops it, a message, and a Kubernetes Event."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from shared.core.archive.gate import AWAITS_CHILDREN
from shared.core.deadlines.decide_stop import Stop, StopDecision
from shared.core.deadlines.mark import DEADLINE_EXCEEDED, STOPS_MAX, Mark, mark_annotations
from shared.core.decision.decide import Decision, Reason
from shared.core.decision.facts import Facts
from shared.core.kinds.deadline_rule import Action, StopRule
from shared.core.kinds.rule import KindRule
from shared.core.ttl.durations import format_duration
from shared.core.values.objects import ANNOTATION_DOMAIN, ObjectRef, format_instant, get_annotations, ref_of
from shared.messages import ObjectStopped
from shared.ports import EventReason
from shared.usecases.expire_reports import ObjectEvent

_REASONS = {
    Reason.INVALID_DEADLINE: EventReason.INVALID_DEADLINE,
    Reason.INVALID_POLICY: EventReason.INVALID_POLICY,
    Reason.CANNOT_STOP: EventReason.CANNOT_STOP,
    **dict.fromkeys(AWAITS_CHILDREN, EventReason.NOT_ARCHIVED),
}
"""Reasons of Events about a deadline that is not enforced."""


def patch_of(stop: StopRule, obj: Mapping[str, Any], *, at: datetime, before: Mark | None) -> dict[str, Any]:
    """The JSON merge patch that stops an object and marks it.

    Args:
        stop: How objects of the kind are stopped.
        obj: The object as it was read.
        at: The time of the stop, by the API server's clock.
        before: The mark of the last stop, if there was one.
    """
    metadata = stop.patch.get("metadata", {})
    mark = mark_annotations(obj, at, before, of_spec="spec" in stop.patch)
    annotations = {**metadata.get("annotations", {}), **mark}
    return {**stop.patch, "metadata": {**metadata, "annotations": annotations}}


def stop_of(ref: ObjectRef, decision: Stop, *, stopped_at: datetime, policy: str) -> ObjectStopped:
    """The message about an object whose stop was accepted."""
    active = decision.facts.active
    return ObjectStopped(
        ref=ref,
        started_at=active.started_at,
        deadline_from=active.deadline.source if active.deadline else "",
        due_at=decision.since,
        stopped_at=stopped_at,
        lateness_seconds=(stopped_at - decision.since).total_seconds(),
        stops=active.mark.stops + 1 if active.mark else 1,
        policy=policy,
    )


def find_stop_event(rule: KindRule, obj: Mapping[str, Any], decision: Decision | StopDecision) -> ObjectEvent | None:
    """The Event about a deadline that cannot be read or enforced, or a stop that was undone; None for the rest.

    A policy or a namespace may set a deadline for many kinds, so a kind that cannot be stopped is only reported if the
    object's own annotation sets the deadline.
    """
    facts, ref = decision.facts, ref_of(obj)
    deadline, mark = facts.active.deadline, facts.active.mark
    is_own = deadline is None or deadline.origin == "object"
    if decision.reason is Reason.STOP_UNDONE and mark:
        return ObjectEvent(
            ref, EventReason.STOP_UNDONE, f"not stopped again: {_describe_undone(rule, obj, mark, facts.active.action)}"
        )
    if decision.reason in _REASONS and facts.problem and is_own:
        left = "not stopped" if facts.problem_of is None else "nothing in it is stopped"
        return ObjectEvent(facts.problem_of or ref, _REASONS[decision.reason], f"{left}: {facts.problem}")
    return None


def is_reported_at_once(decision: Decision | StopDecision, obj: Mapping[str, Any], rule: KindRule) -> bool:
    """Return whether an Event on the object reports the decision at once; the others are left to the sweep.

    These are a problem of its namespace, and of an object that waits for its start: a new one is soon in another state.
    """
    is_about_object = decision.reason in (Reason.INVALID_DEADLINE, Reason.CANNOT_STOP, Reason.STOP_UNDONE)
    if decision.reason is Reason.CANNOT_STOP and decision.facts.active.is_pending:
        return False
    return is_about_object and find_stop_event(rule, obj, decision) is not None


def _describe_undone(rule: KindRule, obj: Mapping[str, Any], mark: Mark, action: Action) -> str:
    """What happened to a stop, and what to do."""
    at = format_instant(mark.at.replace(microsecond=0))
    if DEADLINE_EXCEEDED not in get_annotations(obj):
        undone = f"it was stopped {mark.stops} times, the last time at {at}, and its mark was removed each time"
        return (
            f"{undone}. Find the client that writes it without the annotation {ANNOTATION_DOMAIN}/{DEADLINE_EXCEEDED}"
        )
    if mark.stops < STOPS_MAX:
        undone = f"it was stopped at {at}, and runs on without a new start"
        fix = f"Find the controller or client that undoes the patch {describe_patch(rule, action)}"
    else:
        undone = f"it was stopped {mark.stops} times, the last time at {at}, and was resumed each time"
        fix = "Find the controller or client that resumes it"
    return f"{undone}. {fix}. To let it be stopped again, remove its annotation {ANNOTATION_DOMAIN}/{DEADLINE_EXCEEDED}"


def describe_stop(rule: KindRule, facts: Facts) -> str:
    """`ran for longer than 1h, its deadline by policy rule ci; stopped by the patch {"spec": {"shutdown": "Stop"}}`."""
    return f"{describe_excess(facts)}; stopped by the patch {describe_patch(rule, facts.active.action)}"


def describe_excess(facts: Facts) -> str:
    """`ran for longer than 1h, its deadline by policy rule ci`, or `waited for its start for 1h, its pending …`."""
    active = facts.active
    deadline = active.deadline
    if deadline is None or deadline.after is None:
        return "ran for longer than its deadline"
    if active.is_pending:
        return f"waited for its start for {format_duration(deadline.after)}, its pending deadline by {deadline.source}"
    set_by = f"{format_duration(deadline.after)}, its deadline by {deadline.source}"
    if not active.moved_by or facts.due_at is None or active.started_at is None:
        return f"ran for longer than {set_by}"
    shortened = format_duration(facts.due_at - active.started_at)
    return f"ran for longer than {shortened}; {active.moved_by} shortens {set_by}"


def describe_patch(rule: KindRule, action: Action) -> str:
    """`{"spec": {"suspend": true}}`: the patch by which objects of a kind are stopped.

    Args:
        rule: The rule of the kind.
        action: What is done at the deadline.
    """
    stop = rule.deadline.find_stop(action) if rule.deadline else None
    return json.dumps(stop.patch) if stop else "nothing"
