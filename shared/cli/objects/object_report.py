"""The decisions about one object, its TTL and its deadline, as JSON, as lines of text and as one sentence."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from shared.cli.objects.archive_report import archive_as_json
from shared.cli.objects.related import RelatedFacts
from shared.cli.output.printing import describe_instant, describe_time, instant_as_json
from shared.core.deadlines.decide_stop import Stop, StopDecision
from shared.core.decision.decide import Decision, Expire, Ignore, Reason, Wait, find_fate
from shared.core.decision.facts import DeadlineFacts, Facts
from shared.core.kinds.rule import KindRule
from shared.core.kinds.ttl_and_deadline import Action
from shared.core.values.objects import ObjectRef, format_instant
from shared.core.values.timing import format_duration

if TYPE_CHECKING:  # what is in force takes 100 ms to load, and `explain -f` needs none of it
    from shared.cli.deleters.in_force import PolicyInForce
    from shared.cli.deleters.obstacles import Obstacle
    from shared.installation.guard_status import GuardState


@dataclass(frozen=True, slots=True)
class ExplainContext:
    """What `explain` found on the cluster of an object.

    Attributes:
        chosen: The policy that was applied to the object.
        obstacles: What prevents its deletion if it is due, now or later.
        flags: The flags that make kubectl use this cluster.
        guard: The state of the kind's delete guard; None if it could not be read.
    """

    chosen: "PolicyInForce"
    obstacles: Sequence["Obstacle"] = ()
    flags: tuple[str, ...] = ()
    guard: "GuardState | None" = None


WORDS = {
    Reason.EXPIRED: "its TTL has expired",
    Reason.OVER_COUNT: "its group has more finished objects than a policy rule allows, and it is one of the oldest",
    Reason.OVER_QUOTA: (
        "a quota is used above the limit of a policy rule, and it is one of the oldest objects that may be deleted"
    ),
    Reason.AUDIT_ONLY: "it is due, and the policy rule that sets this has audit: true",
    Reason.NOT_DUE: "it has finished, and its TTL has not expired",
    Reason.SERVER_CLOCK_AHEAD: (
        "it is due only by the Date of the API server, which is more than 60 s ahead of this machine's clock"
    ),
    Reason.TERMINATING: "it is already being deleted",
    Reason.HELD: "annotation ttlafterfinished.dev/hold is set",
    Reason.INVALID_TTL: "the value that sets its TTL is invalid",
    Reason.UNFINISHED: "it has not finished, and its TTL starts when it finishes",
    Reason.NEVER_FINISHES: "objects of its kind never finish",
    Reason.LEFT_TO_CONTROLLER: "the kind's own controller acts on its TTL field, and does more than delete",
    Reason.NO_TTL: "no source sets a TTL",
    Reason.NEVER: "its TTL is never",
    Reason.FINISH_TIME_UNKNOWN: "it has finished, but its finish time is unknown",
    Reason.OWNER_UNFINISHED: "its controller owner counts as unfinished",
    Reason.OWNER_UNKNOWN: "no kind rule says when its controller owner finishes",
    Reason.OWNER_UNREAD: "its controller owner could not be read",
    Reason.DISPATCHED: "another cluster dispatched it here, and must read its result first",
    Reason.RECREATED: "its TTL comes from a policy or its namespace, and a controller would create it again",
    Reason.AGGREGATED_API: "an aggregated API server serves its kind, and may ignore preconditions",
    Reason.API_UNREAD: "whether an aggregated API server serves its kind could not be read",
    Reason.EXEMPT: "annotation ttlafterfinished.dev/exempt is set on its namespace",
    Reason.INVALID_POLICY: "its namespace or the policy has an invalid setting",
    Reason.NAMESPACE_UNREAD: "its namespace could not be read, and may be exempt",
    Reason.INHERITED_UNREAD: "it may inherit its TTL from another object, which could not be read",
    Reason.KEPT_LAST: "it is one of the newest objects of its group, which a policy rule keeps",
    Reason.RANK_UNREAD: "a policy rule keeps the newest objects of its group, which could not be counted",
    Reason.CHILD_HELD: "its deletion would take along a child that is held",
    Reason.CHILD_NOT_ARCHIVED: "its deletion would take along a child that has to be archived, and is not",
    Reason.CHILDREN_UNREAD: "its deletion would take along its children, which could not all be checked",
    Reason.NOT_ARCHIVED: "an archive has to acknowledge this version of it first, and has not",
    Reason.ARCHIVE_UNREAD: "an archive has to acknowledge this version of it first, and could not be read",
    Reason.ARCHIVED: "an archive has acknowledged this version of it",
    Reason.NO_ARCHIVE: "no source has it archived",
    Reason.INVALID_ARCHIVE: "the annotation about its archive is invalid",
    Reason.UNKNOWN_SHAPE: "its kind or the shape of its status is unknown",
}
"""Each reason of a decision in one sentence."""


def as_json(
    ref: ObjectRef,
    decision: Decision,
    stop: StopDecision | None,
    related: RelatedFacts | None = None,
    *,
    context: ExplainContext | None = None,
) -> dict[str, Any]:
    """Return the documented JSON of one object; instants are RFC 3339 in UTC, unknown values are null.

    Args:
        ref: The object.
        decision: The decision about its TTL.
        stop: The decision about its active deadline; None if its kind has no rule.
        related: Its owner, cleaners and finalizers, if they were read.
        context: What was found on its cluster, if it is on one.
    """
    facts = decision.facts
    return {
        "apiVersion": ref.api_version,
        "kind": ref.kind,
        "namespace": ref.namespace or None,
        "name": ref.name,
        "finished": facts.finish.finished,
        "finishedAt": instant_as_json(facts.finish.at),
        "outcome": facts.finish.outcome,
        "ttlSeconds": _seconds(facts),
        "ttlFrom": facts.ttl.source if facts.ttl else None,
        "dueAt": instant_as_json(facts.due_at),
        "movedBy": facts.moved_by or None,
        "policyRule": facts.policy_rule.name if facts.policy_rule else None,
        "audit": bool(facts.audited_by),
        "keepLast": _keep_last_as_json(facts),
        "maxCount": _max_count_as_json(facts),
        "quota": _quota_as_json(facts),
        "archive": archive_as_json(facts),
        "decision": type(decision).__name__.lower(),
        "reason": str(decision.reason),
        "deadline": deadline_as_json(stop),
        **({"problem": facts.problem} if facts.problem else {}),
        **(_related_as_json(facts, related) if related else {}),
        **(_context_as_json(context) if context else {}),
    }


def _related_as_json(facts: Facts, related: RelatedFacts) -> dict[str, Any]:
    owner = related.owner
    return {
        "unfinished": related.unfinished.as_json() if related.unfinished else None,
        "hold": related.hold or None,
        "savedTtl": related.saved or None,
        "overriddenBy": facts.overridden or None,
        "unknownAnnotations": list(related.unknown_annotations),
        "neverFinishes": related.rule.never_finishes,
        "optIn": related.rule.opt_in,
        "deletedWith": [one.as_json() for one in related.deleting_owners],
        "owner": {"kind": owner.ref.kind, "name": owner.ref.name, "state": owner.state} if owner else None,
        "cleaners": [{"name": name, "does": does} for name, does in related.cleaners],
        "finalizers": [{"name": name, "does": does} for name, does in related.finalizers],
    }


def _context_as_json(context: ExplainContext) -> dict[str, Any]:
    chosen = context.chosen
    policy = {
        "name": chosen.name or None,
        "known": chosen.is_known,
        "why": chosen.why or None,
        "differs": chosen.differs or None,
    }
    return {"policy": policy, "obstacles": [one.as_json() for one in context.obstacles], "guard": context.guard}


def describe_fate(decision: Decision, now: datetime) -> str:
    """Say the decision in one sentence: `due in 5m, at …, by spec.ttlSecondsAfterFinished`."""
    source = f", by {decision.facts.ttl.source}" if decision.facts.ttl else ""
    match decision:
        case Ignore(reason):
            return f"kept ({reason}): {WORDS[reason]}"
        case Wait(until):
            return f"due {describe_time(until, now)}, at {format_instant(until)}{source}"
        case Expire(since):
            return f"due now: {describe_reason(decision, now)}, at {format_instant(since)}{source}"


def describe_reason(decision: Decision, now: datetime) -> str:
    """Say why, in one sentence; an object that is due `expired 3m ago`."""
    if isinstance(decision, Expire) and decision.since < now and decision.reason is Reason.EXPIRED:
        return f"expired {describe_time(decision.since, now)}"
    return WORDS[decision.reason]


def _keep_last_as_json(facts: Facts) -> dict[str, Any] | None:
    if facts.keep_last_rule is None:
        return None
    rule, outcome = facts.keep_last_rule, facts.finish.outcome
    counted_as, kept = rule.counted_as(outcome), rule.kept_of(outcome)
    return {"rule": rule.name, "keeps": kept, "outcome": counted_as, "newer": facts.newer}


def _max_count_as_json(facts: Facts) -> dict[str, Any] | None:
    rule, counted = facts.count_rule, facts.counted
    if rule is None:
        return None
    position = counted.total - counted.newer if counted else None
    return {"rule": rule.name, "limit": rule.max_count, "position": position, "of": counted.total if counted else None}


def _quota_as_json(facts: Facts) -> dict[str, Any] | None:
    rule, pressure = facts.quota_rule, facts.pressure
    if rule is None:
        return None
    percent = rule.when_quota_above or 0
    quotas = [
        {"name": one.name, "resource": one.resource, "used": one.used, "hard": one.hard}
        for one in (pressure.quotas if pressure else ())
    ]
    excess = pressure.excess(percent) if pressure else None
    return {
        "rule": rule.name,
        "abovePercent": percent,
        "quotas": quotas,
        "excess": excess,
        "older": pressure and pressure.older,
    }


def _seconds(facts: Facts) -> int | None:
    if facts.ttl is None or facts.ttl.after is None:
        return None
    return int(facts.ttl.after.total_seconds())


def is_ahead(decision: Decision) -> bool:
    """Return whether the object will be deleted, now or later, if nothing changes."""
    return not isinstance(find_fate(decision), Ignore)


STOP_WORDS = {
    Reason.TERMINATING: "it is already being deleted",
    Reason.HELD: "annotation ttlafterfinished.dev/hold is set, which also keeps it from being stopped",
    Reason.NEVER_FINISHES: "objects of its kind never finish",
    Reason.EXEMPT: "annotation ttlafterfinished.dev/exempt is set on its namespace",
    Reason.INVALID_POLICY: "its namespace or the policy has an invalid setting",
    Reason.INVALID_DEADLINE: "the value that sets its deadline is invalid",
    Reason.NEVER: "its deadline is never",
    Reason.FINISHED: "it has finished",
    Reason.SUSPENDED: "it is suspended or waits on purpose, and the clock of its deadline starts when that ends",
    Reason.NOT_STARTED: "it has not started, and the clock of its deadline starts when it does",
    Reason.STOP_UNDONE: "it was stopped at its deadline and runs again; it is not stopped again",
    Reason.CANNOT_STOP: "it cannot be stopped",
    Reason.ENFORCED_BY_CONTROLLER: "the deadline field of its kind is set, and the controller of the kind enforces it",
    Reason.START_TIME_UNKNOWN: "its start time is unknown",
    Reason.NAMESPACE_UNREAD: "its namespace could not be read, and may be exempt",
    Reason.OWNER_UNFINISHED: "its controller owner counts as unfinished",
    Reason.OWNER_UNKNOWN: "no kind rule says when its controller owner finishes",
    Reason.OWNER_UNREAD: "its controller owner could not be read",
    Reason.DISPATCHED: "another cluster dispatched it here",
    Reason.CHILD_HELD: "its deletion would take along a child that is held",
    Reason.CHILD_NOT_ARCHIVED: "its deletion would take along a child that has to be archived, and is not",
    Reason.CHILDREN_UNREAD: "its deletion would take along its children, which could not all be checked",
    Reason.RECREATED: "it would be deleted at its deadline, and the controller that applies it would create it again",
    Reason.AGGREGATED_API: "an aggregated API server serves its kind, and may ignore preconditions",
    Reason.API_UNREAD: "whether an aggregated API server serves its kind could not be read",
    Reason.UNKNOWN_SHAPE: "its kind or the shape of its status is unknown",
    Reason.NO_DEADLINE: "no source sets a deadline",
    Reason.ALREADY_STOPPED: "it is stopped already",
    Reason.NOT_DUE: "its deadline is not over",
    Reason.SERVER_CLOCK_AHEAD: "its deadline is over only by the Date of the API server, whose clock is ahead",
    Reason.AUDIT_ONLY: "its deadline is over, and the policy rule that sets it has audit: true",
    Reason.DEADLINE_EXCEEDED: "its deadline is over",
}
"""Each reason of a decision about a deadline in one sentence."""


PAST: Mapping[Action, str] = {"stop": "stopped", "suspend": "suspended", "delete": "deleted"}
"""What has been done with an object at its deadline."""


def deadline_as_json(stop: StopDecision | None) -> dict[str, Any]:
    """Return the documented JSON of the deadline that applies now; what is unknown or not set is null.

    Args:
        stop: The decision about the deadline; None if the kind of the object has no rule.
    """
    active, due_at = (stop.facts.active, stop.facts.due_at) if stop else (None, None)
    deadline = active.deadline if active else None
    return {
        "seconds": int(deadline.after.total_seconds()) if deadline and deadline.after is not None else None,
        "from": deadline.source if deadline else None,
        "stage": str(active.stage) if active and deadline else None,
        "startedAt": instant_as_json(active.started_at if active else None),
        "waitsSince": instant_as_json(active.counts_from if active and active.is_pending else None),
        "dueAt": instant_as_json(due_at if deadline else None),
        "decision": _word(stop),
        "reason": str(stop.reason if stop else Reason.UNKNOWN_SHAPE),
    }


def is_stop_ahead(stop: StopDecision | None) -> bool:
    """Return whether the object will be stopped, now or later, if nothing changes."""
    return stop is not None and not isinstance(find_fate(stop), Ignore)


def describe_deadline(stop: StopDecision, rule: KindRule, now: datetime) -> Iterator[str]:
    """Describe the deadline of an object: how long, by which source, since when, and what happens or why not.

    Yield no line if no source sets a deadline and the object was never stopped.

    Args:
        stop: The decision about the deadline.
        rule: The rule of the object's kind.
        now: The time of the decision.
    """
    active, reason = stop.facts.active, stop.reason
    is_silent = active.deadline is None and active.mark is None
    if is_silent and reason not in (Reason.INVALID_DEADLINE, Reason.ENFORCED_BY_CONTROLLER):
        return
    if active.deadline is not None:
        yield _describe_setting(active, reason, now)
    if active.mark is not None:
        times = "once at its deadline," if active.mark.stops == 1 else f"{active.mark.stops} times, the last time"
        yield f"stopped {times} at {describe_instant(active.mark.at, now)}"
    yield describe_stop_fate(stop, rule, now)


def describe_held_deadline(stop: StopDecision) -> str:
    """Say what a hold does to the deadline of a running object; an empty text if it has none."""
    facts, deadline = stop.facts, stop.facts.active.deadline
    if facts.finish.finished is not False or deadline is None or deadline.after is None:
        return ""
    if facts.active.enforced_by:
        return f"note: {facts.active.enforced_by} enforces {deadline.source} despite the hold"
    after = format_duration(deadline.after)
    return f"it is not stopped until the release, even if its deadline is over: {after}, by {deadline.source}"


def describe_stop_fate(stop: StopDecision, rule: KindRule, now: datetime) -> str:
    """Say in one sentence what happens at the deadline, and when; or why nothing does."""
    match stop:
        case Wait(until, reason):
            late = f", {STOP_WORDS[reason]}" if reason is Reason.SERVER_CLOCK_AHEAD else ""
            when = f"at {describe_instant(until, now)}"
            if stop.facts.audited_by:
                return f"it is only reported {when}, since policy rule {stop.facts.audited_by} has audit: true"
            return f"it is {_describe_action(stop.facts, rule, when)}{late}"
        case Stop(since):
            over = f"the deadline was over at {describe_instant(since, now)}"
            return f"it is {_describe_action(stop.facts, rule, 'now')}; {over}"
        case Ignore(Reason.ENFORCED_BY_CONTROLLER, facts):
            return _describe_controller(facts, now)
        case Ignore(Reason.ALREADY_STOPPED, facts) if facts.active.mark is None:
            return "not stopped (already-stopped): another client has stopped it already"
        case Ignore(reason, facts):
            problem = f": {facts.problem}" if facts.problem else ""
            return f"not stopped ({reason}): {STOP_WORDS[reason]}{problem}"


def _describe_setting(active: DeadlineFacts, reason: Reason, now: datetime) -> str:
    """`6h, by annotation …; runs since 2026-01-02T03:04:05Z (4h ago)`, or `1h to start, by …; waits since …`."""
    deadline, counts_from = active.deadline, active.counts_from
    if deadline is None or deadline.after is None:
        return f"never, by {deadline.source}" if deadline else "none"
    if active.is_pending:
        waits = f"; waits since {describe_instant(counts_from, now)}" if counts_from else ""
        return f"{format_duration(deadline.after)} to start, by {deadline.source}{waits}"
    moved = f", shortened by {active.moved_by}" if active.moved_by else ""
    is_running = reason not in (Reason.SUSPENDED, Reason.ALREADY_STOPPED, Reason.FINISHED)
    since = f"; runs since {describe_instant(counts_from, now)}" if counts_from and is_running else ""
    return f"{format_duration(deadline.after)}, by {deadline.source}{moved}{since}"


def _describe_action(facts: Facts, rule: KindRule, when: str) -> str:
    """`stopped now, by the patch {"spec": {"activeDeadlineSeconds": 1}}`, or `deleted now`."""
    stop = rule.deadline.find_stop(facts.active.action) if rule.deadline else None
    if stop is None:
        return f"deleted {when}"
    return f"{PAST[facts.active.action]} {when}, by the patch {json.dumps(stop.patch)}"


def _describe_controller(facts: Facts, now: datetime) -> str:
    who = facts.active.enforced_by or "the controller of its kind"
    if facts.problem:
        return f"not stopped (enforced-by-controller): {who} reads this field, and it is invalid: {facts.problem}"
    when = f", at {describe_instant(facts.due_at, now)}" if facts.due_at else ""
    field = facts.active.deadline.source if facts.active.deadline else "its deadline field"
    return f"not stopped by ttl-after-finished (enforced-by-controller): {who} enforces {field}{when}"


def _word(stop: StopDecision | None) -> str:
    if stop is not None and stop.reason is Reason.ALREADY_STOPPED:
        return "stopped"
    return "ignore" if stop is None else type(stop).__name__.lower()
