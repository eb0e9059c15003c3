"""Read from an object's status whether, when and how it finished, by the rule of its kind.

A finish time may be too late, but never too early. The first source of the kind rule that has an instant counts, and of
several instants the latest. An instant before the object's creation or start counts as absent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from shared.core.deadlines.mark import InvalidMarkError, is_merged, read_mark
from shared.core.decision.instants import find_instant
from shared.core.kinds.predicates import UnknownShapeError, conditions_of, holds, matching_conditions
from shared.core.kinds.rule import FinishedWhen, KindRule, Outcome
from shared.core.values.objects import get_in, get_text, parse_instant


@dataclass(frozen=True, slots=True)
class Finish:
    """The finish of an object: whether, when and how it finished.

    Attributes:
        finished: None if the status has a shape that the rule does not expect.
        at: The finish time; None if it is unknown.
        outcome: None for an unfinished object, and if the kind does not report an outcome.
    """

    finished: bool | None
    at: datetime | None = None
    outcome: Outcome | None = None


_LATEST = datetime(9999, 12, 31, tzinfo=UTC)
_WRITES = [{"subresource": "status", "time": _LATEST}]
_UNKNOWN = Finish(finished=None)
_UNFINISHED = Finish(finished=False)


def finish_of(obj: Any, rule: KindRule) -> Finish:
    """Whether, when and how the object finished. Total: for an unknown shape it returns `finished=None`."""
    status = get_in(obj, "status")
    if status is not None and not isinstance(status, dict):
        return _UNKNOWN
    if rule.finished is None or _is_outdated(obj, rule):
        return _UNFINISHED
    try:
        ended = _end_of(obj, rule.finished)
        if ended is None or (rule.finished.unless is not None and holds(rule.finished.unless, obj)):
            return _stopped(obj, rule)
        outcome, condition = ended
        at = find_instant(rule.finished_at, obj, condition)
        return Finish(True, at, None if outcome is Outcome.UNKNOWN else outcome)
    except UnknownShapeError:
        return _UNKNOWN


def lacks_managed_fields(obj: Mapping[str, Any], rule: KindRule, finish: Finish) -> bool:
    """Return whether `metadata.managedFields`, which the object does not have, could set another finish time.

    kubectl prints objects without that field, unless it has `--show-managed-fields`.

    Args:
        obj: The object.
        rule: The rule of its kind.
        finish: Its finish without the field.
    """
    metadata = get_in(obj, "metadata")
    if not finish.finished or not isinstance(metadata, dict) or metadata.get("managedFields"):
        return False
    return finish_of({**obj, "metadata": {**metadata, "managedFields": _WRITES}}, rule).at != finish.at


def _is_outdated(obj: Any, rule: KindRule) -> bool:
    """Return whether the status describes an older spec: with the new spec, the object may start again."""
    if rule.observed_generation is None:
        return False
    observed, generation = get_in(obj, rule.observed_generation), get_in(obj, "metadata.generation")
    return isinstance(observed, int) and isinstance(generation, int) and observed < generation


EARLY_FINISH = "its status has {}, which is before its creation, and is ignored"
"""The sentence about a finish time that `find_early_finish` returns."""


def find_early_finish(obj: Mapping[str, Any], rule: KindRule, finish: Finish) -> datetime | None:
    """Return the finish time that is ignored because it is before the creation of the object.

    Args:
        obj: The object.
        rule: The rule of its kind.
        finish: Its finish.

    Returns:
        None if no finish time is ignored.
    """
    metadata, status = get_in(obj, "metadata"), get_in(obj, "status")
    if not finish.finished or not isinstance(metadata, dict) or not isinstance(status, dict):
        return None
    try:
        created_at = parse_instant(metadata.get("creationTimestamp"))
    except ValueError:
        return None
    without_limits = {"metadata": {**metadata, "creationTimestamp": None}, "status": {**status, "startTime": None}}
    early = finish_of({**obj, **without_limits}, rule).at
    return early if early is not None and early < created_at else None


def _end_of(obj: Any, when: FinishedWhen) -> tuple[Outcome, Mapping[str, Any]] | None:
    """The outcome, and the condition that marks the object as finished, if one does; None for an unfinished object."""
    if when.conditions:
        for condition in conditions_of(obj):
            outcome = when.conditions.get(get_text(condition, "type"))
            if outcome is not None and condition.get("status") == "True":
                return outcome, condition
        return None
    if when.field is not None:
        value = get_in(obj, when.field)
        if value is not None and not isinstance(value, str):
            raise UnknownShapeError(f"{when.field}: expected a text")
        outcome = when.values.get(value or "")
        return None if outcome is None else (outcome, {})
    for case in when.cases:
        if holds(case.when, obj):
            matching = matching_conditions(case.when, obj) if case.when.condition else iter(())
            return case.outcome, next(matching, {})
    return None


def _stopped(obj: Any, rule: KindRule) -> Finish:
    """The finish of an object that `enforce` suspended, after which its kind reports no end; else unfinished.

    The stop must still be in place, and nothing else in the spec may have changed: an object that a person resumed, or
    suspended later, counts as unfinished. The finish time is the latest of the stop and of the instant at which it was
    complete; if that is unknown, so is the finish time.
    """
    stop = rule.deadline.suspending if rule.deadline else None
    if stop is None or stop.ends is None:
        return _UNFINISHED
    try:
        mark = read_mark(obj)
    except InvalidMarkError:
        return _UNFINISHED
    if mark is None or not mark.is_untouched(obj) or not is_merged(obj, stop.patch) or not holds(stop.ends, obj):
        return _UNFINISHED
    ended_at = find_instant(stop.end_times, obj, {})
    return Finish(True, max(mark.at, ended_at) if ended_at else None, Outcome.FAILED)
