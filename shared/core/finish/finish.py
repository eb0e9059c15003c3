"""Decide from an object's status whether it finished, and with which outcome, by the rule of its kind."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shared.core.finish.times import find_finish_time
from shared.core.kinds.predicates import UnknownShapeError, conditions_of, holds, matching_conditions
from shared.core.kinds.rule import FinishedWhen, KindRule, Outcome
from shared.core.objects import get_in, get_text


@dataclass(frozen=True, slots=True)
class Finish:
    """Whether, when and how an object finished.

    Attributes:
        finished: None if the status has a shape that the rule does not expect.
        at: The finish time; None if it is unknown.
        outcome: None for an unfinished object, and if the kind does not report an outcome.
    """

    finished: bool | None
    at: datetime | None = None
    outcome: Outcome | None = None


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
            return _UNFINISHED
        outcome, condition = ended
        return Finish(True, find_finish_time(obj, rule, condition), None if outcome is Outcome.UNKNOWN else outcome)
    except UnknownShapeError:
        return _UNKNOWN


def _is_outdated(obj: Any, rule: KindRule) -> bool:
    """Whether the status describes an older spec: with the new spec, the object may start again."""
    if rule.observed_generation is None:
        return False
    observed, generation = get_in(obj, rule.observed_generation), get_in(obj, "metadata.generation")
    return isinstance(observed, int) and isinstance(generation, int) and observed < generation


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
