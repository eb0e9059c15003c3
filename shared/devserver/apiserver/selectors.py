"""Label and field selectors; each text is compiled once."""

import re
from collections.abc import Callable
from functools import lru_cache, partial

from shared.devserver.apiserver.errors import bad_request
from shared.devserver.apiserver.resources import Object, Resource

Matcher = Callable[[Object], bool]

_COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")
_KEY = r"(?P<key>[\w./-]+)"
_LABEL_TERM = re.compile(
    rf"(?P<absent>!)\s*{_KEY}|{_KEY.replace('key', 'set_key')}\s+(?P<verb>in|notin)\s*\((?P<values>[^()]*)\)"
    rf"|{_KEY.replace('key', 'eq_key')}\s*(?P<operator>==|=|!=)\s*(?P<value>[\w.-]*)|(?P<present>[\w./-]+)"
)
_FIELD_TERM = re.compile(r"([^=!]+)(==|=|!=)(.*)")


def _every(terms: tuple[Matcher, ...], obj: Object) -> bool:
    return all(term(obj) for term in terms)


@lru_cache(maxsize=256)
def label_matcher(selector: str) -> Matcher:
    """Compile a labelSelector: `a=b`, `a!=b`, `a in (b, c)`, `a notin (b)`, `a`, `!a`, joined by commas."""
    return partial(_every, tuple(_label_term(t.strip()) for t in _terms(selector)))


@lru_cache(maxsize=256)
def field_matcher(selector: str, resource: Resource) -> Matcher:
    """Compile a fieldSelector on fields that the resource allows: `a.b=c`, `a.b!=c`."""
    return partial(_every, tuple(_field_term(t, resource) for t in _terms(selector)))


def _terms(selector: str) -> list[str]:
    return _COMMA_OUTSIDE_PARENTHESES.split(selector) if selector else []


def _label_term(text: str) -> Matcher:
    match = _LABEL_TERM.fullmatch(text)
    if match is None:
        raise bad_request(f"unable to parse requirement: {text!r}")
    if match["verb"]:
        values = frozenset(value.strip() for value in match["values"].split(","))
        return partial(_label_in, match["set_key"], values, match["verb"] == "in")
    if match["operator"]:
        return partial(_label_in, match["eq_key"], frozenset({match["value"]}), match["operator"] != "!=")
    return partial(_label_present, match["key"] or match["present"], match["absent"] is None)


def _label_in(key: str, values: frozenset[str], wanted: bool, obj: Object) -> bool:
    # An object without the label satisfies != and notin, as in Kubernetes.
    return (_labels(obj).get(key) in values) is wanted


def _label_present(key: str, wanted: bool, obj: Object) -> bool:
    return (key in _labels(obj)) is wanted


def _labels(obj: Object) -> Object:
    return obj["metadata"].get("labels") or {}


def _field_term(text: str, resource: Resource) -> Matcher:
    match = _FIELD_TERM.fullmatch(text)
    if match is None:
        raise bad_request(f"invalid selector: '{text}'; can't understand '{text}'")
    path, operator, value = match.groups()
    if path not in ("metadata.name", "metadata.namespace", *resource.selectable):
        raise bad_request(f'field label not supported: "{path}" is not a known field selector of {resource.name}')
    return partial(_field_is, tuple(path.split(".")), value, operator != "!=")


def _field_is(path: tuple[str, ...], value: str, wanted: bool, obj: Object) -> bool:
    found = obj
    for step in path:
        found = found.get(step) or {}
    return (value == (found or "")) is wanted
