"""Evaluate CEL as the API server does, with the CEL implementation of kind rules.

The API server has cel-go, kind rules have cel-cpp. They differ for a field of a value that has no fields, such as null
or a number. In cel-go, an optional field is absent, and `has` is false. In cel-cpp, both are errors. So each optional
selection becomes a list of at most one value, and each `has` tests the type of its operand first:

    a.?b.?c    [a].map(it, has_b, it['b']).map(it, has_c, it['c'])[?0]
    has(a.b)   (type(a) in [dyn(map), dyn(list)] ? has(a.b) : false)

`optFlatMap` would be shorter, but cel-cpp may bind it to the variable of an `all` that ended early. Two differences
stay. cel-cpp reads a timestamp whose second is 60, which is an error in cel-go. In cel-go, a map or a list is never a
key of a map; in cel-cpp, the question is an error.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_optional, ext_strings

VARIABLES = ("object", "oldObject", "request", "namespaceObject", "variables")

_TEXT = r"""[rRbB]*(?:"{3}[\s\S]*?"{3}|'{3}[\s\S]*?'{3}|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')"""
_TOKEN = re.compile(rf"//[^\n]*|({_TEXT}|\.\?|\[\?|[=!<>]=|&&|\|\||\d[\w.]*|\w+|\S)")
_CLOSING = {"(": ")", "[": "]", "[?": "]", "{": "}"}
_UNWRAPPING = {"orValue", "hasValue", "value"}
_IT = "it__"


@dataclass(frozen=True)
class CelError:
    """The error of an expression; its message is not that of the API server."""

    message: str


def value_of(expression: str, variables: Mapping[str, Any]) -> Any:
    """The value of an expression, or a CelError; a variable that is not given is null."""
    compiled = _compiled(expression)
    try:
        value = compiled.eval(data={**dict.fromkeys(VARIABLES), **variables})
        plain = value.plain_value()
    except Exception as error:  # noqa: BLE001 - the library raises RuntimeError and others
        return CelError(str(error))
    return CelError(str(plain)) if value.type().name() == "ERROR" else plain


@cache
def _compiled(expression: str) -> Any:
    return _environment().compile(as_on_server(expression))


@cache
def _environment() -> Any:
    extensions = [ext_optional.ExtOptional(), ext_strings.ExtStrings()]
    return cel.NewEnv(variables=dict.fromkeys(VARIABLES, cel.Type.DYN), extensions=extensions)


def as_on_server(expression: str) -> str:
    """The expression with each optional selection and each `has` rewritten."""
    return _rewritten(iter([*filter(None, _TOKEN.findall(expression)), ""]), "")  # a comment is no token


def _rewritten(tokens: Iterator[str], closing: str) -> str:
    """The tokens up to the closing bracket of the present ones, rewritten."""
    parts, chain = [], _Chain()
    while (token := next(tokens)) != closing:
        if token in (".", ".?"):
            chain.select(token, next(tokens))
        elif token in _CLOSING:
            chain.enclose(token, _rewritten(tokens, _CLOSING[token]))
        else:  # an operator, or the start of the next chain
            parts += [chain.as_value()] if chain.text else []
            is_start = token != "in" and re.match(r"[\w\"']", token)
            parts += [] if is_start else [token]
            chain = _Chain(token if is_start else "")
    return " ".join([*parts, chain.as_value()] if chain.text else parts)


@dataclass
class _Chain:
    """A value with the selections and calls after it, such as `a.b.exists(x, x > 0)`.

    Attributes:
        text: The value; if `is_list`, a list that is empty or has the value.
        is_list: Whether the last selection was an optional one.
        is_optional: Whether the value is optional, by a selection before the last one.
    """

    text: str = ""
    is_list: bool = False
    is_optional: bool = False

    def as_value(self) -> str:
        return f"{self.text}[?0]" if self.is_list else self.text

    def select(self, operator: str, name: str) -> None:
        if operator == ".?":
            self._select_optional(f"'{name}'")
            return
        self.is_optional = (self.is_list or self.is_optional) and name not in _UNWRAPPING
        self._extend(f".{name}")

    def enclose(self, opening: str, inner: str) -> None:
        if opening == "[?":
            self._select_optional(inner)
        elif opening == "(" and self.text == "has":
            operand = inner.rpartition(".")[0]
            self.text = f"(type({operand}) in [dyn(map), dyn(list)] ? has({inner}) : false)"
        else:
            self._extend(f"{opening}{inner}{_CLOSING[opening]}")

    def _extend(self, text: str) -> None:
        self.text, self.is_list = f"{self.as_value()}{text}", False

    def _select_optional(self, key: str) -> None:
        if not re.fullmatch(_TEXT, key):
            raise NotImplementedError(f"optional index {key}: expected a text")
        if not self.is_list:
            self.text = f"[{'?' if self.is_optional else ''}{self.text}]"
        # A list has no such key: `it[key]` is the error that it is on the API server.
        is_present = f"type({_IT}) == list || type({_IT}) == map && {key} in {_IT}"
        self.text, self.is_list = f"{self.text}.map({_IT}, {is_present}, {_IT}[{key}])", True
