"""CEL for what data cannot say: in kind rules and in policies, Google's own implementation.

An expression is compiled when its file is loaded, where unknown variables and a result of the wrong type are errors.
It runs on objects that anybody may have made, so it is bounded before it runs: the implementation cuts loops off at
10,000 steps, but copies what a step touches, so a large object in a loop would take minutes and gigabytes.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Literal

LENGTH_MAX = 2_000
"""Characters of an expression."""

WORK_MAX = 25_000_000
"""Steps of an expression's loops times what a step may touch (characters and values); more is refused."""

Returns = Literal["bool", "string", "timestamp"]
_PYTHON = {"bool": bool, "string": str, "timestamp": datetime}
_LOOPS = re.compile(r"\.\s*(?:map|filter|all|exists|exists_one)\s*\(")


class ExpressionError(ValueError):
    """An expression is wrong, or has no answer for an object; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression.

    Attributes:
        text: As it was written.
        returns: What it gives.
        loops: How many macros it has that go through a list or a map.
    """

    text: str
    returns: Returns
    loops: int
    _compiled: Any

    def evaluate(self, **variables: Any) -> Any:
        """What the expression gives: a bool, a str or an aware datetime.

        Args:
            variables: JSON values, by the names that it was compiled for.

        Raises:
            ExpressionError: It has no answer: a field is missing, a value has another type, the object is too large
                for its loops. Never anything else, whatever the variables hold.
        """
        if self.loops:
            self._check_work(variables.values())
        try:
            value = self._compiled.eval(data=variables)
            kind, plain = value.type().name(), value.plain_value()
        except Exception as error:  # noqa: BLE001 - the library raises RuntimeError and others, for odd text and depth
            raise ExpressionError(f"CEL {self.text!r}: {_one_line(error)}") from None
        if kind == "ERROR" or not isinstance(plain, _PYTHON[self.returns]):  # an error reads as a text
            told = _one_line(plain) if kind == "ERROR" else f"expected a {self.returns}, got a {kind.lower()}"
            raise ExpressionError(f"CEL {self.text!r}: {told}")
        return plain

    def _check_work(self, variables: Iterable[Any]) -> None:
        weight, longest = _measure(variables)
        joined = 1 + self.text.count("+")  # lists and texts can be joined
        longest, weight = max(longest, 1 + self.text.count(",")) * joined, weight * joined
        if max(longest, 1) ** self.loops * (weight + longest) > WORK_MAX:
            raise ExpressionError(f"CEL {self.text!r}: its loops ({self.loops}) and the object are too large together")


def compile_expression(text: str, *, returns: Returns, variables: tuple[str, ...] = ("object",)) -> Expression:
    """An expression, checked.

    Args:
        text: The source.
        returns: What it has to give.
        variables: What it may speak of.

    Raises:
        ExpressionError: It cannot be parsed, names anything else, is too long, or gives another type.
    """
    if len(text) > LENGTH_MAX:
        raise ExpressionError(f"expected a CEL expression of at most {LENGTH_MAX} characters, got {len(text)}")
    try:
        compiled = _environment(variables).compile(text)
    except Exception as error:  # noqa: BLE001 - RuntimeError for what is wrong, others for odd text
        raise ExpressionError(f"expected a CEL expression, got {text!r}: {_one_line(error)}") from None
    kind = compiled.return_type().name().lower()
    if kind not in (returns, "dyn"):
        raise ExpressionError(f"expected a CEL expression that gives a {returns}, {text!r} gives a {kind}")
    return Expression(text, returns, len(_LOOPS.findall(text)), compiled)


@cache
def _environment(variables: tuple[str, ...]) -> Any:
    from cel_expr_python import cel  # noqa: PLC0415 - a cluster without expressions need not load it

    return cel.NewEnv(variables=dict.fromkeys(variables, cel.Type.DYN))


def _measure(values: Iterable[Any]) -> tuple[int, int]:
    """Characters and values in JSON, and the length of its longest list or map."""
    weight, longest, pending = 0, 0, list(values)
    while pending:
        value = pending.pop()
        weight += 1
        if isinstance(value, str):
            weight += len(value)
        elif isinstance(value, dict | list):
            longest = max(longest, len(value))
            pending.extend(value)
            if isinstance(value, dict):
                pending.extend(value.values())
    return weight, longest


def _one_line(error: object) -> str:
    """What the library says, without the drawing of the place below it."""
    first = str(error).partition("\n")[0]
    return re.sub(r"^INVALID_ARGUMENT: (ERROR: )?|\s*\[\w+\]$", "", first)[:300]
