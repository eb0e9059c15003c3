"""Kubernetes objects as they are: arbitrary JSON, looked into without ever failing.

An object is the dict the API server sent. Nothing here assumes a shape: a field that is missing, null or of another
type reads as absent, because an unknown shape must be a reason to keep an object and never an exception.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, ClassVar

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

ANNOTATION_DOMAIN = "ttlafterfinished.dev"

GUARD_PREFIX = "ttl-after-finished-delete-guard-"
"""What the names of the delete guard's policies begin with: a refusal of theirs is no missing right."""

# Characters of a text, bits of a number.
_QUOTED_MAX = 64


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """The identity of one object, uid included: a recreated object of the same name is another object.

    Attributes:
        api_version: `batch/v1`, or `v1` for the core group.
        kind: `Job`.
        namespace: Empty for cluster-scoped objects.
        name: `metadata.name`.
        uid: `metadata.uid`; empty where only a name is known.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    # On the wire, in the data of our events, the names are Kubernetes' own.
    __pydantic_config__: ClassVar = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    def is_same(self, other: "ObjectRef") -> bool:
        """Whether both mean one object. In which version each of them names it tells nothing: versions come and go."""
        return replace(self, api_version=self.group) == replace(other, api_version=other.group)

    def __str__(self) -> str:
        """`Job ci/build-42`: how people name it, in logs and messages."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def get_in(obj: Any, path: str) -> Any:
    """The value at a dotted path (`spec.ttlSecondsAfterFinished`), or None where any step is absent."""
    for key in _keys(path):
        if not isinstance(obj, dict):
            return None
        obj = obj.get(key)
    return obj


@lru_cache(maxsize=4_096)
def _keys(path: str) -> tuple[str, ...]:
    """Paths are few, and looked at for every object."""
    return tuple(path.split("."))


def get_text(obj: Any, path: str) -> str:
    """The string at a dotted path; the empty string where there is none."""
    value = get_in(obj, path)
    return value if isinstance(value, str) else ""


def list_mappings(obj: Any, path: str) -> Iterator[Mapping[str, Any]]:
    """The mappings in the list at a dotted path; anything else in it, or in its place, is passed over."""
    values = get_in(obj, path)
    if isinstance(values, list):
        yield from (value for value in values if isinstance(value, dict))


def ref_of(obj: Any) -> ObjectRef:
    """The identity an object states of itself; absent parts are empty."""
    metadata = get_in(obj, "metadata")
    return ObjectRef(
        api_version=get_text(obj, "apiVersion"),
        kind=get_text(obj, "kind"),
        namespace=get_text(metadata, "namespace"),
        name=get_text(metadata, "name"),
        uid=get_text(metadata, "uid"),
    )


def get_annotations(obj: Any) -> dict[str, Any]:
    """Our own annotations, without their domain: `{"ttl": "1h"}`. Values are strings on a real API server."""
    annotations = get_in(obj, "metadata.annotations")
    if not isinstance(annotations, dict):
        return {}
    prefix = f"{ANNOTATION_DOMAIN}/"
    return {
        key.removeprefix(prefix): value
        for key, value in annotations.items()
        if isinstance(key, str) and key.startswith(prefix)
    }


def get_controller(obj: Any) -> ObjectRef | None:
    """The owner that manages the object (`controller: true`), or None. An owner lives in its dependent's namespace."""
    for owner in list_mappings(obj, "metadata.ownerReferences"):
        if owner.get("controller") is True:
            return ObjectRef(
                api_version=get_text(owner, "apiVersion"),
                kind=get_text(owner, "kind"),
                namespace=get_text(obj, "metadata.namespace"),
                name=get_text(owner, "name"),
                uid=get_text(owner, "uid"),
            )
    return None


_CALLED: dict[type, str] = {dict: "a mapping", list: "a list"}


def quote(value: Any) -> str:
    """A value as a message quotes it: short and printable, whatever was sent.

    A `repr` alone fails on a list that is nested deeply and on a number of thousands of digits.
    """
    if isinstance(value, str):
        return repr(value if len(value) <= _QUOTED_MAX else f"{value[:_QUOTED_MAX]}...")
    if value is None or isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= _QUOTED_MAX):
        return repr(value)
    called = _CALLED.get(type(value))
    return called or f"a value of type {type(value).__name__}"


def printable(text: str) -> str:
    """A text without the line breaks, and whatever else a terminal would act on, that others wrote into it."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)


# datetime.fromisoformat reads more than that: week dates, times without minutes, in later Pythons an hour 24, an offset
# of +00:99. What is not agreed on is not guessed.
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT([01]\d|2[0-3]):\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)", re.ASCII)


def parse_instant(text: Any) -> datetime:
    """An RFC 3339 instant as aware UTC.

    Args:
        text: `2026-01-02T03:04:05Z`, with any offset and any fraction of a second.

    Raises:
        ValueError: It is anything else.
    """
    if not isinstance(text, str) or not _RFC_3339.fullmatch(text):
        raise ValueError(f"expected an RFC 3339 time such as 2026-01-02T03:04:05Z, got {quote(text)}")
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"expected an RFC 3339 time such as 2026-01-02T03:04:05Z, got {quote(text)}") from None
    try:
        return instant if instant.tzinfo is UTC else instant.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"expected an RFC 3339 time between the years 1 and 9999, got {quote(text)}") from None


def format_instant(instant: datetime) -> str:
    """An aware instant as RFC 3339 in UTC, with a fraction only where there is one."""
    text = instant.astimezone(UTC).isoformat(timespec="auto")
    return text.replace("+00:00", "Z")
