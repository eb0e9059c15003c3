"""Build the edits by which `set` sets and removes the deadlines of one object."""

from collections.abc import Mapping
from typing import Any

from shared.core.deadlines.deadline import (
    ACTIVE_DEADLINE,
    DEADLINES,
    ON_DEADLINE,
    InvalidDeadlineError,
    Stage,
    read_deadline,
)
from shared.core.deadlines.run import find_stop_problem
from shared.core.kinds.deadline_rule import Action
from shared.core.kinds.rule import KindRule
from shared.core.ttl.edits import Edit, check_changeable
from shared.core.values.objects import ANNOTATION_DOMAIN, get_annotations


def check_deadline(value: str) -> None:
    """Check a value of `set_deadline`.

    Raises:
        ValueError: It is neither a duration of more than zero nor `never`.
    """
    try:
        read_deadline(ACTIVE_DEADLINE, value)
    except InvalidDeadlineError as error:
        raise ValueError(str(error).removeprefix(f"annotation {ANNOTATION_DOMAIN}/{ACTIVE_DEADLINE}: ")) from None


def set_deadlines(obj: Any, rule: KindRule, values: Mapping[Stage, str], action: Action | None) -> Edit:
    """Set the deadlines of an object, what is done at them, or both.

    Args:
        obj: The object.
        rule: Its kind rule.
        values: The deadlines to set, by the stage that they limit: each a duration of more than zero, or `never`.
        action: What is done at the deadline; None to leave that as it is.

    Raises:
        ValueError: A value cannot be read, the kind has no such deadline, or the object cannot be stopped; the message
            says why.
    """
    check_changeable(obj, rule)
    for value in values.values():
        check_deadline(value)
    if Stage.PENDING in values and (rule.deadline is None or rule.deadline.pending is None):
        raise ValueError(f"a {rule.kind} has no pending deadline: its kind rule has no `deadline.pending`")
    if not values or set(values.values()) != {"never"}:
        _check_stoppable(obj, rule, action)
    wanted: dict[str, str | None] = {DEADLINES[stage]: value for stage, value in values.items()}
    wanted[ON_DEADLINE] = action
    return Edit({name: text for name, text in wanted.items() if text is not None})


def unset_deadline(obj: Any) -> Edit | None:
    """Remove the annotations that set the deadlines; None if there are none.

    The mark of a stop stays: without it a stopped object would count as one that a person suspended.
    """
    removed = {name: None for name in (*DEADLINES.values(), ON_DEADLINE) if name in get_annotations(obj)}
    return Edit(removed) if removed else None


def merge_edits(*edits: Edit | None) -> Edit | None:
    """Merge edits of different annotations into one; None if there are none."""
    present = [one for one in edits if one is not None]
    if not present:
        return None
    annotations = {name: value for one in present for name, value in one.annotations.items()}
    fields = {path: value for one in present for path, value in one.fields.items()}
    return Edit(annotations, fields, tuple(sentence for one in present for sentence in one.message))


def _check_stoppable(obj: Any, rule: KindRule, action: Action | None) -> None:
    if rule.deadline is None:
        raise ValueError(f"the kind rule of {rule.name} has no `deadline`, so it is unknown when a {rule.kind} started")
    chosen = action or get_annotations(obj).get(ON_DEADLINE) or "stop"
    if chosen != "delete" and (why := find_stop_problem(obj, rule.deadline, chosen)):
        verb = "suspended" if chosen == "suspend" else "stopped"
        raise ValueError(
            f"a {rule.kind} cannot be {verb}: {why}; to have it deleted at its deadline, add --on-deadline delete"
        )
