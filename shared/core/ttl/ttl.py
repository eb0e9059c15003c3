"""Find the TTL that an object sets itself, or inherits from another object, and the source of the TTL.

The annotations take precedence over the field of the kind.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from shared.core.kinds.predicates import UnknownShapeError, holds
from shared.core.kinds.rule import KindRule, Outcome
from shared.core.kinds.ttl_and_deadline import NativeDeadline, NativeTtl, TtlField
from shared.core.values.objects import (
    ANNOTATION_DOMAIN,
    ObjectRef,
    get_annotations,
    get_in,
    get_text,
    parse_instant,
    quote,
)
from shared.core.values.timing import DURATION_MAX, add, or_never, parse_duration, parse_go_duration

_DURATIONS = ("ttl", "ttl-succeeded", "ttl-failed")
TTL_ANNOTATIONS = (*_DURATIONS, "expire-at")
_NEVER = "never"
_UNITS = {"seconds": timedelta(seconds=1), "milliseconds": timedelta(milliseconds=1)}

Origin = Literal["object", "native", "inherited", "policy", "namespace"]


class InvalidTtlError(ValueError):
    """A value that sets a TTL cannot be read; the message names the field and what was expected."""


@dataclass(frozen=True, slots=True)
class Ttl:
    """A TTL, or an absolute instant, at which a finished object is due.

    Attributes:
        source: The annotation, field or policy rule that sets it.
        after: The time from finish to due; None for `never`, and if `at` is set.
        at: The absolute instant of `expire-at`.
        origin: The type of the source: the object's annotation, its kind's field, the field of an object to which it
            refers, a policy rule, or its namespace.
    """

    source: str
    after: timedelta | None = None
    at: datetime | None = None
    origin: Origin = "object"

    @property
    def is_never(self) -> bool:
        """Return whether it keeps the object for ever."""
        return self.after is None and self.at is None

    def due_at(self, finished_at: datetime | None) -> datetime | None:
        """The instant at which the object is due, never before its finish; None for `never` or no known finish time."""
        if self.at is not None:
            return max(self.at, finished_at or self.at)
        return None if self.after is None or finished_at is None else add(finished_at, self.after)


def find_ttl(
    obj: Any, rule: KindRule, outcome: Outcome | None, *, annotations: Mapping[str, Any] | None = None
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
    return native_ttl(obj, rule.ttl)


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


def has_native_ttl(obj: Any, ttl: NativeTtl | None) -> bool:
    """Return whether one of the kind's TTL fields is set, to any value."""
    return ttl is not None and any(get_in(obj, field.path) is not None for field in ttl.fields)


def is_left_to_controller(obj: Any, ttl: NativeTtl | None) -> bool:
    """Return whether a TTL field is set on which, by the kind rule, only the kind's own controller acts."""
    if ttl is None or ttl.native == "act":
        return False
    try:
        return any(get_in(obj, field.path) is not None and _applies(field, obj) for field in ttl.fields)
    except InvalidTtlError:
        return True  # whether the field applies is unknown, so it is left to the controller


def native_ttl(obj: Any, ttl: NativeTtl | NativeDeadline | None) -> Ttl | None:
    """The TTL, or the deadline, of the first of the kind's fields that is set and applies.

    It does not matter whether only the kind's controller acts on the field.

    Raises:
        InvalidTtlError: The value has the wrong type, or is out of range.
    """
    return None if ttl is None else read_fields(obj, ttl, ttl.fields)


def read_fields(obj: Any, ttl: NativeTtl | NativeDeadline, fields: Iterable[TtlField]) -> Ttl | None:
    """The TTL of the first of these fields that is set and applies; zero and negative values mean what the kind says.

    Raises:
        InvalidTtlError: The value has the wrong type, or is out of range.
    """
    for field in fields:
        value = get_in(obj, field.path)
        if value is not None and _applies(field, obj):
            return Ttl(field.path, after=_meant(ttl, field, value), origin="native")
    return None


def _applies(field: TtlField, obj: Any) -> bool:
    try:
        return field.when is None or holds(field.when, obj)
    except UnknownShapeError as error:
        raise InvalidTtlError(f"{field.path}: it is unknown whether the field applies: {error}") from None


