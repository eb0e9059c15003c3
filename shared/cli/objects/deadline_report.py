"""The decision about the deadline of one object, as JSON and as lines of text."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from shared.cli.output.words import describe_instant, instant_as_json
from shared.core.deadlines.decide_stop import Stop, StopDecision
from shared.core.decision.decide import Ignore, Reason, Wait, find_fate
from shared.core.decision.facts import DeadlineFacts, Facts
from shared.core.kinds.deadline_rule import Action
from shared.core.kinds.rule import KindRule
from shared.core.ttl.durations import format_duration

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
