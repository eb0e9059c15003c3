"""Parts of CEL expressions over `oldObject` and `object`, as texts for an admission policy of Kubernetes.

Some are about the mark and the patch of a stop, and some about a write that changes nothing but some fields.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shared.core.deadlines.deadline import DEADLINE_EXCEEDED, STOPPED_GENERATION, STOPS
from shared.core.values.objects import ANNOTATION_DOMAIN

NULL = "dyn(null)"
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_QUOTABLE = re.compile(r"[\w ./:@-]*", re.ASCII)
_RESERVED = frozenset(
    {"as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop"}
    | {"namespace", "null", "package", "return", "true", "var", "void", "while"}
)
_TOKEN = re.compile(
    r"""\s+|//[^\n]*|[rRbB]*(?:\"{3}[\s\S]*?\"{3}|'{3}[\s\S]*?'{3}|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|\.\s*\??\s*\w+|\w+"""
)

_INSTANT = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?Z$"

SET_BY_SERVER = ("generation", "managedFields", "resourceVersion")
"""The metadata that the API server sets at each write."""


def negate(expression: str) -> str:
    """The negation of an expression; one that starts with a parenthesis must end with its counterpart."""
    return f"!{expression}" if expression.startswith("(") else f"!({expression})"


def is_scalar(value: str) -> str:
    """Return whether a value is neither a map nor a list."""
    return f"!(type({value}) in [dyn(map), dyn(list)])"


def is_text(optional: str, values: Sequence[str]) -> str:
    """Return whether a text is one of these; an absent value and null count as the empty text."""
    if "" in values:
        return f"{optional}.orValue({NULL}) in {list_of([*values, None])}"
    return is_one_of(optional, values)


def is_value(optional: str, values: Sequence[object]) -> str:
    """Return whether a value is one of these; if `values` is empty, whether a value is set and not empty."""
    return is_one_of(optional, values) if values else f"!({optional}.orValue({NULL}) in [dyn(''), {NULL}])"


def is_one_of(optional: str, values: Sequence[object]) -> str:
    """Return whether a value is set and is one of these; a value of another type never is."""
    absent = "''" if all(isinstance(value, str) and value for value in values) else NULL
    if len(values) == 1:
        return f"{optional}.orValue({absent}) == {literal(values[0])}"
    return f"{optional}.orValue({absent}) in {list_of(values)}"


def optional_field(root: str, path: str) -> str:
    """The optional value at a dotted path; it is absent if a step is absent, null or no mapping."""
    for name in path.split("."):
        root = f"{root}.?{name}" if _PLAIN.fullmatch(name) and name not in _RESERVED else optional_entry(root, name)
    return root


def optional_key(root: str, key: str) -> str:
    """The optional value of one key of a map, which may have dots in it."""
    return optional_entry(root, key) if "." in key else optional_field(root, key)


def optional_entry(optional: str, key: str) -> str:
    """The optional value of one key of an optional map."""
    return f"{optional}[?{literal(key)}]"


def list_of(values: Sequence[object]) -> str:
    """A list literal; Kubernetes accepts values of different types only if each is `dyn`."""
    literals = [literal(value) for value in values]
    if len({type(value) for value in values}) > 1:
        literals = [f"dyn({literal})" for literal in literals]
    return f"[{', '.join(literals)}]"


def literal(value: object) -> str:
    """A scalar as a CEL literal."""
    if isinstance(value, str) and _QUOTABLE.fullmatch(value):
        return f"'{value}'"
    return json.dumps(value, ensure_ascii=False)


def value_of(value: object) -> str:
    """Any value of JSON as CEL; inside a list or a map each value is `dyn`, since their types may differ."""
    if isinstance(value, list):
        return f"[{', '.join(f'dyn({value_of(one)})' for one in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{literal(key)}: dyn({value_of(one)})' for key, one in value.items())}}}"
    return literal(value)


def of_old_object(expression: str) -> str:
    """A rule's expression with the variable `object` renamed to `oldObject`; strings and fields are unchanged."""

    def rename(token: re.Match[str]) -> str:
        text = token[0]
        if text.isspace() or text.startswith("//"):
            return " "
        return "oldObject" if text == "object" else text

    return _TOKEN.sub(rename, expression)


def is_merged(root: str, patch: Mapping[str, Any]) -> Iterator[str]:
    """Yield the conditions that an object has all values of a JSON merge patch.

    Args:
        root: The CEL variable of the object.
        patch: The patch.
    """
    for key, value in patch.items():
        entry = optional_key(root, key)
        if isinstance(value, dict):
            yield from is_merged(entry, value)
        else:
            yield f"{entry}.orValue({NULL}) == {value_of(value)}"


def is_marked() -> Iterator[str]:
    """Yield the conditions that `enforce` stopped the object, and that its spec is what the stop made of it."""
    at, stops, generation = (
        f"oldObject.metadata.?annotations[?'{ANNOTATION_DOMAIN}/{name}']"
        for name in (DEADLINE_EXCEEDED, STOPS, STOPPED_GENERATION)
    )
    created_at = "timestamp(oldObject.metadata.creationTimestamp)"  # an older mark is that of another object
    yield f"{at}.orValue('').matches('{_INSTANT}') && timestamp({at}.orValue('')) >= {created_at}"
    yield f"{stops}.orValue('1').matches('^[0-9]{{1,6}}$') && int({stops}.orValue('1')) > 0"
    yield f"{generation}.orValue('') == string(oldObject.metadata.?generation.orValue(-1))"


def both(path: str) -> tuple[str, str]:
    """Return the CEL expressions of a map of the old object and of the new one; an absent map counts as empty."""
    return f"oldObject.{path}.orValue({{}})", f"object.{path}.orValue({{}})"


def is_same_but(both: tuple[str, str], patch: Mapping[str, Any], free: Sequence[str] = ()) -> Iterator[str]:
    """Yield the conditions that two maps differ only where a merge patch has values, and in `free` keys."""
    old, new = both
    yield from is_same_beside(old, new, (*patch, *free))
    for key, value in patch.items():
        if isinstance(value, dict):
            inner = f"{optional_key(old, key)}.orValue({{}})", f"{optional_key(new, key)}.orValue({{}})"
            yield from is_same_but(inner, value)


def is_same_beside(old: str, new: str, keys: Sequence[str]) -> Iterator[str]:
    """Yield the conditions that two maps have the same entries, except for some keys."""
    if not keys:
        yield f"{new} == {old}"
        return
    others = list_of(sorted({*keys}))
    yield f"{old}.all(key, key in {others} || key in {new} && {new}[key] == {old}[key])"
    yield f"{new}.all(key, key in {others} || key in {old})"