def _meant(ttl: NativeTtl | NativeDeadline, field: TtlField, value: Any) -> timedelta | None:
    """The TTL that a value means, by the kind's meaning of zero and of negative values."""
    after = _parse(field, value, with_negative=ttl.negative != "invalid")
    if after < timedelta(0):
        return None if ttl.negative == "never" else timedelta(0)
    if not after and ttl.zero == "never":
        return None
    return after


def _parse(field: TtlField, value: Any, *, with_negative: bool) -> timedelta:
    if field.unit == "duration":
        return _parse_text(field, value, with_negative=with_negative)
    unit = _UNITS[field.unit]
    limit = DURATION_MAX // unit
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or value > limit or (value < 0 and not with_negative):
        raise InvalidTtlError(f"{field.path}: expected whole {field.unit} from 0 to {limit}, got {quote(value)}")
    return max(int(value), -1) * unit  # all negative values mean the same


def _parse_text(field: TtlField, value: Any, *, with_negative: bool) -> timedelta:
    try:
        after = parse_go_duration(value)
    except ValueError as error:
        raise InvalidTtlError(f"{field.path}: {error}") from None
    if after < timedelta(0) and not with_negative:
        raise InvalidTtlError(f"{field.path}: expected a duration that is not negative, got {quote(value)}")
    return after


def describe_overridden(obj: Any, rule: KindRule, field: str) -> str:
    """Name the controller that acts on a TTL field, in one sentence without a period."""
    controller = (rule.ttl and rule.ttl.honoured_by) or "another controller"
    return f"{controller} acts on {field}: {json.dumps(get_in(obj, field))}, whatever the other settings are"


def advise_overridden(field: str) -> str:
    """What an operator can do about it."""
    if field.startswith("status."):
        return "the field is part of the status, which only its controller can change"
    return "change the field, or remove it with `kubectl ttl hold`"


@dataclass(frozen=True, slots=True)
class InheritedFact:
    """What one object sets for the objects that refer to it.

    Attributes:
        source: The object that sets it, without a uid.
        ttl: The TTL; None if none of its fields is set.
        problem: Why the TTL cannot be read; empty if it can.
    """

    source: ObjectRef
    ttl: Ttl | None = None
    problem: str = ""


def find_ttl_source(obj: Any, ttl: NativeTtl | None) -> ObjectRef | None:
    """The object from which `obj` may inherit a TTL; None if its kind inherits no TTL, or if it refers to no object.

    A reference without a kind or a group means the first kind of the rule. If a reference names a kind that the rule
    does not know, or has another shape, the identity cannot be read: it is unknown what the object inherits.
    """
    if ttl is None or ttl.inherited is None:
        return None
    named = get_in(obj, ttl.inherited.ref)
    if named is None:
        return None
    first, given = ttl.inherited.kinds[0], named if isinstance(named, Mapping) else {}
    group = _part(given, "apiGroup", first.group)
    kind = _part(given, "kind", first.kind)
    known = ttl.inherited.find_kind(group, kind)
    namespace = "" if known and known.scope == "Cluster" else get_text(obj, "metadata.namespace")
    version = known.api_versions[0] if known else f"{group}/"
    return ObjectRef(version, kind, namespace, get_text(given, "name"), "")


def _part(given: Mapping[str, Any], name: str, default: str) -> str:
    """A part of a reference: the default if the part is absent, and empty if the part is not a text."""
    return default if given.get(name) is None else get_text(given, name)


def read_ttl_of_source(source: ObjectRef, obj: Any, ttl: NativeTtl) -> InheritedFact:
    """Read what an object sets for the objects that refer to it, by the kind rule of those objects.

    Args:
        source: The identity of the object, as they refer to it.
        obj: The object.
        ttl: The rule of their kind.
    """
    try:
        found = read_fields(obj, ttl, ttl.inherited.fields if ttl.inherited else ())
    except InvalidTtlError as error:
        return InheritedFact(source, problem=f"{source}: {error}")
    if found is None:
        return InheritedFact(source)
    return InheritedFact(source, Ttl(f"{found.source} of {source}", after=found.after, origin="inherited"))
