"""Build the edits of one object for `hold`, `release` and `set`, each as a JSON merge patch with messages.

A hold does not stop the kind's own controller. If that controller acts on a TTL field of the kind, the hold removes the
field in the same write, and saves its value in an annotation. The release writes the value back.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from shared.core.deadlines.deadline import (
    ACTIVE_DEADLINE,
    DEADLINES,
    ON_DEADLINE,
    InvalidDeadlineError,
    Stage,
    read_deadline,
)
from shared.core.decision.finish import find_stop_problem
from shared.core.kinds.rule import KindRule, Outcome
from shared.core.kinds.ttl_and_deadline import Action
from shared.core.values.jsontext import parse_json
from shared.core.values.objects import ANNOTATION_DOMAIN, get_annotations, get_in, parse_instant, quote
from shared.core.values.timing import format_duration, parse_duration

HELD_TTL = "held-ttl"
_STATUS = "status."


@dataclass(frozen=True, slots=True)
class Edit:
    """Changes of one object.

    Attributes:
        annotations: Annotations to write, without their domain; None removes one.
        fields: The kind's own TTL fields to write, by their dotted paths; None removes one.
        message: Sentences for the operator about the effects of the edit.
    """

    annotations: Mapping[str, str | None]
    fields: Mapping[str, Any] = field(default_factory=dict)
    message: tuple[str, ...] = ()

    def patch(self, obj: Any) -> dict[str, Any]:
        """The merge patch; the API server rejects it if the object has changed since it was read."""
        annotations = {f"{ANNOTATION_DOMAIN}/{name}": value for name, value in self.annotations.items()}
        version = get_in(obj, "metadata.resourceVersion")
        patch: dict[str, Any] = {"metadata": {"resourceVersion": version, "annotations": annotations}}
        for path, value in self.fields.items():
            *parents, last = path.split(".")
            parent = patch
            for key in parents:
                parent = parent.setdefault(key, {})
            parent[last] = value
        return patch


def hold(obj: Any, rule: KindRule, reason: str, *, with_fields: bool = True, is_new: bool = False) -> Edit:
    """Keep the object, and remove the TTL fields by which the kind's own controller would delete it.

    Args:
        obj: The object.
        rule: Its kind rule.
        reason: Why the object is kept, for people.
        with_fields: Whether to remove the fields, too.
        is_new: Whether the object is not created yet. Then all TTL fields are removed: also those of the status, and
            those on which no known controller acts.

    Raises:
        ValueError: The object cannot be held; the message says why.
    """
    check_changeable(obj, rule)
    if not reason.strip():
        raise ValueError("expected a reason, got an empty text: state why the object is kept")
    removed = _set_fields(obj, rule, is_new=is_new) if with_fields else {}
    former = get_annotations(obj).get("hold", reason)
    replaced = () if former == reason else (f"it was held already; the reason is replaced, and was {quote(former)}",)
    if not removed:
        return Edit({"hold": reason}, message=replaced)
    saved = {**_read_saved(obj, rule), **removed}
    controller = (rule.ttl and rule.ttl.honoured_by) or "ttl-after-finished"
    message = tuple(
        f"{path}: {json.dumps(value)} is removed, and saved in annotation {ANNOTATION_DOMAIN}/{HELD_TTL}: "
        f"{controller} does not act on it until you release the object"
        for path, value in removed.items()
    )
    annotations = {"hold": reason, HELD_TTL: json.dumps(saved, sort_keys=True)}
    return Edit(annotations, dict.fromkeys(removed), (*replaced, *message))


def release(obj: Any, rule: KindRule) -> Edit | None:
    """End a hold, and write the saved fields back, except for a field that was set during the hold.

    Returns:
        None if the object is not held.

    Raises:
        ValueError: The saved values cannot be read.
    """
    annotations = get_annotations(obj)
    removed = {name: None for name in ("hold", HELD_TTL) if name in annotations}
    if not removed:
        return None
    saved = _read_saved(obj, rule)
    present = {path: get_in(obj, path) for path in saved}
    restored = {path: value for path, value in saved.items() if present[path] is None}
    message = [f"{path}: {json.dumps(value)} is restored" for path, value in restored.items()]
    message += [
        f"{path} was set to {quote(present[path])} during the hold, and is kept; before, it was {json.dumps(value)}"
        for path, value in saved.items()
        if path not in restored
    ]
    return Edit(removed, restored, tuple(message))


def find_held_problem(obj: Any, rule: KindRule) -> str:
    """Why the values that a hold saved cannot be read; empty if they can be read, or if there are none."""
    try:
        _read_saved(obj, rule)
    except ValueError as error:
        return str(error)
    return ""


def describe_saved(obj: Any, rule: KindRule) -> str:
    """The TTL that a hold saved, if the hold was removed by hand and the TTL was not restored; else empty.

    No controller acts on a field that was removed, so the object may be kept for ever.
    """
    annotations = get_annotations(obj)
    if "hold" in annotations or HELD_TTL not in annotations:
        return ""
    try:
        saved = _read_saved(obj, rule)
    except ValueError as error:
        return f"a hold that was removed left a saved TTL, which cannot be restored until this is fixed: {error}"
    missing = [f"{path}: {json.dumps(value)}" for path, value in saved.items() if get_in(obj, path) is None]
    return f"a hold that was removed left {', '.join(missing)} saved, and no controller acts on it" if missing else ""


def set_ttl(obj: Any, rule: KindRule, value: str, *, outcome: Outcome | None = None) -> Edit:
    """Set the TTL of the object: a duration from its finish, `never`, or an instant.

    Args:
        obj: The object.
        rule: Its kind rule.
        value: `1h`, `never`, `2026-01-02T03:04:05Z`.
        outcome: Set the TTL for this outcome only; not with an instant.

    Raises:
        ValueError: The value cannot be read, or does not fit the outcome.
    """
    check_changeable(obj, rule)
    name = check_ttl(value, outcome)
    annotations = get_annotations(obj)
    if name == "expire-at":
        return Edit({name: value})
    name = f"{name}-{outcome}" if outcome else name
    message = [
        f"{ANNOTATION_DOMAIN}/{other}, {annotations[other]}, takes precedence if it {other.removeprefix('ttl-')}"
        for other in ("ttl-succeeded", "ttl-failed")
        if other in annotations and not outcome
    ]
    if "expire-at" not in annotations:
        return Edit({name: value}, message=tuple(message))
    instant = annotations["expire-at"]
    removed = f"{ANNOTATION_DOMAIN}/expire-at, {instant}, is removed: it would take precedence over {value}"
    return Edit({name: value, "expire-at": None}, message=(removed, *message))


def check_ttl(value: str, outcome: Outcome | None = None) -> str:
    """Check a value of `set_ttl`, and return the annotation that it is for, without its domain and its outcome.

    Raises:
        ValueError: The value cannot be read, or does not fit the outcome.
    """
    if value == "never":
        return "ttl"
    with suppress(ValueError):
        parse_duration(value)
        return "ttl"
    try:
        parse_instant(value)
    except ValueError:
        raise ValueError(
            "expected seconds (3600), a duration such as 90s, 1h30m, 2d, 1w, never, or an instant such as "
            f"2026-01-02T03:04:05Z, got {quote(value)}"
        ) from None
    if outcome:
        expected = "expected a duration or never for one outcome"
        raise ValueError(f"{expected}, got the instant {value}: an instant is for each outcome")
    return "expire-at"


def unset_ttl(obj: Any, outcome: Outcome | None = None) -> Edit | None:
    """Remove the TTL annotations, of one outcome or all. None if there are none."""
    names = (f"ttl-{outcome}",) if outcome else ("ttl", "ttl-succeeded", "ttl-failed", "expire-at")
    removed = {name: None for name in names if name in get_annotations(obj)}
    return Edit(removed) if removed else None


def describe_maximum(value: str, maximum: timedelta | None, finished_at: datetime | None) -> str:
    """How a namespace's max-ttl shortens the TTL that `set_ttl` wrote; empty if it does not.

    Args:
        value: The value that `set_ttl` accepted.
        maximum: The namespace's max-ttl; None for none.
        finished_at: When the object finished; None if that is unknown.
    """
    if maximum is None or value == "never":
        return ""
    if check_ttl(value) == "expire-at":
        if finished_at is not None and parse_instant(value) - finished_at <= maximum:
            return ""
    elif parse_duration(value) <= maximum:
        return ""
    most = f"at most {format_duration(maximum)} after it finishes"
    return f"max-ttl of its namespace takes precedence over {value}: {most}"


def check_changeable(obj: Any, rule: KindRule) -> None:
    """Check that a hold, a TTL or a deadline can still matter for an object.

    Raises:
        ValueError: The object never finishes, or is being deleted.
    """
    if rule.never_finishes:
        raise ValueError(f"a {rule.kind} never finishes: {rule.never_finishes}")
    if get_in(obj, "metadata.deletionTimestamp") is not None:
        raise ValueError("the object is being deleted already, which cannot be stopped")


def _set_fields(obj: Any, rule: KindRule, *, is_new: bool) -> dict[str, Any]:
    """The set TTL fields on which the kind's own controller acts, without those of the status; of a new object, all."""
    if rule.ttl is None or (rule.ttl.honoured_by is None and not is_new):
        return {}
    paths = [one.path for one in rule.ttl.fields if is_new or not one.path.startswith(_STATUS)]
    return {path: value for path in paths if (value := get_in(obj, path)) is not None}


def _read_saved(obj: Any, rule: KindRule) -> dict[str, Any]:
    """The TTL fields that a hold saved. Other fields are rejected: an annotation must not write any other field."""
    text = get_annotations(obj).get(HELD_TTL)
    if text is None:
        return {}
    paths = [one.path for one in rule.ttl.fields] if rule.ttl else []
    try:
        saved = parse_json(text) if isinstance(text, str) else None
    except ValueError:
        saved = None
    if not isinstance(saved, dict) or not set(saved) <= set(paths):
        expected = f"JSON of values of {', '.join(paths)}" if paths else f"no such annotation on a {rule.kind}"
        problem = f"annotation {ANNOTATION_DOMAIN}/{HELD_TTL}: expected {expected}, got {quote(text)}"
        raise ValueError(f"{problem}; correct it or remove it (`explain` prints the command)")
    return saved


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
