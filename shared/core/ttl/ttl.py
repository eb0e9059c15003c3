"""Find the TTL that an object sets itself, and its source: the annotations first, then the kind's own field."""

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
    """A value that sets a TTL cannot be read; the message names the field and what was expected."""


@dataclass(frozen=True, slots=True)
class Ttl:
    """A TTL, or an absolute instant, at which a finished object is due.

    Attributes:
        source: The annotation, field or policy rule that sets it.
        after: The time from finish to due; None for `never`, and if `at` is set.
        at: The absolute instant of `expire-at`.
        origin: The type of the source: the object's annotation, its kind's field, a policy rule, or its namespace.
    """

    source: str
    after: timedelta | None = None
    at: datetime | None = None
    origin: Origin = "object"

    @property
    def is_never(self) -> bool:
        """Whether it keeps the object for ever."""
        return self.after is None and self.at is None

    def due_at(self, finished_at: datetime | None) -> datetime | None:
        """The instant at which the object is due, never before its finish; None for `never` or no known finish time."""
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
    """The TTL that the object itself sets: its annotations take precedence over its kind's field.

    A field on which, by the kind rule, only the kind's controller acts is ignored.

    Args:
        obj: The object.
        rule: Its kind rule.
        outcome: How it ended.
        annotations: Its annotations without their domain, if the caller has them; None to read them.

    Raises:
        InvalidTtlError: An annotation or the field has a malformed value.
    """
    annotated = annotated_ttl(get_annotations(obj) if annotations is None else annotations, outcome)
    if annotated is not None or rule.ttl is None or rule.ttl.native == "leave":
        return annotated
    return native_ttl(obj, rule)


def annotated_ttl(annotations: Mapping[str, Any], outcome: Outcome | None) -> Ttl | None:
    """The TTL that an object's annotations set: `expire-at` first, then that of the outcome, then `ttl`.

    Every TTL annotation must be readable, also one without precedence: a mistake keeps the object, and the next source
    does not apply.

    Args:
        annotations: The object's annotations, without their domain.
        outcome: How it ended.

    Raises:
        InvalidTtlError: An annotation has a malformed value.
    """
    if not annotations:
        return None
    durations = {name: read_duration(name, annotations[name]) for name in _DURATIONS if name in annotations}
    if "expire-at" in annotations:
        return _read_expire_at(annotations["expire-at"])
    return durations.get(f"ttl-{outcome}") or durations.get("ttl")


def native_ttl(obj: Any, rule: KindRule) -> Ttl | None:
    """The TTL that the kind's own field sets, also if only the kind's controller acts on that field.

    Raises:
        InvalidTtlError: The field has a malformed value.
    """
    if rule.ttl is None:
        return None
    try:
        native = read_native_ttl(obj, rule.ttl)
    except InvalidFieldError as error:
        raise InvalidTtlError(str(error)) from None
    return None if native is None else Ttl(native[0], after=native[1], origin="native")


def read_duration(name: str, value: Any, *, origin: Origin = "object") -> Ttl:
    """Read the value of an annotation that is a duration or `never`.

    Raises:
        InvalidTtlError: The value is anything else.
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
