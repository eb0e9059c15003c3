"""How long a finished object stays, and who said so: annotations first, then the kind's own field."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from shared.core.kinds.rule import KindRule, Outcome
from shared.core.objects import ANNOTATION_DOMAIN, get_annotations, parse_instant, quote
from shared.core.ttl.durations import or_never, parse_duration
from shared.core.ttl.native import InvalidFieldError, read_native_ttl

_DURATIONS = ("ttl", "ttl-succeeded", "ttl-failed")
TTL_ANNOTATIONS = (*_DURATIONS, "expire-at")
_NEVER = "never"


Origin = Literal["object", "native", "policy", "namespace"]


class InvalidTtlError(ValueError):
    """A value that speaks of the TTL cannot be read; the message names the field and what was expected."""


@dataclass(frozen=True, slots=True)
class Ttl:
    """When an object is due.

    Attributes:
        source: The annotation or the field that spoke; empty where nothing did.
        after: Time from finish to due; None where an instant is given, and for `never`.
        at: The absolute instant of `expire-at`.
        origin: Who spoke: the object's own annotation, its kind's field, a policy rule, or its namespace.
    """

    source: str
    after: timedelta | None = None
    at: datetime | None = None
    origin: Origin = "object"

    @property
    def is_never(self) -> bool:
        """Whether it says that the object stays for good."""
        return self.after is None and self.at is None

    def due_at(self, finished_at: datetime | None) -> datetime | None:
        """The instant the object is due, never before it finished; None for `never`, and without a finish time."""
        if self.at is not None:
            return max(self.at, finished_at or self.at)
        if self.after is None or finished_at is None:
            return None
        try:
            return finished_at + self.after
        except OverflowError:
            return datetime.max.replace(tzinfo=finished_at.tzinfo)


def find_ttl(
    obj: Any, rule: KindRule, outcome: Outcome | None, annotations: Mapping[str, Any] | None = None
) -> Ttl | None:
    """The TTL that the object itself speaks of, as far as we act on it, or None: its annotations before its field.

    Args:
        obj: The object.
        rule: Its kind.
        outcome: How it ended.
        annotations: Ours on it, where they were read before.

    Raises:
        InvalidTtlError: An annotation or the field has a malformed value.
    """
    spoken = annotated_ttl(get_annotations(obj) if annotations is None else annotations, outcome)
    if spoken is not None or rule.ttl is None or rule.ttl.native == "leave":
        return spoken
    return native_ttl(obj, rule)


def annotated_ttl(annotations: Mapping[str, Any], outcome: Outcome | None) -> Ttl | None:
    """What our annotations say, or None: `expire-at` before the outcome's own, that before `ttl`.

    Every annotation must be readable, also one that does not count: a slip is a reason to keep, not to fall through.

    Args:
        annotations: The object's, without their domain.
        outcome: How it ended.

    Raises:
        InvalidTtlError: One has a malformed value.
    """
    if not annotations:
        return None
    spoken = {name: read_duration(name, annotations[name]) for name in _DURATIONS if name in annotations}
    if "expire-at" in annotations:
        return _read_expire_at(annotations["expire-at"])
    return spoken.get(f"ttl-{outcome}") or spoken.get("ttl")


def native_ttl(obj: Any, rule: KindRule) -> Ttl | None:
    """What the kind's own field says, or None; also where it is left to the kind's own controller to act on.

    Raises:
        InvalidTtlError: The field has a malformed value.
    """
    if rule.ttl is None:
        return None
    try:
        spoken = read_native_ttl(obj, rule.ttl)
    except InvalidFieldError as error:
        raise InvalidTtlError(str(error)) from None
    return None if spoken is None else Ttl(spoken[0], after=spoken[1], origin="native")


def read_duration(name: str, value: Any, *, origin: Origin = "object") -> Ttl:
    """A duration, or `never`, as an annotation gives it.

    Raises:
        InvalidTtlError: It is anything else.
    """
    source = f"{ANNOTATION_DOMAIN}/{name}"
    if value == _NEVER:
        return Ttl(source, origin=origin)
    if not isinstance(value, str):
        raise InvalidTtlError(f"annotation {source}: expected text, got {quote(value)}")
    try:
        return Ttl(source, after=parse_duration(value), origin=origin)
    except ValueError as error:
        raise InvalidTtlError(f"annotation {source}: {or_never(error)}") from None


def _read_expire_at(value: Any) -> Ttl:
    source = f"{ANNOTATION_DOMAIN}/expire-at"
    try:
        return Ttl(source, at=parse_instant(value))
    except ValueError as error:
        raise InvalidTtlError(f"annotation {source}: {error}") from None
