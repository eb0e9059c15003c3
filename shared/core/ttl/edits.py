"""What people ask of one object with `hold`, `release` and `set`, as a JSON merge patch and in words.

A hold keeps us from deleting, but not the kind's own controller. So where another acts on the kind's own TTL field, the
field is taken away in the same write, and its value waits in an annotation until the object is released.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from shared.core.jsontext import parse_json
from shared.core.kinds.rule import KindRule, Outcome
from shared.core.objects import ANNOTATION_DOMAIN, get_annotations, get_in, parse_instant, quote
from shared.core.ttl.durations import format_duration, parse_duration

HELD_TTL = "held-ttl"
_STATUS = "status."


@dataclass(frozen=True, slots=True)
class Edit:
    """What is to be written on an object.

    Attributes:
        annotations: Ours, without their domain; None takes one away.
        fields: The kind's own TTL fields by their dotted paths; None takes one away.
        message: What else is to be said of it, in sentences.
    """

    annotations: Mapping[str, str | None]
    fields: Mapping[str, Any] = field(default_factory=dict)
    message: tuple[str, ...] = ()

    def patch(self, obj: Any) -> dict[str, Any]:
        """The merge patch; the API server refuses it where the object is not any more what was read."""
        annotations = {f"{ANNOTATION_DOMAIN}/{name}": value for name, value in self.annotations.items()}
        version = get_in(obj, "metadata.resourceVersion")
        patch: dict[str, Any] = {"metadata": {"resourceVersion": version, "annotations": annotations}}
        for path, value in self.fields.items():
            *parents, last = path.split(".")
            place = patch
            for key in parents:
                place = place.setdefault(key, {})
            place[last] = value
        return patch


def hold(obj: Any, rule: KindRule, reason: str, *, with_fields: bool = True) -> Edit:
    """Keep the object, for a reason, and take away the fields by which others would delete it.

    Args:
        obj: The object.
        rule: Its kind.
        reason: Why, for people.
        with_fields: Whether the fields are taken away, too.

    Raises:
        ValueError: Nothing can be held here; the message says why.
    """
    _check_changeable(obj, rule)
    if not reason.strip():
        raise ValueError("expected a reason: others will want to know why it stays")
    taken = _fields_of_others(obj, rule) if with_fields else {}
    if not taken:
        return Edit({"hold": reason})
    kept = {**_read_held(obj, rule), **taken}
    told = tuple(
        f"{path}: {json.dumps(value)} is kept in annotation {ANNOTATION_DOMAIN}/{HELD_TTL}: {by(rule)} has "
        "nothing to act on until it is released"
        for path, value in taken.items()
    )
    return Edit({"hold": reason, HELD_TTL: json.dumps(kept, sort_keys=True)}, dict.fromkeys(taken), told)


def release(obj: Any, rule: KindRule) -> Edit | None:
    """End a hold, and give the fields back; one that was set meanwhile stays as it is. None where nothing is held.

    Raises:
        ValueError: What was kept cannot be read.
    """
    annotations = get_annotations(obj)
    ended = {name: None for name in ("hold", HELD_TTL) if name in annotations}
    if not ended:
        return None
    kept = _read_held(obj, rule)
    present = {path: get_in(obj, path) for path in kept}
    back = {path: value for path, value in kept.items() if present[path] is None}
    told = [f"{path}: {json.dumps(value)} is back" for path, value in back.items()]
    told += [
        f"{path} was set to {quote(present[path])} while it was held, and stays so; before, it was {json.dumps(value)}"
        for path, value in kept.items()
        if path not in back
    ]
    return Edit(ended, back, tuple(told))


def find_held_problem(obj: Any, rule: KindRule) -> str:
    """Why the values that a hold put aside cannot be read; empty if they can, or if there are none."""
    try:
        _read_held(obj, rule)
    except ValueError as error:
        return str(error)
    return ""


def describe_parked(obj: Any, rule: KindRule) -> str:
    """What a hold put aside and nobody put back, since its annotation was taken away by hand; empty where all is well.

    Nothing acts on a field that is not there: the object may stay for good.
    """
    annotations = get_annotations(obj)
    if "hold" in annotations or HELD_TTL not in annotations:
        return ""
    try:
        kept = _read_held(obj, rule)
    except ValueError as error:
        return f"a hold that is gone put a TTL aside, and it cannot be put back until this is fixed: {error}"
    missing = [f"{path}: {json.dumps(value)}" for path, value in kept.items() if get_in(obj, path) is None]
    return f"a hold that is gone put {', '.join(missing)} aside, and nothing acts on it" if missing else ""


def set_ttl(obj: Any, rule: KindRule, wish: str, outcome: Outcome | None = None) -> Edit:
    """Say how long the object stays: a duration since its finish, `never`, or an instant.

    Args:
        obj: The object.
        rule: Its kind.
        wish: `1h`, `never`, `2026-01-02T03:04:05Z`.
        outcome: Only if it ends so; not with an instant.

    Raises:
        ValueError: The wish cannot be read, or cannot count.
    """
    _check_changeable(obj, rule)
    name = _annotation_for(wish)
    annotations = get_annotations(obj)
    if name == "expire-at":
        if outcome:
            raise ValueError("expected a duration or never for one outcome: an instant counts for each")
        return Edit({name: wish})
    name = f"{name}-{outcome}" if outcome else name
    told = [
        f"what {ANNOTATION_DOMAIN}/{other} says, {annotations[other]}, still counts if it {other.removeprefix('ttl-')}"
        for other in ("ttl-succeeded", "ttl-failed")
        if other in annotations and not outcome
    ]
    if "expire-at" not in annotations:
        return Edit({name: wish}, message=tuple(told))
    gone = f"{ANNOTATION_DOMAIN}/expire-at, {annotations['expire-at']}, is gone: it would count before this"
    return Edit({name: wish, "expire-at": None}, message=(gone, *told))


def unset_ttl(obj: Any, outcome: Outcome | None = None) -> Edit | None:
    """Take back what was said of the TTL, of one outcome or at all. None where nothing was."""
    names = (f"ttl-{outcome}",) if outcome else ("ttl", "ttl-succeeded", "ttl-failed", "expire-at")
    gone = {name: None for name in names if name in get_annotations(obj)}
    return Edit(gone) if gone else None


def by(rule: KindRule) -> str:
    """Who acts on the kind's own TTL field."""
    return (rule.ttl and rule.ttl.honoured_by) or "nobody"


