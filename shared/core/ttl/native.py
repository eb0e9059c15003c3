"""Read the TTL fields that a kind defines itself, such as `spec.ttlSecondsAfterFinished`, by the kind's rule."""

from datetime import timedelta
from typing import Any

from shared.core.kinds.predicates import UnknownShapeError, holds
from shared.core.kinds.rule import NativeTtl, TtlField
from shared.core.objects import get_in, quote
from shared.core.ttl.durations import DURATION_MAX, parse_go_duration

_UNITS = {"seconds": timedelta(seconds=1), "milliseconds": timedelta(milliseconds=1)}


class InvalidFieldError(ValueError):
    """A TTL field has an invalid value; the message names the field and what was expected."""


def has_native_ttl(obj: Any, ttl: NativeTtl | None) -> bool:
    """Whether one of the kind's TTL fields is set, to any value."""
    return ttl is not None and any(get_in(obj, field.path) is not None for field in ttl.fields)


def is_left_to_controller(obj: Any, ttl: NativeTtl | None) -> bool:
    """Whether a TTL field is set on which, by the kind rule, only the kind's own controller acts."""
    if ttl is None or ttl.native == "act":
        return False
    try:
        return any(get_in(obj, field.path) is not None and _applies(field, obj) for field in ttl.fields)
    except InvalidFieldError:
        return True  # whether the field applies is unknown, so it is left to the controller


def read_native_ttl(obj: Any, ttl: NativeTtl) -> tuple[str, timedelta | None] | None:
    """The path of the first TTL field that is set and applies, and its TTL.

    Returns:
        None if no field is set. The TTL is None if the field's value means `never`.

    Raises:
        InvalidFieldError: The value has the wrong type, or is out of range.
    """
    for field in ttl.fields:
        value = get_in(obj, field.path)
        if value is not None and _applies(field, obj):
            return field.path, _meant(ttl, field, value)
    return None


def _applies(field: TtlField, obj: Any) -> bool:
    try:
        return field.when is None or holds(field.when, obj)
    except UnknownShapeError as error:
        raise InvalidFieldError(f"{field.path}: it is unknown whether the field applies: {error}") from None


def _meant(ttl: NativeTtl, field: TtlField, value: Any) -> timedelta | None:
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
        raise InvalidFieldError(f"{field.path}: expected whole {field.unit} from 0 to {limit}, got {quote(value)}")
    return max(int(value), -1) * unit  # all negative values mean the same


def _parse_text(field: TtlField, value: Any, *, with_negative: bool) -> timedelta:
    try:
        after = parse_go_duration(value)
    except ValueError as error:
        raise InvalidFieldError(f"{field.path}: {error}") from None
    if after < timedelta(0) and not with_negative:
        raise InvalidFieldError(f"{field.path}: expected a duration that is not negative, got {quote(value)}")
    return after
