"""Read from an unfinished object since when it runs or waits for its start, and whether it is suspended or stopped."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shared.core.decision.finish import find_instant
from shared.core.kinds.deadline_rule import Action, DeadlineRule
from shared.core.kinds.predicates import UnknownShapeError, holds

_NO_CONDITION: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Run:
    """The present run of an unfinished object, from its start or its last resume.

    Attributes:
        started_at: When the run started; None if that is unknown. It may be too late, but never too early.
        is_suspended: Whether its clock does not run.
    """

    started_at: datetime | None
    is_suspended: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """The wait of an unfinished object for its first start.

    Attributes:
        since: Since when it waits; None if that is unknown. It may be too late, but never too early.
        is_on_purpose: Whether a client has it wait, such as a queue; its clock does not run.
    """

    since: datetime | None
    is_on_purpose: bool


def waiting_of(obj: Any, rule: DeadlineRule) -> Waiting | None:
    """The wait of an unfinished object; None if it has started, or if its kind does not show that.

    Raises:
        UnknownShapeError: The object has a shape that the rule does not expect.
    """
    pending = rule.pending
    if pending is None or not holds(pending.when, obj):
        return None
    is_on_purpose = pending.suspended is not None and holds(pending.suspended, obj)
    return Waiting(find_instant(pending.since, obj, _NO_CONDITION), is_on_purpose)


def run_of(obj: Any, rule: DeadlineRule) -> Run | None:
    """The present run of an unfinished object; None if the object has a shape that the rule does not expect."""
    try:
        is_suspended = rule.suspended is not None and holds(rule.suspended, obj)
        return Run(find_instant(rule.started_at, obj, _NO_CONDITION), is_suspended)
    except UnknownShapeError:
        return None


def find_clock_start(obj: Any, rule: DeadlineRule) -> datetime | None:
    """When the clock of a deadline of an unfinished object started: its start, or else its wait; None if unknown."""
    run = run_of(obj, rule)
    if run is not None and run.started_at is not None:
        return run.started_at
    try:
        waiting = waiting_of(obj, rule) if run is not None else None
    except UnknownShapeError:
        return None
    return waiting.since if waiting is not None else None


def find_stop_problem(obj: Any, rule: DeadlineRule, action: Action) -> str:
    """Say why an object cannot be stopped or suspended; an empty text if it can.

    Args:
        obj: The object.
        rule: The rule about the deadlines of its kind.
        action: What is done at the deadline; not `delete`.
    """
    stop = rule.find_stop(action)
    if stop is None:
        return rule.cannot_stop or "the kind has no patch that suspends an object; expected on-deadline: stop or delete"
    try:
        return rule.exception.why if rule.exception is not None and holds(rule.exception.when, obj) else ""
    except UnknownShapeError as error:
        return f"it is unknown whether the stop would have an effect: {error}"