def describe_maximum(wish: str, maximum: timedelta | None, finished_at: datetime | None) -> str:
    """How a namespace's maximum shortens what `set_ttl` wrote; empty where it does not.

    Args:
        wish: As given to `set_ttl`, which has read it.
        maximum: The namespace's; None for none.
        finished_at: When the object finished; None while unknown.
    """
    if maximum is None or wish == "never":
        return ""
    if _annotation_for(wish) == "expire-at":
        if finished_at is not None and parse_instant(wish) - finished_at <= maximum:
            return ""
    elif parse_duration(wish) <= maximum:
        return ""
    most = f"at most {format_duration(maximum)} after it finishes"
    return f"max-ttl of its namespace takes precedence over {wish}: {most}"


def _check_changeable(obj: Any, rule: KindRule) -> None:
    if rule.never_finishes:
        raise ValueError(f"a {rule.kind} never finishes: {rule.never_finishes}")
    if get_in(obj, "metadata.deletionTimestamp") is not None:
        raise ValueError("it is being deleted already, which nothing can stop")


def _fields_of_others(obj: Any, rule: KindRule) -> dict[str, Any]:
    """The TTL fields that another acts on. What stands in the status is not ours to write."""
    if rule.ttl is None or rule.ttl.honoured_by is None:
        return {}
    paths = [one.path for one in rule.ttl.fields if not one.path.startswith(_STATUS)]
    return {path: value for path in paths if (value := get_in(obj, path)) is not None}


def _read_held(obj: Any, rule: KindRule) -> dict[str, Any]:
    """The values that wait for the release. Only TTL fields of the kind: an annotation must not write all else."""
    text = get_annotations(obj).get(HELD_TTL)
    if text is None:
        return {}
    paths = [one.path for one in rule.ttl.fields] if rule.ttl else []
    try:
        kept = parse_json(text) if isinstance(text, str) else None
    except ValueError:
        kept = None
    if not isinstance(kept, dict) or not set(kept) <= set(paths):
        expected = f"JSON of values of {', '.join(paths)}" if paths else f"none on a {rule.kind}"
        told = f"annotation {ANNOTATION_DOMAIN}/{HELD_TTL}: expected {expected}, got {quote(text)}"
        raise ValueError(f"{told}; correct it or remove it (`explain` prints the command)")
    return kept


def _annotation_for(wish: str) -> str:
    if wish == "never":
        return "ttl"
    try:
        parse_duration(wish)
    except ValueError:
        try:
            parse_instant(wish)
        except ValueError:
            raise ValueError(
                "expected seconds (3600), a duration such as 90s, 1h30m, 2d, 1w, never, or an instant such as "
                f"2026-01-02T03:04:05Z, got {quote(wish)}"
            ) from None
        return "expire-at"
    return "ttl"
