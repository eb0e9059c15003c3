"""Read fields of Kubernetes objects, which may be any JSON, without raising an exception.

An object is the dict that the API server sent. A field that is missing, null or of another type counts as absent. An
unknown shape must keep an object, and never raise an exception.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, ClassVar

ANNOTATION_DOMAIN = "ttlafterfinished.dev"

GUARD_PREFIX = "ttl-after-finished-delete-guard-"
"""The prefix of the names of the delete guard's policies; a rejection by one of them is no missing permission."""

STOP_GUARD_PREFIX = "ttl-after-finished-stop-guard-"
"""The same for the stop guard."""

ANNOUNCED_LABEL = f"{ANNOTATION_DOMAIN}/deletion-announced"
"""The label of an unused object whose deletion is announced; its value is always "true"."""

_QUOTED_MAX = 64  # characters of a text, or bits of a number


def _to_camel(name: str) -> str:
    """Return Kubernetes' name of a field; pydantic's own function is not used, because its import takes 50 ms."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """The identity of one object with its uid: an object that is created again under the same name is another object.

    Attributes:
        api_version: `batch/v1`, or `v1` for the core group.
        kind: `Job`.
        namespace: Empty for cluster-scoped objects.
        name: `metadata.name`.
        uid: `metadata.uid`; empty if only the name is known.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    # In the data of CloudEvents, the fields have Kubernetes' names.
    __pydantic_config__: ClassVar = {"alias_generator": _to_camel, "populate_by_name": True}

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    def is_same(self, other: "ObjectRef") -> bool:
        """Return whether both identify the same object, in whichever versions of the API group."""
        return self.uid == other.uid and self.is_named(other)

    def is_named(self, other: "ObjectRef") -> bool:
        """Return whether both have one group, kind, namespace and name, whichever uids they have."""
        ours, theirs = (self.kind, self.namespace, self.name), (other.kind, other.namespace, other.name)
        return ours == theirs and self.group == other.group

    def __str__(self) -> str:
        """The name in logs and messages: `Job ci/build-42`."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def get_in(obj: Any, path: str) -> Any:
    """The value at a dotted path (`spec.ttlSecondsAfterFinished`), or None if a step is absent."""
    for key in _keys(path):
        if not isinstance(obj, dict):
            return None
        obj = obj.get(key)
    return obj


@lru_cache(maxsize=4_096)
def _keys(path: str) -> tuple[str, ...]:
    """The steps of a path; cached, because few paths are read from every object."""
    return tuple(path.split("."))


def get_text(obj: Any, path: str) -> str:
    """The string at a dotted path; empty if there is no string."""
    return _text(get_in(obj, path))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def list_mappings(obj: Any, path: str) -> Iterator[Mapping[str, Any]]:
    """The mappings in the list at a dotted path; elements of other types are skipped."""
    values = get_in(obj, path)
    if isinstance(values, list):
        yield from (value for value in values if isinstance(value, dict))


def ref_of(obj: Any) -> ObjectRef:
    """The identity in an object's own fields; absent parts are empty."""
    fields = obj if isinstance(obj, dict) else {}  # not by `get_text`: a deletion calls this a dozen times
    metadata = fields.get("metadata")
    names = metadata if isinstance(metadata, dict) else {}
    return ObjectRef(
        _text(fields.get("apiVersion")),
        _text(fields.get("kind")),
        _text(names.get("namespace")),
        _text(names.get("name")),
        _text(names.get("uid")),
    )


def get_annotations(obj: Any) -> dict[str, Any]:
    """The annotations of the domain `ttlafterfinished.dev`, without it: `{"ttl": "1h"}`. Values may be any JSON."""
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
    """The owner reference with `controller: true`, or None. The namespace of an owner is that of its dependent."""
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


_TYPE_NAMES: dict[type, str] = {dict: "a mapping", list: "a list"}


def quote(value: Any) -> str:
    """Quote a value in a message, short and printable, for any value.

    `repr` alone fails for a deeply nested list, and for a number of thousands of digits.
    """
    if isinstance(value, str):
        return repr(value if len(value) <= _QUOTED_MAX else f"{value[:_QUOTED_MAX]}...")
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= _QUOTED_MAX):
        return repr(value)
    return _TYPE_NAMES.get(type(value)) or f"a value of type {type(value).__name__}"


def printable(text: str) -> str:
    """A text in which each line break and control character, on which a terminal would act, is replaced."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)


# datetime.fromisoformat accepts more than RFC 3339: week dates, times without minutes, an offset of +00:99 and, in
# later Pythons, an hour 24. These are rejected.
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT([01]\d|2[0-3]):\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)", re.ASCII)


def parse_instant(text: Any) -> datetime:
    """Parse an RFC 3339 instant into an aware datetime in UTC.

    Args:
        text: `2026-01-02T03:04:05Z`, with any offset and any fraction of a second.

    Raises:
        ValueError: The value is anything else.
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
    """Format an aware instant as RFC 3339 in UTC, without a fraction if it is zero."""
    text = instant.astimezone(UTC).isoformat(timespec="auto")
    return text.replace("+00:00", "Z")
