"""Name a field of an object as the API server does, and leave it out; pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shared.core.values.objects import get_in

_STEP = re.compile(r"(?:^|\.)([^.\[\]\s]+)|\[([^\[\]]+)\]")
_IDENTITY = ("apiVersion", "kind", "metadata", "metadata.name", "metadata.namespace")
_ABSENT = object()

_NAMED = re.compile(r"\b(?:spec|metadata|data)(?:\.[\w-]+|\[[^\[\]\s]+\])+")
_WORD = re.compile(r"[A-Za-z]{8,}")
_REQUIRED = ("containers", "template")
"""Fields of a spec that are words of many messages, and without which an object is never valid."""


@dataclass(frozen=True, slots=True)
class FieldPath:
    """A field of an object.

    Attributes:
        text: The path as the API server names it: `spec.tolerations[0]`, `metadata.labels[example.com/team]`.
        steps: The names and the indices.
    """

    text: str
    steps: tuple[str, ...]

    def __str__(self) -> str:
        """The path as it was given."""
        return self.text

    def is_in(self, obj: Any) -> bool:
        """Whether an object has the field."""
        return _get(obj, self.steps) is not _ABSENT


def parse_field_path(text: str) -> FieldPath:
    """Parse the path of a field that a restored object may lack.

    Raises:
        ValueError: It is no path, or the object would be another one without the field.
    """
    steps, end = list[str](), 0
    for match in _STEP.finditer(text):
        if match.start() != end:
            break
        steps.append(match[1] or match[2])
        end = match.end()
    if not steps or end != len(text):
        expected = "expected the path of a field, such as spec.tolerations[0] or metadata.labels[example.com/team]"
        raise ValueError(f"{expected}, got {text!r}")
    if ".".join(steps) in _IDENTITY:
        raise ValueError(f"expected a field that a restore can leave out, got {text}: it says which object it is")
    return FieldPath(text, tuple(steps))


def without_fields(obj: dict[str, Any], paths: Sequence[FieldPath]) -> dict[str, Any]:
    """The object without fields; the argument is not changed.

    Indices are those of the given object, so two elements of one list can be left out.
    """
    left: dict[str, Any] = _without(obj, [path.steps for path in paths if path.is_in(obj)])
    return left


def find_named(message: str, obj: Any) -> list[str]:
    """The fields of an object that a refusal of the API server names, at most three.

    A validation names the path of a field. An admission plugin writes a sentence, whose words are compared with the
    names of the fields in the spec: `no PriorityClass with name` means `spec.priorityClassName`.
    """
    paths = [match[0].rstrip(".") for match in _NAMED.finditer(message)]
    named = [path for path in paths if _is_field(path, obj)]
    if not named:
        words = {word.lower() for word in _WORD.findall(message)}
        spec = get_in(obj, "spec")
        names = [name for name in spec if isinstance(name, str)] if isinstance(spec, dict) else []
        named = [
            f"spec.{name}"
            for name in names
            if name not in _REQUIRED and any(name.lower().startswith(word) for word in words)
        ]
    return list(dict.fromkeys(named))[:3]


def _is_field(text: str, obj: Any) -> bool:
    try:
        return parse_field_path(text).is_in(obj)
    except ValueError:
        return False


def _get(value: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step, _ABSENT)
        elif isinstance(value, list) and step.isascii() and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return _ABSENT
    return value


def _without(value: Any, paths: Sequence[Sequence[str]]) -> Any:
    """The value without the fields that exist at these paths."""
    ends = {path[0] for path in paths if len(path) == 1}
    deeper: dict[str, list[Sequence[str]]] = {}
    for path in paths:
        if path[0] not in ends:
            deeper.setdefault(path[0], []).append(path[1:])
    if isinstance(value, dict):
        return {k: _without(v, deeper[k]) if k in deeper else v for k, v in value.items() if k not in ends}
    gone, inner = {int(end) for end in ends}, {int(index): rest for index, rest in deeper.items()}
    return [_without(one, inner[i]) if i in inner else one for i, one in enumerate(value) if i not in gone]
