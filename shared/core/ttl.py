"""How long a finished object stays, and who said so: annotations first, then the kind's own field."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from shared.core.durations import parse_duration
from shared.core.kinds import KindRule, NativeTtl, Outcome
from shared.core.native import InvalidFieldError, read_native_ttl
from shared.core.objects import ANNOTATION_DOMAIN, get_annotations, parse_instant, quote

_DURATIONS = ("ttl", "ttl-succeeded", "ttl-failed")
TTL_ANNOTATIONS = (*_DURATIONS, "expire-at")
_NEVER = "never"


class InvalidTtlError(ValueError):
    """A value that speaks of the TTL cannot be read; the message names the field and what was expected."""


@dataclass(frozen=True, slots=True)
class Ttl:
    """When an object is due.

    Attributes:
        source: The annotation or the field that spoke; empty where nothing did.
        after: Time from finish to due; None where an instant is given, and for `never`.
        at: The absolute instant of `expire-at`.
    """

    source: str
    after: timedelta | None = None
    at: datetime | None = None

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


def find_ttl(obj: Any, rule: KindRule, outcome: Outcome | None) -> Ttl | None:
    """The TTL that counts, or None where nothing speaks.

    `expire-at` comes before the outcome's own annotation, that before `ttl`, that before the kind's field. Every
    annotation must be readable, also one that does not count: a slip is a reason to keep, not to fall through.

    Raises:
        InvalidTtlError: An annotation or the field has a malformed value.
    """
    annotations = get_annotations(obj)
    spoken = {name: _read_duration(name, annotations[name]) for name in _DURATIONS if name in annotations}
    if "expire-at" in annotations:
        return _read_expire_at(annotations["expire-at"])
    for name in (f"ttl-{outcome}", "ttl"):
        if name in spoken:
            return spoken[name]
    return _read_native(obj, rule.ttl) if rule.ttl and rule.ttl.native == "act" else None


def _read_duration(name: str, value: Any) -> Ttl:
    source = f"{ANNOTATION_DOMAIN}/{name}"
    if value == _NEVER:
        return Ttl(source)
    if not isinstance(value, str):
        raise InvalidTtlError(f"annotation {source}: expected text, got {quote(value)}")
    try:
        return Ttl(source, after=parse_duration(value))
    except ValueError as error:
        raise InvalidTtlError(f"annotation {source}: {error}, or never") from None


def _read_expire_at(value: Any) -> Ttl:
    source = f"{ANNOTATION_DOMAIN}/expire-at"
    try:
        return Ttl(source, at=parse_instant(value))
    except ValueError as error:
        raise InvalidTtlError(f"annotation {source}: {error}") from None


def _read_native(obj: Any, native: NativeTtl) -> Ttl | None:
    try:
        spoken = read_native_ttl(obj, native)
    except InvalidFieldError as error:
        raise InvalidTtlError(str(error)) from None
    return None if spoken is None else Ttl(spoken[0], after=spoken[1])
